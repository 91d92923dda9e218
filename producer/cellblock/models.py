"""The contract: what a job is, how it can end, and what comes back."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from cellblock.errors import InvalidJob
from cellblock_config import LevelName

PriorityClass = Literal["high", "normal", "low"]
PRIORITY_CLASSES: tuple[PriorityClass, ...] = ("high", "normal", "low")

_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}$"


class Outcome(StrEnum):
    """One cause for every end, the same word on every isolation."""

    OK = "ok"
    EXIT = "exit"  #: ended by itself with a non-zero exit code
    SIGNAL = "signal"  #: killed by a signal that was not ours
    WALL_TIMEOUT = "wall_timeout"
    CPU_TIMEOUT = "cpu_timeout"
    MEMORY = "memory"  #: the kernel killed it at its memory limit
    PIDS = "pids"  #: failed after the kernel refused it another process
    OUTPUT_LIMIT = "output_limit"
    CANCELLED = "cancelled"
    WORKER_LOST = "worker_lost"  #: every attempt lost its worker
    SANDBOX_ERROR = "sandbox_error"  #: our fault, not the job's


class JobState(StrEnum):
    """Where the ledger has a job; ARCHITECTURE.md draws the arrows."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether the job has ended."""
        return self not in {JobState.QUEUED, JobState.RUNNING}

    @classmethod
    def after(cls, outcome: Outcome) -> JobState:
        """The state a job ends in for this outcome."""
        if outcome is Outcome.OK:
            return cls.SUCCEEDED
        return cls.CANCELLED if outcome is Outcome.CANCELLED else cls.FAILED


class _Contract(BaseModel):
    # hide_input: a validation error may end up in a log, and its input is somebody's code.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)


class _Request(_Contract):
    """A model whose construction from bad input raises :class:`InvalidJob`, not pydantic's own error."""

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise InvalidJob.from_validation(error) from None

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """As pydantic's, raising :class:`InvalidJob`."""
        try:
            return super().model_validate(obj, **options)
        except ValidationError as error:
            raise InvalidJob.from_validation(error) from None

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """As pydantic's, raising :class:`InvalidJob`."""
        try:
            return super().model_validate_json(json_data, **options)
        except ValidationError as error:
            raise InvalidJob.from_validation(error) from None


class Limits(_Request):
    """What one run may use. What is left out comes from the level; the operator's settings bound the rest."""

    timeout_s: float | None = Field(None, gt=0, description="Wall-clock seconds.")
    cpu_s: float | None = Field(
        None, gt=0, description="CPU seconds of any one process; by default only the timeout counts."
    )
    memory_bytes: int | None = Field(None, gt=0, description="Everything the sandbox holds, tmpfs included.")
    cpus: float | None = Field(None, gt=0, description="Share of the host's cores.")
    pids: int | None = Field(None, gt=0, description="Processes and threads alive at once.")
    output_bytes: int | None = Field(None, gt=0, description="stdout and stderr together; more ends the job.")


def _as_bytes(value: object) -> object:
    return value.encode() if isinstance(value, str) else value


StdinBytes = Annotated[bytes, BeforeValidator(_as_bytes)]


class JobSpec(_Request):
    """One job: Python source and how to run it.

    Raises :class:`InvalidJob` naming field, value and bound. Bounds an operator sets (code size, limits,
    images) are checked by the client before anything is stored.
    """

    code: str = Field(strict=True, description="Python source, run as __main__.")
    args: tuple[Annotated[str, Field(strict=True)], ...] = Field((), max_length=256)
    stdin: StdinBytes = b""
    tenant: str = Field("default", pattern=_NAME)
    level: LevelName = "standard"
    image: str | None = Field(None, max_length=64, description="A name from sandbox.images.")
    limits: Limits = Limits()
    priority: PriorityClass = "normal"
    idempotency_key: str | None = Field(None, pattern=_NAME)
    traceparent: str | None = Field(None, description="W3C trace context of the caller.")

    @field_validator("code")
    @classmethod
    def _code_is_source(cls, code: str) -> str:
        if not code.strip():
            raise ValueError("is empty; give at least one statement")
        return _plain_text(code)

    @field_validator("args")
    @classmethod
    def _args_are_plain(cls, args: tuple[str, ...]) -> tuple[str, ...]:
        if sum(len(_plain_text(arg)) for arg in args) > 65_536:
            raise ValueError("all arguments together are longer than 65536 characters")
        return args

    @field_validator("traceparent")
    @classmethod
    def _traceparent_is_w3c(cls, traceparent: str | None) -> str | None:
        if traceparent is not None and not _TRACEPARENT.fullmatch(traceparent):
            raise ValueError("must be a W3C traceparent such as 00-<32 hex>-<16 hex>-01")
        return traceparent


def _plain_text(text: str) -> str:
    if "\0" in text:
        raise ValueError(f"holds a NUL character at offset {text.index(chr(0))}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"is not valid Unicode text: lone surrogate at offset {error.start}") from None
    return text


class JobError(_Contract):
    """Why a job did not end ``ok``. What the code raised, or the limit that stopped it."""

    type: str
    message: str
    traceback: str = ""


class Usage(_Contract):
    """What the run used, measured by the host's kernel where it can be (``evidence`` says by whom)."""

    wall_ms: int = 0
    cpu_ms: int = 0
    peak_memory_bytes: int = 0
    output_bytes: int = 0


class Timings(_Contract):
    """Unix seconds. ``submitted`` is the client's clock, the others are the store's."""

    submitted: float
    admitted: float
    started: float | None = None
    finished: float | None = None


class JobResult(_Contract):
    """How one job ended. User failures are data here, never exceptions."""

    job_id: str
    outcome: Outcome
    exit_code: int | None = Field(None, description="As a shell shows it: 128 + signal when killed.")
    signal: int | None = None
    stdout: str = ""
    stderr: str = ""
    error: JobError | None = None
    level: LevelName
    isolation: str | None = Field(None, description="What isolation really ran; none if nothing ran.")
    backend: str | None = Field(None, description="How that isolation was made.")
    usage: Usage = Usage()
    truncated: dict[str, int] = Field({}, description="Bytes left out of the middle, by stream.")
    evidence: dict[str, bool | int | float | str] = Field({}, description="What the outcome rests on.")
    attempt: int = 0
    timings: Timings
    worker: str | None = None
    trace_id: str

    @property
    def ok(self) -> bool:
        """Whether the code ran to its end with exit code 0."""
        return self.outcome is Outcome.OK


class JobStatus(_Contract):
    """A look at a job that may still be under way."""

    job_id: str
    state: JobState
    outcome: Outcome | None = None
    tenant: str
    attempt: int
    losses: int = Field(description="Attempts whose worker was lost.")
    cancel_requested: bool = False
    worker: str | None = None
    timings: Timings
    trace_id: str


EventType = Literal[
    "agent.run.queued",
    "agent.run.started",
    "agent.run.succeeded",
    "agent.run.failed",
    "agent.run.cancelled",
]


class Event(_Contract):
    """One entry of the event stream. Carries ids and the outcome, never code or output."""

    id: str = Field(description="Redis stream id; resume after it.")
    type: EventType
    job_id: str
    tenant: str
    at: float = Field(description="Unix seconds, the store's clock.")
    attempt: int
    outcome: Outcome | None = None
    worker: str | None = None
    trace_id: str

    @property
    def terminal(self) -> bool:
        """Whether the job ended with this event; every accepted job has exactly one such."""
        return self.type not in {"agent.run.queued", "agent.run.started"}

    @classmethod
    def from_fields(cls, stream_id: str, fields: dict[str, str]) -> Self:
        """Read one stream entry."""
        given: dict[str, Any] = {name: value for name, value in fields.items() if value != ""}
        given["at"] = int(given.pop("at_ms")) / 1000
        return cls(id=stream_id, **given)
