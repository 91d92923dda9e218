"""Nested runs: a job that a running job asks for gets no more than its parent has left."""

from __future__ import annotations

from dataclasses import dataclass

from cellblock.admission import Manifest
from cellblock.errors import PolicyDenied
from cellblock.models import JobSpec
from cellblock.plans import amount
from cellblock_config import LEVELS, LevelName

#: Of a parent, at least this much time has to be left.
_LEAST_S = 0.1
_BOUNDED = ("timeout_s", "cpu_s", "memory_bytes", "cpus", "pids", "output_bytes")


@dataclass(frozen=True, slots=True)
class Parent:
    """A running job under which another is to run.

    ``left_s``: until its own time is over. ``left_micros``: of what it may cost, what nobody else was lent.
    """

    job_id: str
    manifest: Manifest
    left_s: float
    left_micros: int

    def narrowed(self, spec: JobSpec, depth_max: int) -> JobSpec:
        """The nested job as its parent lets it be: of its tenant and plan, within its limits and its time.

        What the spec leaves open is what it would be by itself, or the parent's where that is less. Raises
        :class:`PolicyDenied` naming field, asked and allowed.
        """
        above = self.manifest
        if "tenant" in spec.model_fields_set and spec.tenant != above.tenant:
            raise no_parent(self.job_id, spec.tenant)
        if above.depth + 1 > depth_max:
            raise PolicyDenied(
                "parent",
                f"{self.job_id} is nested {above.depth} deep itself, and {depth_max} is the most "
                "(CELLBLOCK_POLICY_MAX_RECURSION_DEPTH)",
            )
        if self.left_s < _LEAST_S:
            raise PolicyDenied("parent", f"the time of {self.job_id} is over")
        if spec.plan not in {None, above.plan}:
            raise PolicyDenied("plan", f"{spec.plan!r} is asked; its parent runs on {above.plan!r}")
        spec = spec.model_copy(update={"level": self._level(spec)})
        return spec.model_copy(
            update={
                "tenant": above.tenant,
                "plan": above.plan,
                "limits": spec.limits.model_copy(update=self._limits(spec)),
                "expires_s": min(spec.expires_s or self.left_s, self.left_s),
                "traceparent": spec.traceparent or f"00-{above.trace_id}-{self.job_id[:16]}-01",
            }
        )

    def _level(self, spec: JobSpec) -> LevelName:
        levels = list(LEVELS)  # from the weakest on
        above = self.manifest.level
        if levels.index(spec.level) >= levels.index(above):
            return spec.level
        if "level" in spec.model_fields_set:
            raise PolicyDenied(
                "level", f"{spec.level!r} is asked; its parent runs at {above!r}: no weaker one"
            )
        return above

    def _limits(self, spec: JobSpec) -> dict[str, float]:
        default, held = LEVELS[spec.level], {}
        for field in _BOUNDED:
            allowed = getattr(self.manifest.limits, field)
            if field == "timeout_s":
                allowed = min(allowed, self.left_s)
            asked = getattr(spec.limits, field)
            if asked is not None and asked > allowed:
                raise PolicyDenied(
                    f"limits.{field}",
                    f"{amount(field, asked)} is asked; its parent has {amount(field, allowed)}",
                )
            # Without a word of its own a job may use as much processor time as its timeout lets it.
            if asked is None and (field == "cpu_s" or getattr(default, field) > allowed):
                held[field] = allowed
        return held

    def cost_cap(self, spec: JobSpec) -> int:
        """What the nested run may cost: what it names, else half of what is left.

        Raises :class:`PolicyDenied`.
        """
        asked = spec.max_cost_micros
        if asked is not None and asked > self.left_micros:
            raise PolicyDenied(
                "max_cost_micros", f"{asked} micros is asked; its parent has {self.left_micros} left"
            )
        return asked if asked is not None else self.left_micros // 2


def no_parent(job_id: str, tenant: str | None) -> PolicyDenied:
    """For one that never was, has ended, waits, or is somebody else's: nothing tells these apart."""
    whose = f" of tenant {tenant!r}" if tenant is not None else ""
    return PolicyDenied("parent", f"no job {job_id}{whose} is running")


def too_poor(left_micros: int) -> PolicyDenied:
    """For one whose parent has given its money to others meanwhile."""
    return PolicyDenied("parent", f"it has {left_micros} micros left, less than this run may cost")
