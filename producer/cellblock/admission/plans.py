"""Finds the plan of a job, and checks that the job's requests are within it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cellblock.admission.resolve import resolve_limits
from cellblock.contract.job_spec import JobSpec, Limits
from cellblock.errors import PolicyDenied
from cellblock_config import LEVELS, LevelName, Settings
from cellblock_config.levels import MIB
from cellblock_config.plans import Modifier, Override, Plan, PlanBook, PlansError, Tenant, load_plans
from cellblock_config.prices import Prices, load_prices

_log = logging.getLogger(__name__)

#: The file of plans is checked for changes at most once in this time.
_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Entitled:
    """What one job is allowed: its plan after governance, role and stake. ``whose``: the same in words."""

    name: str
    whose: str
    plan: Plan
    prices: Prices
    settings: Settings

    def granted(self, spec: JobSpec) -> JobSpec:
        """The job with the plan's values where it has none of its own. Raises :class:`PolicyDenied`."""
        level = self._level(spec)
        limits = spec.limits.model_copy(update=self._limits(spec, level))
        for field in ("max_cost_micros", "nested_cost_micros"):
            self._at_most(field, getattr(spec, field), self.plan.cost_per_run_micros)
        return spec.model_copy(update={"level": level, "image": self._image(spec), "limits": limits})

    def _level(self, spec: JobSpec) -> LevelName:
        if "level" in spec.model_fields_set:
            self._one_of("level", spec.level, self.plan.levels)
        if spec.level in self.plan.levels:
            return spec.level
        return max(self.plan.levels, key=list(LEVELS).index)  # it names no level: the plan's strictest

    def _image(self, spec: JobSpec) -> str:
        images = self.plan.images
        if spec.image is not None and "*" not in images:
            self._one_of("image", spec.image, images)
        default = self.settings.sandbox.default_image
        usual = default if {"*", default} & set(images) else images[0]
        return spec.image or usual

    def _limits(self, spec: JobSpec, level: LevelName) -> dict[str, float]:
        held: dict[str, float] = {}
        usual = resolve_limits(level, Limits(), self.settings)
        for field, allowed in (
            ("timeout_s", self.plan.timeout_s),
            ("cpus", self.plan.cpus),
            ("memory_bytes", self.plan.memory_bytes),
        ):
            asked = getattr(spec.limits, field)
            self._at_most(f"limits.{field}", asked, allowed)
            held[field] = asked if asked is not None else min(getattr(usual, field), allowed)
        return held

    def _at_most(self, field: str, asked: float | None, allowed: float) -> None:
        if asked is not None and asked > allowed:
            raise PolicyDenied(
                field, f"{amount(field, asked)} requested; {self.whose} allows {amount(field, allowed)}"
            )

    def _one_of(self, field: str, asked: str, allowed: tuple[str, ...]) -> None:
        if asked not in allowed:
            raise PolicyDenied(field, f"{asked!r} requested; {self.whose} allows {', '.join(allowed)}")


class PlanFile:
    """The plans of a fleet, read again when their file changes. Thread-safe.

    A file that becomes invalid changes nothing: the earlier plans stay in force, and the log says why.
    """

    def __init__(
        self, settings: Settings, overrides: Callable[[str], Override] = lambda tenant: Override()
    ) -> None:
        """``overrides``: a tenant's overrides, set at run time.

        Raises :class:`PlansError`, :class:`PricesError` for bad files: there are no earlier plans to keep.
        """
        self._overrides = overrides
        self._settings = settings
        self._file = settings.plans.file
        self._default = settings.plans.default
        self._stamp = _stamp(self._file)
        self._book = load_plans(self._file)
        self._prices = load_prices(settings.plans.prices)
        self._looked = time.monotonic()

    @property
    def book(self) -> PlanBook:
        """The plans in force."""
        now = time.monotonic()
        if self._file is not None and now - self._looked >= _LOOK_S:
            self._looked = now
            stamp = _stamp(self._file)
            if stamp != self._stamp:
                self._stamp = stamp
                try:
                    self._book = load_plans(self._file)
                    _log.info("plans read again from %s", self._file)
                except PlansError as error:
                    _log.error("plans not changed: %s", error)
        return self._book

    @property
    def prices(self) -> Prices:
        """The prices of runs. Read once, so that two estimates of one process agree."""
        return self._prices

    def entitled(self, spec: JobSpec, *, keyed: bool = False, nested: bool = False) -> Entitled | None:
        """The plan of this job; None if neither it, its tenant nor the settings name one.

        ``keyed``: an API key submits it, and its holder chooses neither plan nor role. ``nested``: it has its
        parent's plan, even if its tenant's plan has changed. Raises :class:`PolicyDenied` for a plan or a
        role that does not exist or is not the tenant's.
        """
        book = self.book
        tenant = book.tenants.get(spec.tenant)
        name = spec.plan if nested else self._name(spec, tenant, keyed=keyed)
        if keyed:
            _check_role(spec, tenant)
        if name is None:
            if spec.role is not None:
                raise PolicyDenied("role", f"{spec.role!r} requested without a plan; name the plan too")
            return None
        if name not in book.plans:
            whence = " (CELLBLOCK_PLANS_DEFAULT)" if name == self._default != spec.plan else ""
            known = ", ".join(book.plans)
            raise PolicyDenied("plan", f"there is no plan {name!r}{whence}; this fleet has {known}")
        if spec.role is not None and spec.role not in book.roles:
            known = ", ".join(book.roles) or "none"
            raise PolicyDenied("role", f"there is no role {spec.role!r}; this fleet has {known}")
        return self._entitled(name, spec, book, tenant.stake if tenant is not None else 0)

    def _name(self, spec: JobSpec, tenant: Tenant | None, *, keyed: bool) -> str | None:
        """The name of the job's plan, from its request and from who may choose one; None without a plan."""
        if tenant is not None:
            if spec.plan not in {None, tenant.plan}:
                raise PolicyDenied(
                    "plan", f"{spec.plan!r} requested; tenant {spec.tenant!r} is on {tenant.plan!r}"
                )
            return tenant.plan
        if keyed and spec.plan not in {None, self._default}:
            raise PolicyDenied(
                "plan",
                f"{spec.plan!r} requested with an API key; only [tenants] of the file of plans can give "
                f"it, and {spec.tenant!r} is not in there",
            )
        return spec.plan or self._default

    def _entitled(self, name: str, spec: JobSpec, book: PlanBook, stake: int) -> Entitled:
        # Governance comes first: a role can lower its values, and nothing can raise them.
        plan = book.plans[name]
        for governed in (book.overrides(spec.tenant), self._overrides(spec.tenant)):
            plan = governed.applied(plan)
        whose = f"plan {name!r}" + (" under governance" if plan != book.plans[name] else "")
        role = book.roles[spec.role] if spec.role is not None else Modifier()
        if spec.role is not None:
            whose += f" with role {spec.role!r}"
        modified = plan.modified(role, book.band(stake))
        return Entitled(name=name, whose=whose, plan=modified, prices=self.prices, settings=self._settings)


def _check_role(spec: JobSpec, tenant: Tenant | None) -> None:
    """Refuses a role that [tenants] does not give to this tenant's jobs when an API key submits them."""
    if spec.role is not None and (tenant is None or spec.role not in tenant.roles):
        allowed = ", ".join(tenant.roles) if tenant is not None and tenant.roles else "none"
        raise PolicyDenied("role", f"{spec.role!r} requested with an API key; its tenant may name {allowed}")


def amount(field: str, value: float) -> str:
    """A limit as text for messages: bytes also in mebibytes, money in micros."""
    if field.endswith("_bytes"):
        return f"{value:.0f} ({value / MIB:g}M)" if value >= MIB else f"{value:.0f}"
    return f"{value:.0f} micros" if field.endswith("_micros") else f"{value:g}"


def _stamp(file: Path | None) -> tuple[int, int, int] | None:
    """A value that changes with the file, also when another file replaces it; None without a file."""
    try:
        found = file.stat() if file is not None else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if found else None
