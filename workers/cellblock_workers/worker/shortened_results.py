"""A result without what makes it long, for a store that has no room."""

from __future__ import annotations

from cellblock.contract.outcomes import JobError, Outcome
from cellblock.contract.results import JobResult
from cellblock.ledger.pressure import LARGE_BYTES
from cellblock.ledger.stored_results import stored

_STREAM_BYTES = 1024
#: What does not depend on the job's output.
_KEPT = ("job_id", "level", "attempt", "worker", "trace_id", "timings", "usage", "cost_micros")
NO_ROOM = "the store had no room for the whole result: give Redis more maxmemory"
NO_PLACE_TO_WAIT = (
    "the store had no room for the whole result, and as many long results as may wait for room already: give "
    "Redis more maxmemory"
)


def shortened(result: JobResult, why: str) -> JobResult:
    """The same end, with the first ``_STREAM_BYTES`` of each stream, and without value and artifacts.

    A sealed result cannot be cut, and an evaluation without its verdicts is worthless: such a job ends as
    ``output_limit``, at its price: to run it again for nothing would not bring room. ``why``: what the result
    says of it.
    """
    short = _cut(result, why)
    # A character may take six bytes in the store; and there are other fields that a job can make long.
    if result.sealed is None and not result.trials and len(stored(short)) < LARGE_BYTES:
        return short
    return JobResult(
        **{name: getattr(result, name) for name in _KEPT},
        outcome=Outcome.OUTPUT_LIMIT,
        error=JobError(type="StoreFull", message=why),
        evidence={"cut_short": why},
    )


def _cut(result: JobResult, why: str) -> JobResult:
    streams, truncated = {}, dict(result.truncated)
    for stream in ("stdout", "stderr"):
        whole = getattr(result, stream).encode()
        streams[stream] = whole[:_STREAM_BYTES].decode(errors="ignore")
        if len(whole) > _STREAM_BYTES:
            truncated[stream] = truncated.get(stream, 0) + len(whole) - len(streams[stream].encode())
    return result.model_copy(
        update={
            **streams,
            "truncated": truncated,
            "value": None,
            "value_kind": None,
            "value_error": why if result.value_kind is not None else result.value_error,
            "error": _shorter(result),
            "artifacts": (),
            "artifacts_skipped": (),
            "evidence": {**result.evidence, "cut_short": why},
        }
    )


def _shorter(result: JobResult) -> JobError | None:
    if result.error is None:
        return None
    cut = {name: getattr(result.error, name)[:_STREAM_BYTES] for name in ("type", "message", "traceback")}
    return result.error.model_copy(update=cut)
