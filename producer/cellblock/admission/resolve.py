"""Turns a JobSpec into the manifest that will run, within the operator's bounds; nothing is stored yet."""

from __future__ import annotations

import secrets
import time
from fnmatch import fnmatchcase

from pydantic import BaseModel, ConfigDict, Field

from cellblock.admission.costs import Charge
from cellblock.blobs import NAME as BLOB_NAME
from cellblock.contract.evaluations import Evaluation
from cellblock.contract.job_spec import JobSpec, Limits
from cellblock.contract.values import InputValue, encode_input
from cellblock.errors import InvalidJob
from cellblock_config import LEVELS, LedgerSettings, LevelName, PriorityClass, SandboxSettings, Settings
from cellblock_config.levels import MIB
from cellblock_config.signing import KEY_ID


class ResolvedLimits(BaseModel):
    """Every limit of one run, each with a value."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    timeout_s: float
    cpu_s: float
    memory_bytes: int
    cpus: float
    pids: int
    output_bytes: int


class Signature(BaseModel):
    """The signature of a manifest: base64, and the name of its key. Only signing.py makes and checks it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key_id: str = Field(pattern=KEY_ID)
    value: str = Field(max_length=1024)


class BlobRef(BaseModel):
    """A reference to a part of a job in the blob store."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=f"^{BLOB_NAME}$")
    size_bytes: int = Field(ge=0, le=64 * MIB)


class Manifest(BaseModel):
    """The job that the ledger stores and a worker runs: a JobSpec with every value decided."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        ser_json_bytes="base64",
        val_json_bytes="base64",
        hide_input_in_errors=True,
    )

    code: str | None
    files: dict[str, bytes]
    entrypoint: str | None
    args: tuple[str, ...]
    stdin: bytes
    env: dict[str, str]
    inputs: dict[str, InputValue]
    context_path: str | None
    artifacts: tuple[str, ...]
    tenant: str
    plan: str | None = None
    charge: Charge | None = None  #: only for jobs with a plan
    parent: str | None = None  #: only for nested runs, whose depth is at least 1
    depth: int = 0
    level: LevelName
    image: str
    limits: ResolvedLimits
    priority: PriorityClass
    expires_s: float
    retries: int
    trace_id: str
    submitted: float
    modules: tuple[str, ...] | None = None  #: modules it may import; None: everything in its image
    seal_to: str | None = None  #: only for confidential jobs: the public key to which the result is sealed
    evaluation: Evaluation | None = None  #: in place of a program
    blobs: dict[str, BlobRef] = {}  #: parts in the blob store, by name (claim_check.py)
    long_results: bool = False  #: whether its caller can fetch a result from the blob store
    payload: bytes | None = None  #: only for confidential jobs: what the author wrote, sealed (sealing.py)
    signature: Signature | None = None


def resolve(spec: JobSpec, settings: Settings) -> Manifest:
    """Fills in the level's defaults and checks every value against the operator's bounds.

    Raises :class:`InvalidJob` naming field, value and bound.
    """
    inputs = _inputs(spec)
    _check_payload(spec, inputs, settings.ledger)
    _check_environment(spec.env, settings.sandbox)
    image = spec.image or settings.sandbox.default_image
    if image not in settings.sandbox.images:
        known = ", ".join(sorted(settings.sandbox.images))
        raise InvalidJob("image", f"unknown image {image!r}; this fleet has {known}")
    limits = resolve_limits(spec.level, spec.limits, settings, of_trials=spec.evaluation is not None)
    least_bytes = settings.sandbox.image_memory_min_bytes.get(image, 0)
    if limits.memory_bytes < least_bytes:
        raise InvalidJob(
            "limits.memory_bytes",
            f"{limits.memory_bytes} is below the {least_bytes} ({least_bytes / MIB:g}M) that the image "
            f"{image!r} needs (CELLBLOCK_SANDBOX_IMAGE_MEMORY_MIN_BYTES)",
        )
    return Manifest(
        code=spec.code,
        files=dict(sorted(spec.files.items())),
        entrypoint=spec.entrypoint,
        args=spec.args,
        stdin=spec.stdin,
        env=dict(sorted(spec.env.items())),
        inputs=inputs,
        context_path=spec.context_path,
        artifacts=spec.artifacts,
        tenant=spec.tenant,
        level=spec.level,
        image=image,
        limits=limits,
        priority=spec.priority,
        expires_s=_expiry(spec, settings.ledger),
        retries=spec.retries,
        trace_id=spec.traceparent.split("-")[1] if spec.traceparent else secrets.token_hex(16),
        submitted=time.time(),
        modules=settings.sandbox.allowed_modules(spec.level),
        evaluation=spec.evaluation,
    )


def resolve_limits(
    level: LevelName, asked: Limits, settings: Settings, *, of_trials: bool = False
) -> ResolvedLimits:
    """The job's own limits where it named them, else its level's; each within the operator's bounds.

    ``of_trials``: the limits apply to each trial of an evaluation. Raises :class:`InvalidJob`.
    """
    bounds = settings.sandbox
    default = bounds.defaults_of(level)
    output_max = "trial_output_max_bytes" if of_trials else "output_max_bytes"
    timeout_s = asked.timeout_s or default.timeout_s
    limits = ResolvedLimits(
        timeout_s=timeout_s,
        # More than one process can burn within the timeout: the wall limit comes first, unless cpu_s is set.
        cpu_s=asked.cpu_s or timeout_s + 1,
        memory_bytes=asked.memory_bytes or default.memory_bytes,
        cpus=asked.cpus or default.cpus,
        pids=asked.pids or default.pids,
        output_bytes=asked.output_bytes or min(LEVELS[level].output_bytes, getattr(bounds, output_max)),
    )
    _check_bound("timeout_s", limits.timeout_s, bounds, "timeout_max_s")
    _check_bound("cpu_s", asked.cpu_s or 0, bounds, "timeout_max_s")
    _check_bound(
        name="memory_bytes",
        value=limits.memory_bytes,
        bounds=bounds,
        most="memory_max_bytes",
        least="memory_min_bytes",
    )
    _check_bound(name="cpus", value=limits.cpus, bounds=bounds, most="cpus_max", least="cpus_min")
    _check_bound("pids", limits.pids, bounds, "pids_max")
    _check_bound("output_bytes", limits.output_bytes, bounds, output_max)
    return limits


def _expiry(spec: JobSpec, bounds: LedgerSettings) -> float:
    if spec.expires_s is not None and spec.expires_s > bounds.expires_s:
        raise InvalidJob(
            "expires_s",
            f"{spec.expires_s:g} is above the bound of {bounds.expires_s:g} (CELLBLOCK_LEDGER_EXPIRES_S); "
            "ask for less",
        )
    return spec.expires_s or bounds.expires_s


def _inputs(spec: JobSpec) -> dict[str, InputValue]:
    if spec.reduced_context is None:
        return spec.inputs
    return {**spec.inputs, "ctx": encode_input("ctx", spec.reduced_context.model_dump(mode="json"))}


def _check_payload(spec: JobSpec, inputs: dict[str, InputValue], bounds: LedgerSettings) -> None:
    sizes = {
        "code": len((spec.code or "").encode()),
        "stdin": len(spec.stdin),
        "files": sum(len(name.encode()) + len(data) for name, data in spec.files.items()),
        "env": sum(len(name) + len(value.encode()) for name, value in spec.env.items()),
        "inputs": sum(len(given.data) for given in inputs.values()),
        "evaluation": spec.evaluation.size_bytes if spec.evaluation is not None else 0,
    }
    for field, size in sizes.items():
        bound = getattr(bounds, f"{field}_bytes")
        if size > bound:
            setting = f"CELLBLOCK_LEDGER_{field.upper()}_BYTES"
            raise InvalidJob(field, f"is {size} bytes; at most {bound} are accepted ({setting})")
    if len(spec.files) > bounds.files_count:
        raise InvalidJob(
            "files",
            f"are {len(spec.files)}; {bounds.files_count} at most are accepted "
            "(CELLBLOCK_LEDGER_FILES_COUNT)",
        )


def _check_environment(env: dict[str, str], bounds: SandboxSettings) -> None:
    for name in env:
        if not any(fnmatchcase(name, pattern) for pattern in bounds.env_allowed):
            raise InvalidJob(
                f"env.{name}", f"matches none of {list(bounds.env_allowed)} (CELLBLOCK_SANDBOX_ENV_ALLOWED)"
            )
        for pattern in bounds.env_refused:
            if fnmatchcase(name, pattern):
                raise InvalidJob(f"env.{name}", f"is refused by {pattern!r} (CELLBLOCK_SANDBOX_ENV_REFUSED)")


def _check_bound(
    name: str, value: float, bounds: SandboxSettings, most: str, least: str | None = None
) -> None:
    """Raises :class:`InvalidJob` for a value beyond the settings named ``most`` and ``least``."""
    shown = int(value) if isinstance(value, float) and value.is_integer() else value
    if value > getattr(bounds, most):
        above = f"{shown} is above the bound of {_bound(bounds, most)}; ask for less"
        raise InvalidJob(f"limits.{name}", above)
    if least is not None and value < getattr(bounds, least):
        below = f"{shown} is below the bound of {_bound(bounds, least)}; ask for more"
        raise InvalidJob(f"limits.{name}", below)


def _bound(bounds: SandboxSettings, setting: str) -> str:
    value, variable = getattr(bounds, setting), f"CELLBLOCK_SANDBOX_{setting}".upper()
    size = f"{value / MIB:g}M, " if setting.endswith("_bytes") else ""
    return f"{value} ({size}{variable})"
