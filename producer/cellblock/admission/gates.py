"""The limits of a plan that the ledger checks and books in one step when it admits a job."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cellblock.errors import BudgetExceeded, RateLimited
from cellblock_config.plans import MICROS, Plan

_MICROS_PER_S = 1_000_000


@dataclass(frozen=True, slots=True)
class Gates:
    """The limits of one admission, by the tenant's plan as it is now. Money is in micros."""

    plan: str
    weight: int  #: the plan's share compared with other plans, when jobs of several wait
    parallel: int
    emission_us: int  #: the plan's rate: one run per this time
    burst: int
    runs_per_day: int
    queue_depth: int
    reserve_micros: int
    budget_micros: int
    result_ttl_s: int
    bytes_held: int = 0  #: the most its tenant's jobs may take of the store; 0: no limit
    bytes_stored: int = 0  #: the same of the blob store
    accrued_micros: int = 0  #: for a nested run: the most its parent's attempt can have cost by now

    @classmethod
    def of(cls, name: str, plan: Plan, reserve_micros: int, accrued_micros: int = 0) -> Gates:
        """The gates of a plan, for a run that can cost ``reserve_micros``."""
        return cls(
            plan=name,
            weight=plan.weight,
            parallel=plan.parallel,
            emission_us=max(1, round(_MICROS_PER_S / plan.rate_per_s)),
            burst=plan.burst,
            runs_per_day=plan.runs_per_day,
            queue_depth=plan.queue_depth,
            reserve_micros=reserve_micros,
            budget_micros=plan.cost_per_day_micros,
            result_ttl_s=plan.result_ttl_s,
            bytes_held=plan.bytes_held or 0,
            bytes_stored=plan.bytes_stored or 0,
            accrued_micros=accrued_micros,
        )

    @property
    def _interval_s(self) -> float:
        return self.emission_us / _MICROS_PER_S

    def arguments(self) -> dict[str, int | str]:
        """The arguments of the script ``admit``, by their names there."""
        return {
            "planned": 1,
            "plan": self.plan,
            "weight": self.weight,
            "parallel": self.parallel,
            "emission_us": self.emission_us,
            "burst": self.burst,
            "day_runs": self.runs_per_day,
            "depth": self.queue_depth,
            "reserve": self.reserve_micros,
            "budget": self.budget_micros,
            "result_ttl_s": self.result_ttl_s,
            "bytes_held": self.bytes_held,
            "bytes_stored": self.bytes_stored,
            "accrued": self.accrued_micros,
        }

    def refusal(
        self, tenant: str, limit: str, *, allowed: int, used: int, retry_after_ms: int, spent: int
    ) -> RateLimited:
        """The error for a refusal: which limit, its value, the present use, and when to try again."""
        whose = f"tenant {tenant!r}, plan {self.plan!r}"
        after_s = retry_after_ms / 1000
        says = {
            "queue_depth": f"{used} jobs wait and {allowed} may",
            "rate": f"one run each {self._interval_s:g} s and {allowed} at once are allowed, and used",
            "runs_per_day": f"{used} of {allowed} runs today (UTC)",
            "cost_per_day": (
                f"{spent / MICROS:g} spent and {(used - spent) / MICROS:g} held of {allowed / MICROS:g} "
                f"today (UTC), and this run may cost {self.reserve_micros / MICROS:g}"
            ),
        }
        kind = BudgetExceeded if limit == "cost_per_day" else RateLimited
        return kind(
            f"{limit}: {says[limit]} ({whose}); try again in {math.ceil(after_s)} s",
            retry_after_s=after_s,
            limit=limit,
            allowed=allowed,
            used=used,
        )


#: The arguments of the script ``admit`` for a job without a plan.
NO_GATES: dict[str, int | str] = {
    "planned": 0,
    "plan": "",
    "weight": 0,
    "parallel": 0,
    "emission_us": 0,
    "burst": 0,
    "day_runs": 0,
    "depth": 0,
    "reserve": 0,
    "budget": 0,
    "result_ttl_s": 0,
    "bytes_held": 0,
    "bytes_stored": 0,
    "accrued": 0,
}
