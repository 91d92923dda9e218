"""Estimates, before a job runs, the most it can cost: from its limits, and within its caps."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from cellblock.errors import PolicyDenied
from cellblock_config import LevelName
from cellblock_config.prices import Prices, Rates


class Charge(BaseModel):
    """How a run is charged, fixed when it is admitted: later prices do not change it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rates: Rates
    cap_micros: int = Field(ge=0, description="At most this is taken, for all its attempts together.")
    cap: str = Field("", description="Name of the bound that the cap is; empty: its limits bound the cost.")

    def reached(self) -> str:
        """The message for a job that has cost as much as its cap: which cap, and how much."""
        name = self.cap or "the most that its limits can cost"
        return f"Cost cap reached: {self.cap_micros} micros ({name}), with its nested runs"


class Estimate(BaseModel):
    """The most a job can cost, and what is reserved for it, in millionths of the unit of account."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    worst_micros: int = Field(description="Its cost if it uses every limit in every run.")
    least_micros: int = Field(description="If it ends at once.")
    reserve_micros: int = Field(description="What is held for it: the worst, or its cap if that is less.")
    cap: str | None = Field(None, description="Name of the cap that is less than the worst.")
    unit: str
    prices: str = Field(description="Where the prices are from.")
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class CostFactors:
    """The facts about a job that its cost depends on."""

    level: LevelName
    timeout_s: float
    cpus: float
    memory_bytes: int
    runs: int  #: including its retries
    nested_micros: int = 0  #: for runs nested in it


def estimate(bounds: CostFactors, prices: Prices, *caps: tuple[str, int | None]) -> Estimate:
    """The most a job within these bounds can cost. ``caps``: pairs (field, micros) that bound it.

    Raises :class:`PolicyDenied` naming the cap that not even the shortest run fits into.
    """
    rates = prices.table.rates(bounds.level)
    # cpu_s bounds each process; only the quota (cpus) bounds all of them together.
    cpu_ms = round(1000 * bounds.timeout_s * bounds.cpus)
    wall_ms = round(1000 * bounds.timeout_s)
    one = rates.cost_micros(cpu_ms=cpu_ms, wall_ms=wall_ms, memory_bytes=bounds.memory_bytes)
    least = rates.cost_micros(cpu_ms=0, wall_ms=0, memory_bytes=0)
    reserve = worst = bounds.runs * one + bounds.nested_micros
    name = None
    for field, cap in caps:
        if cap is None:
            continue
        if cap < least:
            raise PolicyDenied(
                field, f"{cap} micros, and a run costs at least {least} ({prices.source}); it has to be more"
            )
        if cap < reserve:
            reserve, name = cap, field
    return Estimate(
        worst_micros=worst,
        least_micros=least,
        reserve_micros=reserve,
        cap=name,
        unit=prices.table.unit,
        prices=prices.source,
        warning=prices.warning,
    )
