"""Which plan a job is on, and whether what it asks for is within it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cellblock.errors import PolicyDenied
from cellblock.models import JobSpec, Limits
from cellblock_config import LEVELS, Settings
from cellblock_config.levels import MIB
from cellblock_config.plans import Modifier, Override, Plan, PlanBook, PlansError, load_plans
from cellblock_config.prices import Prices, load_prices

_log = logging.getLogger(__name__)

#: How often a file of plans is looked at.
_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Entitled:
    """What one job may: its plan under its role and its tenant's stake."""

    name: str
    plan: Plan
    prices: Prices

    def held(self, spec: JobSpec) -> Limits:
        """The job's limits, with the plan's where it asked for none. Raises :class:`PolicyDenied`."""
        self._check("level", spec.level, self.plan.levels)
        if spec.image is not None and "*" not in self.plan.images:
            self._check("image", spec.image, self.plan.images)
        default = LEVELS[spec.level]
        held: dict[str, float] = {}
        for field, allowed in (
            ("timeout_s", self.plan.timeout_s),
            ("cpus", self.plan.cpus),
            ("memory_bytes", self.plan.memory_bytes),
        ):
            asked = getattr(spec.limits, field)
            if asked is not None and asked > allowed:
                raise PolicyDenied(
                    f"limits.{field}",
                    f"{_shown(field, asked)} is asked; plan {self.name!r} allows {_shown(field, allowed)}",
                )
            held[field] = asked if asked is not None else min(getattr(default, field), allowed)
        return spec.limits.model_copy(update=held)

    def _check(self, field: str, asked: str, allowed: tuple[str, ...]) -> None:
        if asked not in allowed:
            raise PolicyDenied(field, f"{asked!r} is asked; plan {self.name!r} allows {', '.join(allowed)}")


class PlanFile:
    """The plans of a fleet, read again when their file changes. Thread-safe.

    A file that has become invalid changes nothing: the plans before stay in force, and the log says why.
    """

    def __init__(
        self, settings: Settings, overrides: Callable[[str], Override] = lambda tenant: Override()
    ) -> None:
        """``overrides``: what was set at run time for a tenant.

        Raises :class:`PlansError`, :class:`PricesError`: nothing is in force yet that could stay.
        """
        self._overrides = overrides
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
        """What runs cost: read once, so that two estimates of one process agree."""
        return self._prices

    def entitled(self, spec: JobSpec) -> Entitled | None:
        """The plan of this job; None if neither it, its tenant nor the settings name one.

        Raises :class:`PolicyDenied` for a plan or a role that there is not, or that is not the tenant's.
        """
        book = self.book
        tenant = book.tenants.get(spec.tenant)
        if tenant is not None and spec.plan not in {None, tenant.plan}:
            raise PolicyDenied(
                "plan", f"{spec.plan!r} is asked; tenant {spec.tenant!r} is on {tenant.plan!r}"
            )
        name = tenant.plan if tenant is not None else spec.plan or self._default
        if name is None:
            if spec.role is not None:
                raise PolicyDenied("role", f"{spec.role!r} is asked, of no plan; name the plan too")
            return None
        if name not in book.plans:
            raise PolicyDenied("plan", f"there is no plan {name!r}; this fleet has {', '.join(book.plans)}")
        if spec.role is not None and spec.role not in book.roles:
            known = ", ".join(book.roles) or "none"
            raise PolicyDenied("role", f"there is no role {spec.role!r}; this fleet has {known}")
        role = book.roles[spec.role] if spec.role is not None else Modifier()
        stake = book.band(tenant.stake if tenant is not None else 0)
        plan = book.plans[name].modified(role, stake)
        for governed in (book.overrides(spec.tenant), self._overrides(spec.tenant)):
            plan = governed.applied(plan)
        return Entitled(name, plan, self.prices)


def _shown(field: str, value: float) -> str:
    return f"{value:.0f} ({value / MIB:g}M)" if field == "memory_bytes" else f"{value:g}"


def _stamp(file: Path | None) -> tuple[int, int, int] | None:
    """Changes whenever the file does, also when another is put in its place; None if there is none."""
    try:
        found = file.stat() if file is not None else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if found else None
