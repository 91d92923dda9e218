"""What all sandboxes have in common, in every way of making them."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from cellblock_workers.launcher.backend import Framing, Profile


@dataclass(slots=True, eq=False, kw_only=True)
class BaseSandbox(ABC):
    """The common part of every :class:`~cellblock_workers.launcher.backend.Sandbox`.

    Counts the CPU time of its job: what the sandbox has used since it was handed over.
    """

    id: str
    profile: Profile
    isolation: str
    backend: str
    stream: socket.socket
    framing: Framing = "raw"
    series: int = 0
    _cpu_ms_before: int = field(init=False, default=0)

    def hand_over(self) -> int:
        """Prepares the sandbox for its job, and starts to count the job's CPU time.

        Returns what the start took, in milliseconds of CPU time. Raises :class:`StartFailed`.
        """
        self._prepare()
        self._cpu_ms_before = self._total_cpu_ms() or 0
        return self._cpu_ms_before

    def pids_most(self) -> int | None:
        """None: its processes are not bounded together with those of other sandboxes."""
        return None

    def limit_pids(self, most: int) -> None:  # noqa: B027 - see pids_most
        """Does nothing."""

    def _job_cpu_ms(self) -> int | None:
        total_ms = self._total_cpu_ms()
        return None if total_ms is None else total_ms - self._cpu_ms_before

    def _prepare(self) -> None:  # noqa: B027 - most need nothing
        """Does what is left to do before the job comes. Raises :class:`StartFailed`."""

    @abstractmethod
    def _total_cpu_ms(self) -> int | None:
        """All CPU time that the sandbox has used; None if it cannot be known."""
