"""From what a caller asked to what will run: the operator's bounds, checked before anything is stored."""

from __future__ import annotations

import secrets
import time

from pydantic import BaseModel, ConfigDict

from cellblock.errors import InvalidJob
from cellblock.models import JobSpec, Limits, PriorityClass
from cellblock_config import LEVELS, LevelName, Settings


class ResolvedLimits(BaseModel):
    """Every limit of one run, none left open."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    timeout_s: float
    cpu_s: float
    memory_bytes: int
    cpus: float
    pids: int
    output_bytes: int


class Manifest(BaseModel):
    """What the ledger stores and a worker runs: a JobSpec with nothing left to decide."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        ser_json_bytes="base64",
        val_json_bytes="base64",
        hide_input_in_errors=True,
    )

    code: str
    args: tuple[str, ...]
    stdin: bytes
    tenant: str
    level: LevelName
    image: str
    limits: ResolvedLimits
    priority: PriorityClass
    trace_id: str
    submitted: float


def resolve(spec: JobSpec, settings: Settings) -> Manifest:
    """Fill in the level's defaults and hold every value to the operator's bounds.

    Raises :class:`InvalidJob` naming field, value and bound.
    """
    _check_size("code", len(spec.code.encode()), settings.ledger.code_bytes, "CELLBLOCK_LEDGER_CODE_BYTES")
    _check_size("stdin", len(spec.stdin), settings.ledger.stdin_bytes, "CELLBLOCK_LEDGER_STDIN_BYTES")
    image = spec.image or settings.sandbox.default_image
    if image not in settings.sandbox.images:
        known = ", ".join(sorted(settings.sandbox.images))
        raise InvalidJob("image", f"unknown image {image!r}; this fleet has {known}")
    return Manifest(
        code=spec.code,
        args=spec.args,
        stdin=spec.stdin,
        tenant=spec.tenant,
        level=spec.level,
        image=image,
        limits=resolve_limits(spec.level, spec.limits, settings),
        priority=spec.priority,
        trace_id=spec.traceparent.split("-")[1] if spec.traceparent else secrets.token_hex(16),
        submitted=time.time(),
    )


def resolve_limits(level: LevelName, asked: Limits, settings: Settings) -> ResolvedLimits:
    """The job's own limits where it named them, else its level's; each within the operator's bounds."""
    default, bounds = LEVELS[level], settings.sandbox
    timeout_s = asked.timeout_s or min(default.timeout_s, bounds.timeout_max_s)
    cpus = asked.cpus or min(default.cpus, bounds.cpus_max)
    limits = ResolvedLimits(
        timeout_s=timeout_s,
        # More than one process can burn within the timeout: the wall limit speaks first unless asked.
        cpu_s=asked.cpu_s or timeout_s + 1,
        memory_bytes=asked.memory_bytes
        or max(bounds.memory_min_bytes, min(default.memory_bytes, bounds.memory_max_bytes)),
        cpus=cpus,
        pids=asked.pids or min(default.pids, bounds.pids_max),
        output_bytes=asked.output_bytes or min(default.output_bytes, bounds.output_max_bytes),
    )
    _check_bound("timeout_s", limits.timeout_s, bounds.timeout_max_s)
    _check_bound("cpu_s", asked.cpu_s or 0, bounds.timeout_max_s)
    _check_bound("memory_bytes", limits.memory_bytes, bounds.memory_max_bytes, bounds.memory_min_bytes)
    _check_bound("cpus", limits.cpus, bounds.cpus_max, bounds.cpus_min)
    _check_bound("pids", limits.pids, bounds.pids_max)
    _check_bound("output_bytes", limits.output_bytes, bounds.output_max_bytes)
    return limits


def _check_size(field: str, size: int, bound: int, setting: str) -> None:
    if size > bound:
        raise InvalidJob(field, f"is {size} bytes; at most {bound} are accepted ({setting})")


def _check_bound(name: str, value: float, most: float, least: float = 0) -> None:
    if value > most:
        raise InvalidJob(f"limits.{name}", f"{value} is above the bound of {most}")
    if value < least:
        raise InvalidJob(f"limits.{name}", f"{value} is below the bound of {least}")
