"""Results of jobs that the ledger itself ends: cancelled while waiting, lost, too late, unreadable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from cellblock.contract.outcomes import JobError, Outcome
from cellblock.contract.results import JobResult
from cellblock.ledger.results import stored, timings
from cellblock_config import LevelName

CANCELLED = JobError(type="Cancelled", message="Cancelled")
WORKER_LOST = JobError(type="WorkerLost", message="Every attempt lost its worker")
ORPHANED = JobError(type="ParentEnded", message="The job that it was part of does not run any more")
UNREADABLE = JobError(
    type="ManifestUnreadable",
    message="What the store holds of the job is not a manifest: it was altered, or written by another "
    "version of cellblock than the worker's; submit it again",
)
EXPIRED = JobError(
    type="Expired",
    message="Not started in time: expires_s passed while it waited; give it longer, or add workers",
)


def ledger_result(job_id: str, record: Mapping[str, str], outcome: Outcome, error: JobError) -> str:
    """The result of a job that the ledger ends, as text to store (see ``ledger/results.py``)."""
    result = JobResult(
        job_id=job_id,
        outcome=outcome,
        error=error,
        level=cast(LevelName, record["level"]),
        evidence={"losses": int(record.get("losses", 0)) + (outcome is Outcome.WORKER_LOST)},
        attempt=int(record["attempt"]),
        timings=timings(record),
        worker=record.get("worker"),
        trace_id=record["trace_id"],
    )
    return stored(result)
