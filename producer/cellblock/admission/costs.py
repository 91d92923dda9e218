"""What a job may cost, before it runs: estimated from its limits, and held to its caps."""

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


class Estimate(BaseModel):
    """What a job may cost at most, and what is reserved for it. In millionths of the unit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    worst_micros: int = Field(description="If it uses every limit it has, in each run it may have.")
    least_micros: int = Field(description="If it ends at once.")
    reserve_micros: int = Field(description="What is held for it: the worst, or its cap if that is less.")
    unit: str
    prices: str = Field(description="Where the prices are from.")
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class CostFactors:
    """What of a job its cost depends on."""

    level: LevelName
    timeout_s: float
    cpus: float
    memory_bytes: int
    runs: int  #: its own retries among them
    nested_micros: int = 0  #: for runs nested in it


def estimate(bounds: CostFactors, prices: Prices, *caps: tuple[str, int | None]) -> Estimate:
    """What a job within these bounds may cost. ``caps``: (field, micros) that hold it.

    Raises :class:`PolicyDenied` naming the cap that not even the shortest run fits into.
    """
    rates = prices.table.rates(bounds.level)
    # What one process may burn (cpu_s) says nothing of many: the quota does.
    cpu_ms = round(1000 * bounds.timeout_s * bounds.cpus)
    wall_ms = round(1000 * bounds.timeout_s)
    one = rates.cost_micros(cpu_ms=cpu_ms, wall_ms=wall_ms, memory_bytes=bounds.memory_bytes)
    least = rates.cost_micros(cpu_ms=0, wall_ms=0, memory_bytes=0)
    reserve = worst = bounds.runs * one + bounds.nested_micros
    for field, cap in caps:
        if cap is None:
            continue
        if cap < least:
            raise PolicyDenied(
                field, f"{cap} micros, and a run costs at least {least} ({prices.source}); it has to be more"
            )
        reserve = min(reserve, cap)
    return Estimate(
        worst_micros=worst,
        least_micros=least,
        reserve_micros=reserve,
        unit=prices.table.unit,
        prices=prices.source,
        warning=prices.warning,
    )
