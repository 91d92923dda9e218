"""Names that callers give by themselves, outside a job: the same rule as in one."""

import re

from cellblock.errors import InvalidJob
from cellblock_config.names import NAME, NAME_RULE


def check_tenant(tenant: str, *, remedy: str = "") -> None:
    """Raises :class:`InvalidJob` for what no tenant can be called, with ``remedy`` behind the rule."""
    if not re.fullmatch(NAME, tenant):
        raise InvalidJob("tenant", f"{tenant!r:.80} is not a tenant's name: {NAME_RULE}{remedy}")
