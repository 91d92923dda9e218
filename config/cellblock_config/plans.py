"""Plans: what each tenant may use, from a file that operators edit. Money is in micros."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from cellblock_config.group import SettingsGroup
from cellblock_config.levels import LevelName
from cellblock_config.names import NAME, problem_of

MICROS = 1_000_000
#: With this bound, the sums of a day stay exact in Redis' doubles.
COST_MOST_MICROS = 10**12
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG])(?:i?B)?", re.IGNORECASE)
_FACTOR = {"K": 1024, "M": 1024**2, "G": 1024**3}


def _micros(amount: object) -> int:
    """An amount of the unit of account, as written in the file, in micros. Raises ValueError if inexact."""
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        raise ValueError("must be an amount, such as 0.02")
    exact = Decimal(str(amount)) * MICROS
    if not exact.is_finite() or exact != exact.to_integral_value():
        raise ValueError(f"{amount} is not a whole number of millionths")
    return int(exact)


def _bytes(size: object) -> object:
    """``256M`` as bytes; whole numbers as they are."""
    if isinstance(size, str):
        match = _SIZE.fullmatch(size.strip())
        if match is None:
            raise ValueError(f"{size!r} is not a size, such as 256M")
        return int(float(match[1]) * _FACTOR[match[2].upper()])
    return size


Cost = Annotated[int, BeforeValidator(_micros), Field(ge=0, le=COST_MOST_MICROS)]
Size = Annotated[int, BeforeValidator(_bytes), Field(ge=16 * 1024**2, le=1024**4, strict=True)]
Bytes = Annotated[int, BeforeValidator(_bytes), Field(ge=1024**2, le=1024**4, strict=True)]
#: The lowest rate: one run in 28 hours. The ledger counts it in microseconds.
_RATE_LEAST = 0.00001
Percent = Annotated[int, Field(ge=1, le=10_000, strict=True)]
Parallel = Annotated[int, Field(ge=1, le=10_000, strict=True)]
Timeout = Annotated[float, Field(gt=0, le=86_400, strict=True)]
Cpus = Annotated[float, Field(gt=0, le=64, strict=True)]
RunsPerDay = Annotated[int, Field(ge=1, le=10**9, strict=True)]
Stake = Annotated[int, Field(ge=0, strict=True)]
Name = Annotated[str, Field(pattern=NAME)]
NameOrAll = Annotated[str, Field(pattern=rf"^\*$|{NAME}")]


class Modifier(SettingsGroup):
    """The percentages by which a role or a stake changes a plan's limits."""

    parallel_percent: Percent = Field(100, description="Percent of the plan's parallel runs.")
    rate_percent: Percent = Field(100, description="Percent of the plan's rate.")
    timeout_percent: Percent = Field(100, description="Percent of the plan's wall-clock limit.")
    cpus_percent: Percent = Field(100, description="Percent of the plan's processors.")
    memory_percent: Percent = Field(100, description="Percent of the plan's memory.")
    cost_percent: Percent = Field(100, description="Percent of the plan's money, for a run and for a day.")


class StakeBand(Modifier):
    """The modifier for stakes from this value on."""

    at_least: Stake


class Plan(SettingsGroup):
    """One plan. ``…_most`` is how far modifiers can raise a limit; without it they can only lower it.

    The rate has no such bound: modifiers always multiply it.
    """

    parallel: Parallel = Field(description="Jobs of one tenant that run at once.")
    parallel_most: Parallel | None = Field(None, description="How far a role or a stake may raise parallel.")
    rate_per_s: float = Field(
        ge=_RATE_LEAST,
        le=10_000,
        strict=True,
        description="Jobs that one tenant may submit each second, on average.",
    )
    burst: int = Field(
        ge=1, le=1_000_000, strict=True, description="Jobs that it may submit at once before the rate counts."
    )
    runs_per_day: RunsPerDay = Field(description="Jobs that it may submit in a day (UTC).")
    queue_depth: int = Field(ge=1, le=10**7, strict=True, description="Jobs of one tenant that may wait.")
    timeout_s: Timeout = Field(description="Wall-clock seconds that a job may ask for.")
    timeout_most_s: Timeout | None = Field(None, description="How far a role or a stake may raise timeout_s.")
    cpus: Cpus = Field(description="Processors that a job may ask for.")
    cpus_most: Cpus | None = Field(None, description="How far a role or a stake may raise cpus.")
    memory_bytes: Size = Field(alias="memory", description="Memory that a job may ask for, such as 256M.")
    memory_most_bytes: Size | None = Field(
        None, alias="memory_most", description="How far a role or a stake may raise memory."
    )
    levels: tuple[LevelName, ...] = Field(
        min_length=1, description="Isolation levels that a job may ask for."
    )
    images: tuple[str, ...] = Field(min_length=1, description="Names from sandbox.images; * for all.")
    cost_per_run_micros: Cost = Field(
        alias="cost_per_run", description="What one job may cost, in the unit of account."
    )
    cost_per_day_micros: Cost = Field(
        alias="cost_per_day",
        description="What all jobs of one tenant may cost in a day (UTC), in the unit of account.",
    )
    result_ttl_s: int = Field(
        ge=10, le=30 * 86_400, strict=True, description="How long results are kept, of jobs that failed too."
    )
    bytes_held: Bytes | None = Field(
        None, description="What its tenant's jobs may take of the store's memory, waiting, running and ended."
    )
    bytes_stored: Bytes | None = Field(
        None,
        description="What its tenant's jobs may take of the blob store, and their outputs of the archive; "
        "there the oldest leave first.",
    )
    weight: int = Field(ge=1, le=1000, strict=True, description="Its share of the fleet beside other plans.")

    @model_validator(mode="after")
    def _limits_agree(self) -> Self:
        for usual, most in (
            ("parallel", "parallel_most"),
            ("timeout_s", "timeout_most_s"),
            ("cpus", "cpus_most"),
            ("memory_bytes", "memory_most_bytes"),
        ):
            ceiling = getattr(self, most)
            if ceiling is not None and ceiling < getattr(self, usual):
                raise ValueError(f"{most} ({ceiling:g}) is below {usual} ({getattr(self, usual):g})")
        if self.cost_per_run_micros > self.cost_per_day_micros:
            raise ValueError("cost_per_run is above cost_per_day: no run could ever be reserved")
        return self

    def modified(self, *modifiers: Modifier) -> Plan:
        """The plan under a role and a stake: each limit times all percentages, within the plan's bounds."""

        def scaled(usual: float, percent: str, most: float | None) -> float:
            value = usual
            for one in modifiers:
                value = value * getattr(one, percent) / 100
            return min(value, max(usual, most or 0))

        cost = [
            int(scaled(c, "cost_percent", None)) for c in (self.cost_per_run_micros, self.cost_per_day_micros)
        ]
        return self.model_copy(
            update={
                "parallel": max(1, int(scaled(self.parallel, "parallel_percent", self.parallel_most))),
                "rate_per_s": max(_RATE_LEAST, self.rate_per_s * _product(modifiers, "rate_percent")),
                "timeout_s": scaled(self.timeout_s, "timeout_percent", self.timeout_most_s),
                "cpus": scaled(self.cpus, "cpus_percent", self.cpus_most),
                "memory_bytes": int(scaled(self.memory_bytes, "memory_percent", self.memory_most_bytes)),
                "cost_per_run_micros": cost[0],
                "cost_per_day_micros": cost[1],
            }
        )


#: Stands for all tenants, in place of a tenant's name.
EVERYBODY = "*"


class Override(SettingsGroup):
    """Values of governance that replace those of a plan; the other values stay the plan's."""

    parallel: Parallel | None = Field(None, description="Jobs of the tenant that run at once.")
    timeout_s: Timeout | None = Field(None, description="Wall-clock seconds that a job may ask for.")
    runs_per_day: RunsPerDay | None = Field(
        None, description="Jobs that the tenant may submit in a day (UTC)."
    )
    cost_per_run_micros: Cost | None = Field(
        None, alias="cost_per_run", description="What one job may cost, in the unit of account."
    )
    cost_per_day_micros: Cost | None = Field(
        None,
        alias="cost_per_day",
        description="What all jobs of the tenant may cost in a day (UTC), in the unit of account.",
    )

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of its keys in files and on the command line."""
        return tuple(field.alias or name for name, field in cls.model_fields.items())

    def applied(self, plan: Plan) -> Plan:
        """The plan with these values; a role or a stake cannot raise them."""
        said = self.model_dump(exclude_none=True)
        ceilings = {"parallel": "parallel_most", "timeout_s": "timeout_most_s"}
        return plan.model_copy(update=said | {ceilings[key]: None for key in ceilings if key in said})


def override_from(given: Mapping[str, object]) -> Override:
    """The override with these values. Raises pydantic's ValidationError."""
    return Override.model_validate(given)


class Tenant(SettingsGroup):
    """A tenant's entry in the file of plans."""

    plan: str = Field(description="The tenant's plan, where a job names none.")
    stake: Stake = Field(0, description="The tenant's stake, which chooses a band of the stakes.")
    roles: tuple[str, ...] = Field((), description="Those that holders of its API keys may name.")


def _tenant(given: object) -> object:
    return {"plan": given} if isinstance(given, str) else given


class PlanBook(SettingsGroup):
    """All plans of a fleet, and the tenants on each."""

    plans: dict[Name, Plan] = Field(min_length=1, description="Every plan, by its name.")
    roles: dict[Name, Modifier] = Field(
        default_factory=dict, description="What each role makes of a plan's limits."
    )
    stake: tuple[StakeBand, ...] = Field((), description="What a tenant's stake makes of them, in bands.")
    governance: dict[NameOrAll, Override] = Field(
        default_factory=dict, description="By tenant; * for everybody."
    )
    tenants: dict[Name, Annotated[Tenant, BeforeValidator(_tenant)]] = Field(
        default_factory=dict, description="Plans and stakes of single tenants."
    )

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        for name, tenant in self.tenants.items():
            if tenant.plan not in self.plans:
                raise ValueError(
                    f"tenants.{name}: there is no plan {tenant.plan!r}, only {', '.join(self.plans)}"
                )
            if unknown := set(tenant.roles) - set(self.roles):
                raise ValueError(f"tenants.{name}: there is no role {sorted(unknown)[0]!r}")
        steps = [band.at_least for band in self.stake]
        if steps != sorted(set(steps)):
            raise ValueError("stake: the bands' at_least have to rise")
        return self

    def overrides(self, tenant: str) -> Override:
        """The file's overrides for this tenant: its own win over those for all tenants."""
        said = [self.governance.get(name, Override()) for name in (EVERYBODY, tenant)]
        both: dict[str, object] = {}
        for one in said:
            both |= one.model_dump(exclude_none=True)
        return Override.model_construct(**both)  # type: ignore[arg-type]

    def band(self, stake: int) -> Modifier:
        """The modifier for this stake: the highest band that it reaches."""
        reached = [band for band in self.stake if stake >= band.at_least]
        return reached[-1] if reached else Modifier()


class PlansError(ValueError):
    """A file of plans that cannot be used: names file, key and reason."""


def load_plans(file: Path | None = None) -> PlanBook:
    """The plans of a file; without one, those that cellblock ships with. Raises :class:`PlansError`."""
    try:
        text = (
            (resources.files(__package__) / "plans.toml").read_text()
            if file is None
            else file.read_text("utf-8-sig")
        )
        return PlanBook.model_validate(tomllib.loads(text))
    except ValidationError as error:
        raise PlansError("; ".join(f"{file}: {_in_words(one)}" for one in error.errors())) from None
    except (OSError, UnicodeDecodeError) as error:
        raise PlansError(
            f"{file}: cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise PlansError(f"{file}: not TOML: {error}") from None
    except (ValueError, OverflowError, RecursionError) as error:  # numbers or nesting beyond Python's limits
        raise PlansError(f"{file}: cannot be used: {type(error).__name__}") from None


def _in_words(error: Mapping[str, Any]) -> str:
    key = ".".join(str(part) for part in error["loc"] if part != "[key]")
    problem = problem_of(error)
    if error["type"] == "extra_forbidden":
        problem = "there is no such key"
    return f"{key}: {problem}" if key else problem


def _product(modifiers: tuple[Modifier, ...], percent: str) -> float:
    product = 1.0
    for one in modifiers:
        product = product * getattr(one, percent) / 100
    return product
