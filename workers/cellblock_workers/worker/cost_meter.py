"""What a running job has cost so far, and when it has to be looked at again."""

from __future__ import annotations

import time
from collections.abc import Callable

from cellblock.admission.costs import Charge
from cellblock.admission.resolve import ResolvedLimits
from cellblock_workers.launcher.evidence import Evidence

#: A job that may be over its cap is looked at this often; half a second is the promise.
_LOOK_LEAST_S = 0.2
#: What was lent is heard of with a beat; looking more often than that changes nothing.
_LENT_S = 1.0


class CostMeter:
    """Asks the kernel what the job has used, as seldom as its cap allows.

    Memory costs its peak for all the time there was, so a job that takes all it may late is dearer at once.
    One that cannot reach its cap within its timeout even so is never looked at. What its sandbox took to
    start is on its bill as far as its cap allows, and never ends it.
    """

    def __init__(
        self,
        charge: Charge,
        limits: ResolvedLimits,
        usage: Callable[[], Evidence],
        elsewhere_micros: Callable[[], int] = lambda: 0,
        busy_ms: Callable[[], int] | None = None,
    ) -> None:
        """``usage``: the kernel's word on the sandbox. ``elsewhere_micros``: what of the cap is not this
        run's, because earlier ones used it or nested runs have it. ``busy_ms``: of a sandbox that mostly
        waits, how long it was at work; else all the time since now.
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
        """How long until it has to be looked at; 0 if that is now."""
        left_s = (self._cap_micros - self._worst_micros) / self._micros_per_s
        return max(0.0, self._looked + max(_LOOK_LEAST_S, left_s) - time.monotonic())

    @property
    def wake_in_s(self) -> float:
        """How long its watcher may sleep: a nested run may be lent some of the cap meanwhile."""
        return min(self.due_in_s, _LENT_S)

    def over(self) -> bool:
        """Look. Whether the job has cost all it may."""
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
