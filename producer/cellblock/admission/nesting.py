"""Nested runs: a job that a running job asks for gets no more than its parent has left."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cellblock.admission.plans import amount
from cellblock.admission.resolve import Manifest, resolve_limits
from cellblock.contract.job_spec import JobSpec, Limits
from cellblock.errors import PolicyDenied
from cellblock_config import LEVELS, LevelName, Settings

#: A parent must have at least this much of its time left.
_LEAST_S = 0.1
_BOUNDED = ("timeout_s", "cpu_s", "memory_bytes", "cpus", "pids", "output_bytes")


@dataclass(frozen=True, slots=True)
class Parent:
    """A running job that asks for a nested run.

    ``ran_s``: how long its attempt has run. ``reserved_micros``: the part of its money that earlier attempts
    have not used and nested runs do not hold. ``unheard_s``: how long it can run until it hears of a loan.
    """

    job_id: str
    manifest: Manifest
    ran_s: float
    reserved_micros: int
    unheard_s: float = 0.0

    @property
    def left_s(self) -> float:
        """The seconds until its own timeout."""
        return self.manifest.limits.timeout_s - self.ran_s

    @property
    def accrued_micros(self) -> int:
        """The most that its attempt can have cost when it hears of a loan: this money it cannot lend."""
        limits, charge = self.manifest.limits, self.manifest.charge
        if charge is None:
            return 0
        ran_s = min(self.ran_s + self.unheard_s, limits.timeout_s)
        return charge.rates.cost_micros(
            cpu_ms=math.ceil(1000 * ran_s * limits.cpus),
            wall_ms=math.ceil(1000 * ran_s),
            memory_bytes=limits.memory_bytes,
        )

    @property
    def left_micros(self) -> int:
        """The micros that it can lend."""
        return max(0, self.reserved_micros - self.accrued_micros)

    def adopted(self, spec: JobSpec, settings: Settings) -> JobSpec:
        """The nested job with its parent's tenant and plan; it waits no longer than its parent runs.

        Raises :class:`PolicyDenied`.
        """
        above = self.manifest
        if "tenant" in spec.model_fields_set and spec.tenant != above.tenant:
            raise no_parent(self.job_id, spec.tenant)
        depth_max = settings.policy.max_recursion_depth
        if above.depth + 1 > depth_max:
            raise PolicyDenied(
                "parent",
                f"{self.job_id} is nested {above.depth} deep itself, and {depth_max} is the most "
                "(CELLBLOCK_POLICY_MAX_RECURSION_DEPTH)",
            )
        if self.left_s < _LEAST_S:
            raise PolicyDenied("parent", f"the time of {self.job_id} is over")
        if spec.plan not in {None, above.plan}:
            raise PolicyDenied("plan", f"{spec.plan!r} requested; its parent's plan is {above.plan!r}")
        if above.seal_to is not None and spec.context_path is not None:
            raise PolicyDenied(
                "context_path", f"{self.job_id} is confidential, and so is what is nested in it"
            )
        return spec.model_copy(
            update={
                "tenant": above.tenant,
                "plan": above.plan,
                "confidential": spec.confidential or above.seal_to is not None,
                "expires_s": min(spec.expires_s or settings.ledger.expires_s, self.left_s),
                "traceparent": spec.traceparent or f"00-{above.trace_id}-{self.job_id[:16]}-01",
            }
        )

    def narrowed(self, spec: JobSpec, asked: JobSpec, settings: Settings) -> JobSpec:
        """The nested job within its parent's limits and time.

        ``spec``: the job with its plan's values. ``asked``: the job as its caller wrote it; fields that it
        leaves open are lowered to the parent's. Raises :class:`PolicyDenied` naming field, asked and allowed.
        """
        level = self._level(spec, asked)
        usual = resolve_limits(level, Limits(), settings, of_trials=spec.evaluation is not None)
        held: dict[str, float] = {}
        for field in _BOUNDED:
            allowed, wanted = self._allowed(field), getattr(asked.limits, field)
            if wanted is not None and wanted > allowed:
                raise PolicyDenied(
                    f"limits.{field}",
                    f"{amount(field, wanted)} requested; its parent has {amount(field, allowed)}",
                )
            by_itself = getattr(spec.limits, field) or getattr(usual, field)
            if field == "cpu_s" and wanted is None:
                by_itself = held["timeout_s"] + 1  # as resolve_limits has it
            if by_itself > allowed or field == "timeout_s":
                held[field] = min(by_itself, allowed)
        return spec.model_copy(update={"level": level, "limits": spec.limits.model_copy(update=held)})

    def _allowed(self, field: str) -> float:
        allowed: float = getattr(self.manifest.limits, field)
        return min(allowed, self.left_s) if field == "timeout_s" else allowed

    def _level(self, spec: JobSpec, asked: JobSpec) -> LevelName:
        levels = list(LEVELS)  # from the weakest on
        above = self.manifest.level
        if levels.index(spec.level) >= levels.index(above):
            return spec.level
        if "level" in asked.model_fields_set:
            raise PolicyDenied(
                "level",
                f"{spec.level!r} requested; its parent runs at {above!r}, and no nested run is weaker",
            )
        return above

    def cost_cap(self, spec: JobSpec) -> int:
        """The most the nested run may cost, in micros: what it names, else half of what its parent has left.

        Raises :class:`PolicyDenied`.
        """
        asked = spec.max_cost_micros
        if asked is not None and asked > self.left_micros:
            raise PolicyDenied(
                "max_cost_micros", f"{asked} micros requested; its parent has {self.left_micros} left"
            )
        return asked if asked is not None else self.left_micros // 2


def no_parent(job_id: str, tenant: str | None) -> PolicyDenied:
    """The error for a parent that is unknown, has ended, waits, or is another tenant's: always one text."""
    whose = f" of tenant {tenant!r}" if tenant is not None else ""
    return PolicyDenied("parent", f"no job {job_id}{whose} is running")


def too_poor(left_micros: int) -> PolicyDenied:
    """The error for a nested run whose parent has lent its money to other nested runs meanwhile."""
    return PolicyDenied("parent", f"it has {left_micros} micros left, less than this run may cost")
