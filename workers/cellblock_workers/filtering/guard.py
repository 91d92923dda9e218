"""In a filter process: what one request may take, by the kernel's clock of this process and its memory."""

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

#: Of the CPU time so much is kept back for what comes at the end.
_LAST_SHARE = 0.2
#: Should a signal come to nothing, as in a finalizer, the next one follows.
_AGAIN_S = 0.05
#: What does not heed the timer is ended by the kernel so much later.
_GRACE_S = 2
#: What takes longer goes behind everything that is short.
NICE_S, _NICE = 0.1, 5
_PAGE_BYTES = resource.getpagesize()


class _TimeIsUp(BaseException):
    """No Exception: nothing that is filtered may catch it."""


class ProcessGuard:
    """Holds pieces to CPU time and memory. One for each request; signals go to the thread that makes it."""

    def __init__(self, cpu_s: float, memory_bytes: int, why_cpu: str) -> None:
        """``why_cpu``: what to say of what takes longer."""
        self._began_s = time.process_time()
        self._cpu_s = cpu_s
        self._why_cpu = why_cpu
        self._memory_bytes = memory_bytes
        self._armed = self._nice = False
        self._until_s = 0.0
        self.exceeded = False  #: whether anything was withheld
        signal.signal(signal.SIGPROF, self._on_time)
        _limit(resource.RLIMIT_CPU, math.ceil(self._began_s + cpu_s) + _GRACE_S)
        _limit(resource.RLIMIT_AS, address_space_bytes() + memory_bytes)

    @property
    def used_s(self) -> float:
        """CPU time so far."""
        return time.process_time() - self._began_s

    def run(self, work: Callable[[], T]) -> T:
        """Do the work. Raises :class:`OutOfBounds`."""
        return self._run(work, (1 - _LAST_SHARE) * self._cpu_s)

    def run_last(self, work: Callable[[], T]) -> T:
        """Do the last of it, with what was kept back, also if ending a piece took some of that.

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
            os.nice(_NICE)  # for good: such a process is used no more


def unlimited() -> None:
    """Between two requests."""
    _limit(resource.RLIMIT_AS, resource.RLIM_INFINITY)


def address_space_bytes() -> int:
    """What of it this process has taken, touched or not."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE_BYTES


def _limit(which: int, soft: int) -> None:
    """The soft limit alone can be raised again."""
    hard = resource.getrlimit(which)[1]
    resource.setrlimit(which, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
