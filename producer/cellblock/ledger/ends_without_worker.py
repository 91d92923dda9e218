"""The ends that the ledger itself gives a job: cancelled while waiting, lost, too late, unreadable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from cellblock.contract.outcomes import JobError, Outcome
from cellblock.contract.results import JobResult
from cellblock.ledger.stored_results import stored, timings
from cellblock_config import LevelName


@dataclass(frozen=True, slots=True)
class EndWithoutWorker:
    """How a job ends that no worker ends."""

    outcome: Outcome
    error: JobError

    def result(self, job_id: str, record: Mapping[str, str]) -> bytes:
        """The job's result as JSON to store (see ``ledger/stored_results.py``)."""
        result = JobResult(
            job_id=job_id,
            outcome=self.outcome,
            error=self.error,
            level=cast(LevelName, record["level"]),
            evidence={"losses": int(record.get("losses", 0)) + (self.outcome is Outcome.WORKER_LOST)},
            attempt=int(record["attempt"]),
            timings=timings(record),
            worker=record.get("worker"),
            trace_id=record["trace_id"],
        )
        return stored(result)


CANCELLED = EndWithoutWorker(Outcome.CANCELLED, JobError(type="Cancelled", message="Cancelled"))
WORKER_LOST = EndWithoutWorker(
    Outcome.WORKER_LOST, JobError(type="WorkerLost", message="Every attempt lost its worker")
)
NOT_UPLOADED = EndWithoutWorker(
    Outcome.CANCELLED,
    JobError(type="NotUploaded", message="Its long parts did not reach the blob store; submit it again"),
)
ORPHANED = EndWithoutWorker(
    Outcome.CANCELLED,
    JobError(type="ParentEnded", message="The job that it was part of does not run any more"),
)
UNREADABLE = EndWithoutWorker(
    Outcome.REJECTED,
    JobError(
        type="ManifestUnreadable",
        message="What the store holds of the job is not a manifest: it was altered, or written by another "
        "version of cellblock than the worker's; submit it again",
    ),
)
EXPIRED = EndWithoutWorker(
    Outcome.REJECTED,
    JobError(
        type="Expired",
        message="Not started in time: expires_s passed while it waited; give it longer, or add workers",
    ),
)
