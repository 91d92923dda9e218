"""Shares the host's process ids out by tenant.

All sandboxes together have three quarters of them (``cgroup_tree.all_pids``), and one of gVisor may hold some
3,000: a few of one tenant's would leave the kernels of others' sandboxes no thread, and these end of it.
"""

from __future__ import annotations

import threading

from cellblock_workers.launcher.backend import Sandbox


class ProcessShares:
    """Bounds what the sandboxes of one tenant hold together, while they are lent. Thread-safe.

    Each keeps its own limit while these fit into the share; beyond that all of the tenant's have less, in
    proportion. A sandbox that already holds more keeps what it has, and is refused more.
    """

    def __init__(self, share: int) -> None:
        """``share``: how many process ids a tenant may have."""
        self._share = share
        self._lent: dict[str, dict[str, tuple[Sandbox, int]]] = {}  # by tenant and id, with its own limit
        self._tenants: dict[str, str] = {}
        self._lock = threading.Lock()

    def add(self, sandbox: Sandbox, tenant: str) -> None:
        """Counts a sandbox whose job begins."""
        own = sandbox.pids_most()
        if own is None:
            return
        with self._lock:
            lent = self._lent.setdefault(tenant, {})
            self._tenants[sandbox.id] = tenant
            before = _sum(lent)
            lent[sandbox.id] = sandbox, own
            self._settle(lent, before)

    def back(self, sandbox: Sandbox) -> None:
        """Stops counting a sandbox whose job is over. Idempotent."""
        with self._lock:
            tenant = self._tenants.pop(sandbox.id, None)
            if tenant is None:
                return
            lent = self._lent[tenant]
            before = _sum(lent)
            del lent[sandbox.id]
            self._settle(lent, before)
            if not lent:
                del self._lent[tenant]

    def _settle(self, lent: dict[str, tuple[Sandbox, int]], before: int) -> None:
        together = _sum(lent)
        if together <= self._share and before <= self._share:
            return  # as almost always: each has its own limit already
        for sandbox, own in lent.values():
            sandbox.limit_pids(own if together <= self._share else max(1, own * self._share // together))


def _sum(lent: dict[str, tuple[Sandbox, int]]) -> int:
    return sum(own for _, own in lent.values())
