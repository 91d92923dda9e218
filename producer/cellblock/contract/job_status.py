"""Where jobs are now, and what became of those that ended through our fault."""

from __future__ import annotations

from datetime import date
from enum import StrEnum

from pydantic import Field

from cellblock.contract.base import Contract
from cellblock.contract.outcomes import JobError, Outcome
from cellblock.contract.results import Timings
from cellblock_config import LevelName, PriorityClass


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
    delayed: int = Field(description="For the end of the pause before a retry, or for their long parts.")
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
