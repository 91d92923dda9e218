"""The fork-server's sandboxes, each in a scope of ``cellblock-sandbox.slice``.

The inside of a sandbox is :mod:`cellblock_workers.launcher.namespaces`'s. Memory, processes and CPU time are
bounded by :class:`~cellblock_workers.launcher.systemd.scope.ScopeTree`, and for all sandboxes together by the
slice.
"""

from __future__ import annotations

from cellblock_config import Isolation, Settings
from cellblock_workers.launcher.backend import NotOnThisHost
from cellblock_workers.launcher.namespaces.backend import NamespacesBackend
from cellblock_workers.launcher.ownership import Ownership
from cellblock_workers.launcher.systemd.scope import ScopeTree


class ScopeBackend(NamespacesBackend):
    """Namespaces whose cgroups are systemd's, where operators look for them."""

    isolation: Isolation = "systemd"
    name = "scope"
    sweeps = "systemd"

    def __init__(self, settings: Settings, ownership: Ownership) -> None:
        super().__init__(settings, ownership, ScopeTree(settings.launcher.slice))

    def _do_without_cgroups(self, refusal: str) -> None:
        """Refuses: the isolation ``namespaces`` is there for hosts without cgroups."""
        raise NotOnThisHost(refusal)
