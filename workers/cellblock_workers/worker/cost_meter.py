"""What a running job has cost so far, and when it has to be looked at again."""

from __future__ import annotations

import time
from collections.abc import Callable

from cellblock.admission import ResolvedLimits
from cellblock.costs import Charge
from cellblock_workers.launcher.protocol import Reply

#: A job near its cap is looked at this often; the issue's bound is half a second.
_LOOK_LEAST_S = 0.1
#: What was lent is heard of with a beat; looking more often than that changes nothing.
_LENT_S = 1.0


class CostMeter:
    """Asks the kernel what the job has used, as seldom as its cap allows.

    Between two looks a job can spend no more than its limits let it: one that cannot reach its cap within its
    timeout is never looked at.
    """

    def __init__(
        self,
        charge: Charge,
        limits: ResolvedLimits,
        usage: Callable[[], Reply],
        lent_micros: Callable[[], int] = lambda: 0,
    ) -> None:
        """``usage``: the kernel's word on the sandbox. ``lent_micros``: what nested runs have of the cap."""
        self._charge = charge
        self._usage = usage
        self._lent_micros = lent_micros
        nothing = charge.rates.cost_micros(cpu_ms=0, wall_ms=0, memory_bytes=0)
        at_most = charge.rates.cost_micros(
            cpu_ms=round(1000 * limits.cpus), wall_ms=1000, memory_bytes=limits.memory_bytes
        )
        self._micros_per_s = max(1, at_most - nothing)
        self._began = self._looked = time.monotonic()
        self._spent = nothing

    @property
    def due_in_s(self) -> float:
        """How long until it has to be looked at; 0 if that is now."""
        return max(0.0, self._looked + self._pause_s() - time.monotonic())

    @property
    def wake_in_s(self) -> float:
        """How long its watcher may sleep: a nested run may be lent some of the cap meanwhile."""
        return min(self.due_in_s, _LENT_S)

    def over(self) -> bool:
        """Look. Whether the job has cost all it may."""
        used = self._usage()
        cost = self._charge.rates.cost_micros(
            cpu_ms=used.cpu_ms or 0,
            wall_ms=round(1000 * (time.monotonic() - self._began)),
            memory_bytes=used.peak_memory_bytes or 0,
        )
        self._looked, self._spent = time.monotonic(), cost
        return cost >= self._cap_micros

    @property
    def _cap_micros(self) -> int:
        return self._charge.cap_micros - self._lent_micros()

    def _pause_s(self) -> float:
        return max(_LOOK_LEAST_S, (self._cap_micros - self._spent) / self._micros_per_s)
