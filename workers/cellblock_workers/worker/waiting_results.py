"""How many long results may wait for room in the store at once: each holds a thread of this worker."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

#: All that wait hold at most one in this many of the worker's threads; those of one tenant one in that many.
_OF_ALL, _OF_ONE = 2, 4


class WaitingResults:
    """Places for results that wait: half of the threads, and a quarter for one tenant.

    The last place of several is for a tenant that holds none. A worker with one thread has no place.
    """

    def __init__(self, threads: int) -> None:
        self._free = threads // _OF_ALL
        self._most = max(1, threads // _OF_ONE)
        self._kept_back = min(1, self._free - 1)
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def place(self, tenant: str) -> Iterator[bool]:
        """Whether a result of this tenant may wait; its place is held while the block runs."""
        taken = self._take(tenant)
        try:
            yield taken
        finally:
            if taken:
                self._give_back(tenant)

    def _take(self, tenant: str) -> bool:
        with self._lock:
            held = self._held[tenant]
            if self._free <= (self._kept_back if held else 0) or held >= self._most:
                return False
            self._free -= 1
            self._held[tenant] += 1
            return True

    def _give_back(self, tenant: str) -> None:
        with self._lock:
            self._free += 1
            self._held[tenant] -= 1
            self._held += Counter()  # drops the tenants that hold none
