"""Sandboxes whose worker has to say again and again that it still needs them.

A frozen worker keeps its connection open, and its jobs run again elsewhere once their leases in the ledger
have run out. This host hears nothing of that, so it goes by its own clock, and stops computing the stale
attempt.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

from cellblock_workers.launcher.backend import Sandbox


@dataclass(slots=True)
class _Lease:
    sandbox: Sandbox
    lease_s: float
    renewed: float


class SandboxLeases:
    """When each sandbox was last named. Thread-safe."""

    def __init__(self) -> None:
        self._leases: dict[str, _Lease] = {}
        self._lock = threading.Lock()

    def add(self, sandbox: Sandbox, lease_s: float) -> None:
        """Starts a lease: the sandbox has to be named every ``lease_s`` seconds."""
        with self._lock:
            self._leases[sandbox.id] = _Lease(sandbox, lease_s, time.monotonic())

    def renew(self, sandbox_ids: Iterable[str]) -> None:
        """Notes that these were named. Ids of sandboxes that are gone are ignored."""
        now = time.monotonic()
        with self._lock:
            for sandbox_id in sandbox_ids:
                if (lease := self._leases.get(sandbox_id)) is not None:
                    lease.renewed = now

    def remove(self, sandbox_id: str) -> None:
        """Ends the lease of a sandbox that was given back."""
        with self._lock:
            self._leases.pop(sandbox_id, None)

    def take_overdue(self) -> list[Sandbox]:
        """Removes and returns the sandboxes that were not named in time. The caller has to destroy them."""
        now = time.monotonic()
        with self._lock:
            overdue = [one for one in self._leases.values() if now - one.renewed > one.lease_s]
            for lease in overdue:
                del self._leases[lease.sandbox.id]
        return [lease.sandbox for lease in overdue]
