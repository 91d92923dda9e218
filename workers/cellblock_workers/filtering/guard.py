"""In a filter process: bounds one request by the kernel's clock of this process, and its memory."""

from __future__ import annotations

import gc
import math
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from cellblock.egress.withholding import OutOfBounds

T = TypeVar("T")

#: The share of the CPU time that is kept back for the work at the end.
_LAST_SHARE = 0.2
#: If a signal is lost, as in a finalizer, the next one follows after this many seconds.
_AGAIN_S = 0.05
#: Work that ignores the timer is ended by the kernel this many seconds later.
_GRACE_S = 2
#: A request that takes longer gets a lower priority than all short ones.
NICE_S, _NICE = 0.1, 5
_PAGE_BYTES = resource.getpagesize()


class _TimeIsUp(BaseException):
    """Not an Exception, so that no filtering code catches it."""


class ProcessGuard:
    """Bounds the CPU time and memory of pieces of work. Make one for each request, on the thread that
    works."""

    def __init__(self, cpu_s: float, memory_bytes: int, why_cpu: str) -> None:
        """``why_cpu``: the message for work that takes longer than ``cpu_s``."""
        self._began_s = time.process_time()
        self._cpu_s = cpu_s
        self._why_cpu = why_cpu
        self._memory_bytes = memory_bytes
        self._armed = self._nice = False
        self._until_s = 0.0
        self.exceeded = False  #: whether any piece was withheld
        signal.signal(signal.SIGPROF, self._on_time)
        _limit(resource.RLIMIT_CPU, math.ceil(self._began_s + cpu_s) + _GRACE_S)
        _limit(resource.RLIMIT_AS, address_space_bytes() + memory_bytes)

    @property
    def used_s(self) -> float:
        """The CPU time so far, in seconds."""
        return time.process_time() - self._began_s

    def run(self, work: Callable[[], T]) -> T:
        """Does a piece of work. Raises :class:`OutOfBounds`."""
        return self._run(work, (1 - _LAST_SHARE) * self._cpu_s)

    def run_last(self, work: Callable[[], T]) -> T:
        """Does the last piece, with the time that was kept back, even if ending another piece took some of
        it.

        Raises :class:`OutOfBounds`.
        """
        return self._run(work, max(self._cpu_s, self.used_s + _LAST_SHARE * self._cpu_s))

    def _run(self, work: Callable[[], T], until_s: float) -> T:
        left_s = until_s - self.used_s
        why = self._why_cpu
        if left_s > 0:
            try:
                return self._timed(work, left_s)
            except _TimeIsUp:
                self._disarm()
            except MemoryError:
                why = f"looking through it takes more than {self._memory_bytes} bytes of memory"
                why += " (egress.filter_memory_bytes); return less, or smaller files"
        gc.collect()
        self.exceeded = True
        raise OutOfBounds(why)

    def _timed(self, work: Callable[[], T], left_s: float) -> T:
        self._armed = True
        self._until_s = self.used_s + left_s
        signal.setitimer(signal.ITIMER_PROF, min(left_s, max(NICE_S - self.used_s, _AGAIN_S)), _AGAIN_S)
        try:
            return work()
        finally:
            self._disarm()

    def _disarm(self) -> None:
        self._armed = False
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _on_time(self, *_: object) -> None:
        if self._armed and self.used_s >= self._until_s:
            raise _TimeIsUp
        if not self._nice and self.used_s >= NICE_S:
            self._nice = True
            os.nice(_NICE)  # permanent: such a process is not used again


def unlimited() -> None:
    """Lifts the memory limit between two requests."""
    _limit(resource.RLIMIT_AS, resource.RLIM_INFINITY)


def address_space_bytes() -> int:
    """The address space that this process has taken, touched or not."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE_BYTES


def _limit(which: int, soft: int) -> None:
    """Sets the soft limit only, which can be raised again."""
    hard = resource.getrlimit(which)[1]
    resource.setrlimit(which, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
