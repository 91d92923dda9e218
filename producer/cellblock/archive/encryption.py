"""Whether what is archived can be read on its way to the database."""

from __future__ import annotations

import os
from ipaddress import ip_address

from cellblock_config.archive import ArchiveSettings

#: libpq's modes in which no server is spoken to without TLS; by default one that offers none is.
_ENCRYPTED = {"require", "verify-ca", "verify-full"}
REMEDY = (
    "add ?sslmode=verify-full to CELLBLOCK_ARCHIVE_URL (sslrootcert=… names the authority), or set PGSSLMODE"
)


def unencrypted_host(settings: ArchiveSettings) -> str | None:
    """The other machine that the archive's address names without requiring TLS; None if it names none."""
    if settings.url is None:
        return None
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(settings.url.get_secret_value())
    except (ArgumentError, ValueError):  # refused where it is opened
        return None
    if url.get_backend_name() == "sqlite":
        return None
    host = str(url.host or url.query.get("host") or os.environ.get("PGHOST") or "")
    mode = str(url.query.get("sslmode") or os.environ.get("PGSSLMODE") or "")
    return None if mode in _ENCRYPTED or _is_this_machine(host) else host


def _is_this_machine(host: str) -> bool:
    if not host or host.startswith("/") or host == "localhost":  # a Unix socket, or loopback
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
