"""The prices of runs: a table, from the user's own file where there is one."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, ValidationError

from cellblock_config.group import SettingsGroup
from cellblock_config.levels import LevelName
from cellblock_config.names import problem_of

#: Prices are held in millionths of a micro, so that the price of a second can be far below one micro.
_PICOS = 10**12
_PICOS_PER_MICRO = 10**6
_GIB = 1024**3
#: The highest price: a higher one is a mistake.
_MOST = 1000


def _picos(amount: object) -> int:
    if isinstance(amount, bool) or not isinstance(amount, int | float | Decimal):
        raise ValueError("must be an amount, such as 0.00002")
    exact = Decimal(str(amount)) * _PICOS
    if not exact.is_finite() or not 0 <= exact <= _MOST * _PICOS:
        raise ValueError(f"{amount} is not between 0 and {_MOST}")
    if exact != exact.to_integral_value():
        raise ValueError(f"{amount} has more than twelve places")
    return int(exact)


Price = Annotated[int, BeforeValidator(_picos)]


class Rates(SettingsGroup):
    """The prices of one level's runs, in trillionths of the unit of account, and the level's percentage."""

    per_run: int = Field(ge=0, description="For each run.")
    per_cpu_second: int = Field(ge=0, description="For each second of CPU time.")
    per_gib_second: int = Field(
        ge=0, description="For each second of wall-clock time and GiB of memory limit."
    )
    percent: int = Field(ge=1, description="What the level makes of the sum.")

    def cost_micros(self, *, cpu_ms: int, wall_ms: int, memory_bytes: int) -> int:
        """The cost of this use, rounded up to a whole micro.

        (per run + CPU seconds + wall seconds x GiB of memory) x the level's percent.
        """
        # One denominator for all three, so that nothing is rounded before the end.
        thousands = 1000 * _GIB
        picos = self.per_run * thousands + self.per_cpu_second * cpu_ms * _GIB
        picos += self.per_gib_second * wall_ms * memory_bytes
        return -(-picos * self.percent // (100 * thousands * _PICOS_PER_MICRO))

    def cpu_s_for(self, micros: int, *, cpu_ms: int, wall_ms: int, memory_bytes: int) -> float | None:
        """The CPU seconds that this money buys beyond the given use; None if CPU time is free."""
        if not self.per_cpu_second:
            return None
        used = self.cost_micros(cpu_ms=cpu_ms, wall_ms=wall_ms, memory_bytes=memory_bytes)
        return max(0, micros - used) * _PICOS_PER_MICRO * 100 / (self.per_cpu_second * self.percent)


class PriceTable(SettingsGroup):
    """Prices in the unit of account; the fields hold its trillionths."""

    unit: str = Field(min_length=1, max_length=16, description="Name of the unit of account, such as USD.")
    valid_until: date = Field(description="Last day of these prices; a warning follows it.")
    per_run: Price = Field(description="Price of each run.")
    per_cpu_second: Price = Field(description="Price of each second of CPU time.")
    per_gib_second: Price = Field(
        description="Price of each second of wall-clock time and GiB of memory limit."
    )
    level_percent: dict[LevelName, Annotated[int, Field(ge=1, le=100_000)]] = Field(
        default_factory=dict, description="By level, percent of the sum; 100 by default."
    )

    def rates(self, level: LevelName) -> Rates:
        """The prices of one level."""
        return Rates(
            per_run=self.per_run,
            per_cpu_second=self.per_cpu_second,
            per_gib_second=self.per_gib_second,
            percent=self.level_percent.get(level, 100),
        )


#: The source of the prices that cellblock ships with.
BUILT_IN = "built-in"


@dataclass(frozen=True, slots=True)
class Prices:
    """A table of prices. ``source``: a file, or ``built-in``. ``warning``: says that it is out
    of date; None if it is not."""

    table: PriceTable
    source: str
    warning: str | None


class PricesError(ValueError):
    """A file of prices that cannot be used: names file, key and reason."""


def default_file() -> Path:
    """The path of a user's own prices: pricing.json in the user's configuration directory."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "cellblock" / "pricing.json"


def load_prices(file: Path | None = None, *, today: date | None = None) -> Prices:
    """The prices of this file, else of the user's own file, else those that cellblock ships with.

    Raises :class:`PricesError`, also if the named file is missing.
    """
    chosen = file or default_file()
    day = today or date.today()
    if file is None and not chosen.is_file():
        shipped = _table((resources.files(__package__) / "pricing.json").read_text(), BUILT_IN)
        late = (
            f"prices out of date: the built-in ones were valid until {shipped.valid_until}; put yours into "
        )
        return Prices(shipped, BUILT_IN, None if shipped.valid_until >= day else f"{late}{chosen}")
    try:
        text = chosen.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise PricesError(
            f"{chosen}: cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}"
        ) from None
    table = _table(text, str(chosen))
    if table.valid_until >= day:
        return Prices(table, str(chosen), None)
    late = f"prices out of date: {chosen} was valid until {table.valid_until}"
    return Prices(table, str(chosen), late)


def _table(text: str, name: str) -> PriceTable:
    try:
        return PriceTable.model_validate(json.loads(text, parse_float=Decimal))
    except json.JSONDecodeError as error:
        raise PricesError(f"{name}: not JSON: {error}") from None
    except RecursionError:
        raise PricesError(f"{name}: not JSON of prices: too deep") from None
    except ValidationError as error:
        wrong = [
            f"{name}: {'.'.join(map(str, one['loc']))}: "
            + ("there is no such key" if one["type"] == "extra_forbidden" else problem_of(one))
            for one in error.errors()
        ]
        raise PricesError("; ".join(wrong).replace(": : ", ": ")) from None
    except (ValueError, OverflowError) as error:  # numbers beyond Python's limits
        raise PricesError(f"{name}: cannot be used: {type(error).__name__}") from None
