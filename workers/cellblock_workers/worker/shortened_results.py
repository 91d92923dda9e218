"""A result without what makes it long, for a store that has no room for all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cellblock.contract.outcomes import JobError, Outcome
from cellblock.contract.results import JobResult
from cellblock.ledger.pressure import LARGE_BYTES
from cellblock.ledger.stored_results import stored

_STREAM_BYTES = 1024
#: What does not depend on the job's output.
_KEPT = ("job_id", "level", "attempt", "worker", "trace_id", "timings", "usage", "cost_micros")


@dataclass(frozen=True, slots=True)
class Cut:
    """Why a result is cut: the type of the error where nothing is left of it, and the words."""

    kind: str
    why: str


NO_ROOM = Cut("StoreFull", "the store had no room for the whole result: give Redis more maxmemory")
NO_PLACE_TO_WAIT = Cut(
    "StoreFull",
    "the store had no room for the whole result, and as many long results as may wait for room already: give "
    "Redis more maxmemory",
)
#: By the limit that a result is longer than.
BEYOND_LIMITS: Mapping[str, Cut] = {
    "bytes_held": Cut(
        "ResultTooLong",
        "the result is longer than what its tenant may hold of the store: bytes_held of its plan, or "
        "CELLBLOCK_LEDGER_TENANT_PERCENT of the store's memory",
    ),
    "bytes_stored": Cut(
        "ResultTooLong",
        "the result is longer than what its tenant may have in the blob store and the archive: bytes_stored "
        "of its plan",
    ),
}


def shortened(result: JobResult, cut: Cut) -> JobResult:
    """The same end, with the first ``_STREAM_BYTES`` of each stream, and without value and artifacts.

    A sealed result cannot be cut, and an evaluation without its verdicts is worthless: such a job ends as
    ``output_limit``, at its price: to run it again for nothing would not bring room. ``cut``: what the result
    says of it.
    """
    short = _without_long_parts(result, cut)
    # A character may take six bytes in the store; and there are other fields that a job can make long.
    if result.sealed is None and not result.trials and len(stored(short)) < LARGE_BYTES:
        return short
    return JobResult(
        **{name: getattr(result, name) for name in _KEPT},
        outcome=Outcome.OUTPUT_LIMIT,
        error=JobError(type=cut.kind, message=cut.why),
        evidence={"cut_short": cut.why},
    )


def _without_long_parts(result: JobResult, cut: Cut) -> JobResult:
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
            "value_error": cut.why if result.value_kind is not None else result.value_error,
            "error": _shorter(result),
            "artifacts": (),
            "artifacts_skipped": (),
            "evidence": {**result.evidence, "cut_short": cut.why},
        }
    )


def _shorter(result: JobResult) -> JobError | None:
    if result.error is None:
        return None
    cut = {name: getattr(result.error, name)[:_STREAM_BYTES] for name in ("type", "message", "traceback")}
    return result.error.model_copy(update=cut)
