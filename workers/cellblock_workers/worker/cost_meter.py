"""What a running job has cost so far, and when it has to be looked at again."""

from __future__ import annotations

import time
from collections.abc import Callable

from cellblock.admission.costs import Charge
from cellblock.admission.resolve import ResolvedLimits
from cellblock_workers.launcher.evidence import Evidence

#: A job that may be over its cap is looked at this often, in seconds; the promise is half a second.
_LOOK_LEAST_S = 0.2
#: A beat brings what was lent, once in this many seconds; looking more often changes nothing.
_LOOK_AT_LOANS_S = 1.0


class CostMeter:
    """Asks the kernel what the job has used, as seldom as its cap allows.

    Memory costs its peak for the whole time, so a job that takes all its memory late becomes dearer at once.
    A job that cannot reach its cap within its timeout even so is never looked at. What it took to start its
    sandbox is on its bill as far as its cap allows, and never ends it.
    """

    def __init__(
        self,
        charge: Charge,
        limits: ResolvedLimits,
        usage: Callable[[], Evidence],
        elsewhere_micros: Callable[[], int] = lambda: 0,
        busy_ms: Callable[[], int] | None = None,
    ) -> None:
        """``usage``: what the kernel says of the sandbox. ``elsewhere_micros``: the part of the cap that is
        not this run's, because earlier runs used it or nested runs hold it. ``busy_ms``: how long a sandbox
        that mostly waits was at work; without it, all the time since now counts.
        """
        self._charge = charge
        self._limits = limits
        self._usage = usage
        self._elsewhere_micros = elsewhere_micros
        self._busy_ms = busy_ms
        nothing = charge.rates.cost_micros(cpu_ms=0, wall_ms=0, memory_bytes=0)
        self._micros_per_s = max(1, self._worst(round(1000 * limits.cpus), 1000) - nothing)
        self._began = self._looked = time.monotonic()
        self._worst_micros = nothing

    @property
    def due_in_s(self) -> float:
        """Seconds until the job has to be looked at; 0 if that is now."""
        left_s = (self._cap_micros - self._worst_micros) / self._micros_per_s
        return max(0.0, self._looked + max(_LOOK_LEAST_S, left_s) - time.monotonic())

    @property
    def wake_in_s(self) -> float:
        """Seconds that the watcher may sleep: meanwhile a nested run may be lent some of the cap."""
        return min(self.due_in_s, _LOOK_AT_LOANS_S)

    def over(self) -> bool:
        """Looks at the job now. Returns whether it has reached its cap."""
        used = self._usage()
        self._looked = time.monotonic()
        cpu_ms = used.cpu_ms or 0
        wall_ms = self._busy_ms() if self._busy_ms else round(1000 * (self._looked - self._began))
        self._worst_micros = self._worst(cpu_ms, wall_ms)
        cost = self._charge.rates.cost_micros(
            cpu_ms=cpu_ms, wall_ms=wall_ms, memory_bytes=used.peak_memory_bytes or 0
        )
        return cost >= self._cap_micros

    @property
    def _cap_micros(self) -> int:
        return self._charge.cap_micros - self._elsewhere_micros()

    def _worst(self, cpu_ms: int, wall_ms: int) -> int:
        memory = self._limits.memory_bytes
        return self._charge.rates.cost_micros(cpu_ms=cpu_ms, wall_ms=wall_ms, memory_bytes=memory)
