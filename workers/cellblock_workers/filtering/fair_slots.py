"""Which large request may be filtered now: few at a time, as each may hold much memory, and fair by
tenant."""

from __future__ import annotations

import os
import select
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cellblock_workers.filtering.interruption import Interruption
from cellblock_workers.filtering.processes import FilterFailed, Stopped

_LOOK_S = 0.25


@dataclass(slots=True, eq=False)
class _Waiter:
    tenant: str
    #: Turns readable when its turn has come.
    event: int = field(default_factory=lambda: os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
    called: bool = False


class FairSlots:
    """A number of places. A free one goes to the tenant that holds the fewest, and whose last one is longest
    ago. The last free one of several is for a tenant that holds none: a large request can take minutes."""

    def __init__(self, places: int, wait_s: float) -> None:
        self._free = places
        self._kept_back = min(1, places - 1)
        self._wait_s = wait_s
        self._held: Counter[str] = Counter()
        self._served: dict[str, int] = {}  #: when each tenant that is here now had its last place
        self._calls = 0
        self._waiting: list[_Waiter] = []
        self._lock = threading.Lock()

    @contextmanager
    def taken(self, tenant: str, interruption: Interruption) -> Iterator[None]:
        """Holds a place while the block runs. Raises :class:`Stopped` and :class:`FilterFailed`."""
        waiter = _Waiter(tenant)
        try:
            with self._lock:
                self._waiting.append(waiter)
                self._call()
            self._wait(waiter, interruption)
            yield
        finally:
            with self._lock:
                if waiter.called:
                    self._free += 1
                    self._held[tenant] -= 1
                    self._held += Counter()  # drops the tenants that hold none
                    self._call()
                else:
                    self._waiting.remove(waiter)
            os.close(waiter.event)

    def _call(self) -> None:
        while self._free and self._waiting:
            chosen = min(
                self._waiting, key=lambda one: (self._held[one.tenant], self._served.get(one.tenant, 0))
            )
            if self._held[chosen.tenant] and self._free <= self._kept_back:
                return
            self._waiting.remove(chosen)
            self._free -= 1
            self._calls += 1
            here = {one.tenant for one in self._waiting} | {chosen.tenant, *self._held}
            self._served = {tenant: at for tenant, at in self._served.items() if tenant in here}
            self._served[chosen.tenant] = self._calls
            self._held[chosen.tenant] += 1
            chosen.called = True
            os.eventfd_write(chosen.event, 1)

    def _wait(self, waiter: _Waiter, interruption: Interruption) -> None:
        over = time.monotonic() + self._wait_s
        poll = select.poll()
        poll.register(waiter.event, select.POLLIN)
        interruption.register(poll)
        while not waiter.called:
            poll.poll(1000 * _LOOK_S)
            if not waiter.called and (reason := interruption.reason) is not None:
                raise Stopped(reason, 0.0)
            if not waiter.called and time.monotonic() > over:
                raise FilterFailed("filtering the output of other jobs took too long")
