"""Which large request may be filtered now: few at a time, as each may hold much memory, and fair by tenant.

A request can take minutes. So it has a place for a turn at a time: after that it gives way to another
tenant's request that waits, and is set aside, stopped where it is, with all that it has found. Those set
aside hold a bounded amount of memory together; a request for which there is no room keeps its place.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from cellblock_workers.filtering.failures import FilterFailed, Stopped
from cellblock_workers.filtering.interruption import Interruption

_LOOK_S = 0.25


class Pausable(Protocol):
    """A process that can be stopped and continued, and its memory."""

    def held_bytes(self) -> int:
        """The memory that it holds for its request."""

    def pause(self) -> None:
        """Stops it where it is."""

    def resume(self) -> None:
        """Continues it."""


@dataclass(slots=True, eq=False)
class _Request:
    tenant: str
    #: Turns readable when its turn has come.
    event: int = field(default_factory=lambda: os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
    has_place: bool = False
    #: The memory that it holds while it is set aside; 0 before its first turn.
    held_bytes: int = 0


class FairSlots:
    """A number of places. A free one goes to the tenant that holds the fewest, and whose last one is longest
    ago. The last free one of several is for a tenant that holds none."""

    def __init__(self, places: int, wait_s: float, aside_bytes: int) -> None:
        """``aside_bytes``: the memory that all requests that are set aside may hold."""
        self._free = places
        self._kept_back = min(1, places - 1)
        self._wait_s = wait_s
        self._aside_bytes = aside_bytes
        self._held: Counter[str] = Counter()
        self._served: dict[str, int] = {}  #: when each tenant that is here now had its last place
        self._calls = 0
        self._waiting: list[_Request] = []
        self._lock = threading.Lock()

    @contextmanager
    def taken(self, tenant: str, interruption: Interruption) -> Iterator[Turn]:
        """Holds a place while the block runs. Raises :class:`Stopped` and :class:`FilterFailed`."""
        request = _Request(tenant)
        try:
            with self._lock:
                self._waiting.append(request)
                self._call()
            self.wait(request, interruption)
            yield Turn(self, request, interruption)
        finally:
            with self._lock:
                if request.has_place:
                    self._give_back(request)
                    self._call()
                else:
                    self._waiting.remove(request)
            os.close(request.event)

    def swap(self, request: _Request, held_bytes: int) -> bool:
        """Gives its place to the request that is next, if that is another tenant's, and there is room to set
        this one aside with the memory that it holds. Returns whether it has."""
        with self._lock:
            chosen = min(self._waiting, key=self._rank, default=None)
            if chosen is None or chosen.tenant == request.tenant:
                return False
            held, served, _ = self._rank(request)
            aside_bytes = sum(one.held_bytes for one in self._waiting) - chosen.held_bytes + held_bytes
            if self._rank(chosen) >= (held - 1, served, False) or aside_bytes > self._aside_bytes:
                return False
            self._give_back(request)
            request.held_bytes = held_bytes
            self._waiting.append(request)
            self._place(chosen)
            return True

    def wait(self, request: _Request, interruption: Interruption) -> None:
        """Returns when it has a place. Raises :class:`Stopped` and :class:`FilterFailed`."""
        over = time.monotonic() + self._wait_s
        poll = select.poll()
        poll.register(request.event, select.POLLIN)
        interruption.register(poll)
        while not request.has_place:
            poll.poll(1000 * _LOOK_S)
            if not request.has_place and (reason := interruption.reason) is not None:
                raise Stopped(reason, 0.0)
            if not request.has_place and time.monotonic() > over:
                raise FilterFailed("filtering the output of other jobs took too long")
        os.eventfd_read(request.event)

    def _rank(self, request: _Request) -> tuple[int, int, bool]:
        """The least is next; of one tenant's requests, one that was set aside before one that never began."""
        return self._held[request.tenant], self._served.get(request.tenant, 0), not request.held_bytes

    def _call(self) -> None:
        while self._free and self._waiting:
            chosen = min(self._waiting, key=self._rank)
            if self._held[chosen.tenant] and self._free <= self._kept_back:
                return
            self._place(chosen)

    def _place(self, chosen: _Request) -> None:
        self._waiting.remove(chosen)
        self._free -= 1
        self._calls += 1
        here = {one.tenant for one in self._waiting} | {chosen.tenant, *self._held}
        self._served = {tenant: at for tenant, at in self._served.items() if tenant in here}
        self._served[chosen.tenant] = self._calls
        self._held[chosen.tenant] += 1
        chosen.held_bytes = 0
        os.eventfd_write(chosen.event, 1)  # first: the waiter reads it once it has its place
        chosen.has_place = True

    def _give_back(self, request: _Request) -> None:
        request.has_place = False
        self._free += 1
        self._held[request.tenant] -= 1
        self._held += Counter()  # drops the tenants that hold none


@dataclass(frozen=True, slots=True)
class Turn:
    """One request's place, for as long as nobody else has a better claim to it."""

    _slots: FairSlots
    _request: _Request
    _interruption: Interruption

    def give_way(self, process: Pausable) -> float | None:
        """Sets the request aside if another tenant's is next and there is room. Returns when it has a place
        again, and the seconds that this took; None if it has kept its place.

        Raises :class:`Stopped` and :class:`FilterFailed`.
        """
        if not self._slots.swap(self._request, max(1, process.held_bytes())):
            return None
        began_s = time.monotonic()
        process.pause()
        try:
            self._slots.wait(self._request, self._interruption)
        finally:
            process.resume()
        return time.monotonic() - began_s
