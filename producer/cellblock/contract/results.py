"""What comes back from a job."""

from __future__ import annotations

import base64
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, field_serializer, model_validator

from cellblock.contract.base import Contract
from cellblock.contract.evaluations import TrialResult
from cellblock.contract.outcomes import JobError, Outcome, Usage
from cellblock.contract.values import TableValue, table_from_base64
from cellblock_config import LevelName


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
        description="The verdicts of an evaluation, one for each program that was judged. If some are "
        "missing and the outcome is ok, the time was over: ask for them again.",
    )
    usage: Usage = Usage()
    cost_micros: int | None = Field(
        None, description="What the tenant pays for it; only for jobs with a plan."
    )
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
