"""The contract: what a job is, how it can end, and what comes back.

Over 400 lines, because it is one document: callers who submit jobs or read results find all of it here.
"""

from __future__ import annotations

import base64
import re
from datetime import date
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    field_serializer,
    field_validator,
    model_validator,
)

from cellblock.contract import paths
from cellblock.contract.base import CheckedModel, Contract
from cellblock.contract.evaluations import Evaluation, TrialResult
from cellblock.contract.outcomes import JobError as JobError
from cellblock.contract.outcomes import Outcome as Outcome
from cellblock.contract.outcomes import Usage as Usage
from cellblock.contract.values import InputValue, TableValue, encode_input, table_from_base64
from cellblock.errors import InvalidJob
from cellblock_config import LevelName
from cellblock_config.names import NAME
from cellblock_config.plans import COST_MOST_MICROS

PriorityClass = Literal["high", "normal", "low"]
PRIORITY_CLASSES: tuple[PriorityClass, ...] = ("high", "normal", "low")

#: Fields that a job with one program may have, and an evaluation must not have.
_NOT_OF_EVALUATIONS = (
    *("code", "files", "entrypoint", "args", "stdin", "inputs", "context_path", "artifacts"),
    *("confidential", "retries"),
)
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class JobState(StrEnum):
    """Where a job is in the ledger; ARCHITECTURE.md draws the transitions."""

    QUEUED = "queued"
    PARKED = "parked"  #: waits until its tenant has a free slot
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"

    @property
    def terminal(self) -> bool:
        """Whether the job has ended."""
        return self not in {JobState.QUEUED, JobState.PARKED, JobState.RUNNING}

    @classmethod
    def after(cls, outcome: Outcome) -> JobState:
        """The state a job ends in for this outcome."""
        if outcome is Outcome.OK:
            return cls.SUCCEEDED
        if outcome in {Outcome.CANCELLED, Outcome.REJECTED}:
            return cls(outcome.value)
        return cls.FAILED


class Limits(CheckedModel):
    """The limits of one run. The level gives values that are left out; the operator's settings bound all."""

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


FileBytes = Annotated[bytes, BeforeValidator(_as_bytes)]


class ReducedContext(CheckedModel):
    """What a confidential job gets as its variable ``ctx``, in place of its context as plain text."""

    summary: str = Field("", max_length=64 * 1024)
    embeddings: tuple[tuple[float, ...], ...] = Field((), max_length=4096)
    roles: tuple[Annotated[str, Field(max_length=256)], ...] = Field((), max_length=256)
    metadata: dict[str, str | int | float | bool] = Field({}, max_length=256)


class JobSpec(CheckedModel):
    """One job: Python source and how to run it.

    Either ``code``, with ``files`` beside it if it needs some, or ``files`` and the ``entrypoint`` among
    them. Raises :class:`InvalidJob` naming field, value and bound. Bounds an operator sets (sizes, limits,
    images, names of the environment) are checked by the client before anything is stored.
    """

    code: str | None = Field(None, strict=True, description="Python source, run as __main__.")
    evaluation: Evaluation | None = Field(
        None, description="In place of code: programs to judge, each in a sandbox of its own."
    )
    files: dict[str, FileBytes] = Field({}, description="Bytes by relative path, put into the work folder.")
    entrypoint: str | None = Field(None, description="Which of the files runs as __main__.")
    args: tuple[Annotated[str, Field(strict=True)], ...] = Field((), max_length=256)
    stdin: FileBytes = b""
    env: dict[str, str] = Field({}, description="Environment variables beside the sandbox's own.")
    inputs: dict[str, InputValue] = Field(
        {}, description="Global variables: plain values (JSON), a pyarrow.Table, a pandas.DataFrame."
    )
    context_path: str | None = Field(
        None, description="A file on the worker's host, readable in the job as ctx, never copied."
    )
    confidential: bool = Field(
        False,
        description="Its program is sealed to the fleet, its result to the tenant; no one else reads them.",
    )
    reduced_context: ReducedContext | None = Field(
        None, description="What a confidential job has as ctx: summary, embeddings, roles, metadata."
    )
    artifacts: tuple[str, ...] = Field(
        (),
        max_length=32,
        description="Globs of files to return, relative to the work folder; ** is any depth.",
    )
    tenant: str = Field("default", pattern=NAME)
    plan: str | None = Field(
        None,
        pattern=NAME,
        description="The tenant's plan; those of listed tenants are in the file of plans.",
    )
    role: str | None = Field(None, pattern=NAME, description="Whose run it is, within the plan.")
    max_cost_micros: int | None = Field(
        None, ge=1, le=COST_MOST_MICROS, description="Stop the job when it has cost this much; plans only."
    )
    nested_cost_micros: int = Field(
        0, ge=0, le=COST_MOST_MICROS, description="Held beside its own for runs nested in it; plans only."
    )
    level: LevelName = "standard"
    image: str | None = Field(None, max_length=64, description="A name from sandbox.images.")
    limits: Limits = Limits()
    priority: PriorityClass = "normal"
    expires_s: float | None = Field(
        None,
        gt=0,
        description="Not started within this many seconds, it is rejected; the fleet's by default.",
    )
    retries: int = Field(0, ge=0, le=10, description="How often to run again what the program itself failed.")
    idempotency_key: str | None = Field(None, pattern=NAME)
    parent: str | None = Field(
        None,
        pattern=r"^[0-9a-f]{32}$",
        description="The running job it is part of: it has its slot, its limits and its money.",
    )
    traceparent: str | None = Field(None, description="W3C trace context of the caller.")

    @field_validator("code")
    @classmethod
    def _code_is_source(cls, code: str | None) -> str | None:
        if code is None:
            return None
        if not code.strip():
            raise ValueError("is empty; give at least one statement")
        return _plain_text(code)

    @field_validator("inputs", mode="before")
    @classmethod
    def _inputs_are_encoded(cls, inputs: object) -> object:
        if not isinstance(inputs, dict):
            return inputs
        return {name: encode_input(str(name), value) for name, value in inputs.items()}

    @field_validator("inputs")
    @classmethod
    def _inputs_are_variables(cls, inputs: dict[str, InputValue]) -> dict[str, InputValue]:
        for name in inputs:
            paths.check_variable(name)
        return inputs

    @field_validator("env")
    @classmethod
    def _env_is_plain(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,127}", name):
                raise ValueError(f"{name!r:.80} is not a variable's name; letters, digits and _ are")
            try:
                _plain_text(value)
            except ValueError as error:
                raise InvalidJob(name, str(error)) from None
        return env

    @field_validator("files")
    @classmethod
    def _files_stay_inside(cls, files: dict[str, bytes]) -> dict[str, bytes]:
        paths.check_files(files)
        return files

    @field_validator("artifacts")
    @classmethod
    def _globs_stay_inside(cls, artifacts: tuple[str, ...]) -> tuple[str, ...]:
        for glob in artifacts:
            paths.check_relative(glob)
        return artifacts

    @field_validator("context_path")
    @classmethod
    def _context_is_absolute(cls, path: str | None) -> str | None:
        if path is not None:
            paths.check_absolute(path)
        return path

    @model_validator(mode="after")
    def _one_program(self) -> Self:
        if self.evaluation is not None:
            return self._evaluation_alone()
        if self.code is None and self.entrypoint is None:
            raise InvalidJob("code", "required, and missing; or give files and an entrypoint")
        if self.entrypoint is not None:
            if self.code is not None:
                raise InvalidJob("entrypoint", "there is code as well; give one of the two")
            if self.entrypoint not in self.files:
                raise InvalidJob("entrypoint", f"{self.entrypoint!r:.200} is not one of files")
        elif "main.py" in self.files:
            raise InvalidJob("files", "'main.py' is where code goes; rename it, or make it the entrypoint")
        return self

    def _evaluation_alone(self) -> Self:
        for field in _NOT_OF_EVALUATIONS:
            if getattr(self, field):
                raise InvalidJob(field, "belongs to a job that is one program; an evaluation has its own")
        return self

    @model_validator(mode="after")
    def _context_fits(self) -> Self:
        if self.confidential and self.context_path is not None:
            raise InvalidJob(
                "context_path", "a confidential job sees no plain context; give reduced_context instead"
            )
        if self.reduced_context is not None and not self.confidential:
            raise InvalidJob("reduced_context", "is for confidential jobs; set confidential, or give inputs")
        return self

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


class Timings(Contract):
    """Unix seconds. ``submitted`` is the client's clock, the others are the store's."""

    submitted: float
    admitted: float
    started: float | None = None
    finished: float | None = None


class Artifact(Contract):
    """One file the job left, with all its bytes. The path is relative; it is the job's choice."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    path: str
    data: bytes


class SkippedArtifact(Contract):
    """One file that was asked for and is not there, and why."""

    path: str
    reason: str


class RedactionCount(Contract):
    """How often the filter took out one kind of text from a job's output."""

    kind: str = Field(description="A secret's form, high_entropy, context_echo, hidden_reasoning, control.")
    stream: str = Field(description="stdout, stderr, value, error, artifacts, or all.")
    count: int


class ResultSummary(Contract):
    """The part of a confidential job's result that is not encrypted."""

    stdout_bytes: int
    stdout_lines: int
    stderr_bytes: int
    stderr_lines: int
    value: str | None = Field(None, description="Its kind and size, without a name or character of it.")
    artifacts: int
    artifacts_bytes: int


class JobResult(Contract):
    """How one job ended. User failures are data here, never exceptions.

    ``value`` is what the program claims to have computed: its variable ``result`` where it sets one, else
    its last expression. Plain Python for everything JSON can hold, a :class:`TableValue` for a table.
    """

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    job_id: str
    outcome: Outcome
    exit_code: int | None = Field(None, description="As a shell shows it: 128 + signal when killed.")
    signal: int | None = None
    stdout: str = ""
    stderr: str = ""
    value: Any = None
    value_kind: Literal["json", "table"] | None = Field(None, description="None: there is no value.")
    value_error: str | None = Field(None, description="Why a value the job had is not here.")
    error: JobError | None = None
    artifacts: tuple[Artifact, ...] = ()
    artifacts_skipped: tuple[SkippedArtifact, ...] = ()
    level: LevelName
    isolation: str | None = Field(None, description="What isolation really ran; none if nothing ran.")
    backend: str | None = Field(None, description="How that isolation was made.")
    trials: tuple[TrialResult, ...] = Field(
        (),
        description="Of an evaluation: what came of each program it came to. One that ended ok without some "
        "had been at work for long, and gave them back: they are to be asked for again.",
    )
    usage: Usage = Usage()
    cost_micros: int | None = Field(None, description="What was taken for it, of jobs with a plan.")
    redactions: tuple[RedactionCount, ...] = Field((), description="What was taken out, and where.")
    truncated: dict[str, int] = Field({}, description="Bytes left out of the middle, by stream.")
    evidence: dict[str, bool | int | float | str] = Field({}, description="What the outcome rests on.")
    attempt: int = 0
    timings: Timings
    worker: str | None = None
    trace_id: str
    summary: ResultSummary | None = Field(None, description="Only for confidential jobs.")
    sealed: bytes | None = Field(
        None, description="All that a confidential job said, for cellblock.open_result."
    )

    @model_validator(mode="after")
    def _value_fits_its_kind(self) -> Self:
        if (self.value_kind == "table") != isinstance(self.value, TableValue):
            raise ValueError("value and value_kind contradict each other")
        return self

    @model_validator(mode="before")
    @classmethod
    def _table_from_json(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and fields.get("value_kind") == "table":
            stored = fields.get("value")
            if isinstance(stored, str):
                return {**fields, "value": table_from_base64(stored)}
        return fields

    @field_serializer("value", when_used="json")
    def _table_to_json(self, value: Any) -> Any:
        return base64.b64encode(value.ipc).decode() if isinstance(value, TableValue) else value

    @property
    def ok(self) -> bool:
        """Whether the code ran to its end with exit code 0."""
        return self.outcome is Outcome.OK


class JobStatus(Contract):
    """The state of a job at one moment, whether or not it has ended."""

    job_id: str
    state: JobState
    outcome: Outcome | None = None
    tenant: str
    level: LevelName
    plan: str | None = None
    parent: str | None = Field(None, description="Only for a nested run.")
    attempt: int
    losses: int = Field(description="Attempts whose worker was lost.")
    reserved_micros: int | None = Field(None, description="What is held for it, of jobs with a plan.")
    cost_micros: int | None = Field(None, description="What was taken for it in the end.")
    cancel_requested: bool = False
    worker: str | None = None
    timings: Timings
    trace_id: str


class JobPage(Contract):
    """Jobs that have ended. ``cursor``: pass it to get the next page; None on the last page."""

    jobs: list[JobStatus]
    cursor: str | None = None


class Counts(Contract):
    """The numbers of jobs in each state at this moment, and the number of live workers."""

    waiting: int = Field(description="For a worker.")
    delayed: int = Field(description="For the end of the pause before a retry.")
    parked: dict[str, int] = Field(description="For a slot, by tenant.")
    running: int
    dead: int = Field(description="Dead letters.")
    workers: int
    store_percent: float | None = Field(
        None, description="How full the store is; None without a limit. From 85 on no job is admitted."
    )
    archive_behind_s: float | None = Field(
        None, description="How far the archiver is behind, or how long it is silent; None without one."
    )
    archive_problem: str | None = Field(None, description="What the archiver waits for.")


class DayUsage(Contract):
    """What one tenant with a plan used on one day (UTC). Money is in millionths of the unit of account."""

    tenant: str
    day: date
    runs: int = Field(description="Admitted.")
    spent_micros: int = Field(description="Taken for runs that have ended; counted on the day of admission.")
    reserved_micros: int = Field(description="Held for runs that have not.")


class PastAttempt(Contract):
    """An attempt that was lost, given back or tried again, or that was the last of a dead letter."""

    fence: int
    worker: str
    started: float = Field(description="Unix seconds, the store's clock, as is `ended`.")
    ended: float
    why: str = Field(description="lost, released, or the outcome that was tried again or was the last.")


class DeadLetter(Contract):
    """A job that ended through our fault: its payload is kept, and an operator can let it run again."""

    job_id: str
    tenant: str
    level: LevelName
    priority: PriorityClass
    outcome: Outcome
    error: JobError | None = None
    ended: float
    attempts: list[PastAttempt] = Field(description="At most the last 20, oldest first.")
    trace_id: str


#: About no job: the reader was too slow, and events up to this one are gone.
GAP: Literal["agent.events.gap"] = "agent.events.gap"
EventType = Literal[
    "agent.events.gap",
    "agent.run.queued",
    "agent.run.started",
    "agent.run.retried",
    "agent.run.succeeded",
    "agent.run.failed",
    "agent.run.cancelled",
    "agent.run.rejected",
]


class Event(Contract):
    """One entry of the event stream. Carries ids and the outcome, never code or output.

    ``agent.events.gap`` is not about a job: it tells a reader that events after those it has read, up to this
    id, have left the stream before it came.
    """

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
        """Whether the job ended with this event; every accepted job has exactly one such event."""
        return self.type not in {GAP, "agent.run.queued", "agent.run.started", "agent.run.retried"}

    @classmethod
    def from_fields(cls, stream_id: str, fields: dict[str, str]) -> Self:
        """The event that one entry of the stream holds."""
        given: dict[str, Any] = {name: value for name, value in fields.items() if value != ""}
        given["at"] = int(given.pop("at_ms")) / 1000
        return cls(id=stream_id, **given)
