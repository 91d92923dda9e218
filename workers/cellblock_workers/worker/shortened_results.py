"""A result without what makes it long, for a store that has no room."""

from __future__ import annotations

from cellblock.contract.outcomes import JobError
from cellblock.contract.results import JobResult
from cellblock.ledger import Claim
from cellblock.ledger.pressure import LARGE_BYTES
from cellblock.ledger.stored_results import stored
from cellblock_workers.worker.execution import fault_result

_STREAM_BYTES = 1024
_WHY = "the store had no room for the whole result: give Redis more maxmemory"


def shortened(claim: Claim, result: JobResult) -> JobResult:
    """The same end, with the first ``_STREAM_BYTES`` of each stream, and without value, artifacts and trials.

    A sealed result cannot be cut, and an evaluation without its verdicts is worthless: such a job ends as our
    fault.
    """
    if result.sealed is not None or result.trials:
        return fault_result(claim, _WHY)
    short = _cut(result)
    # A character may take six bytes in the store; and there are other fields that a job can make long.
    return short if len(stored(short)) < LARGE_BYTES else fault_result(claim, _WHY)


def _cut(result: JobResult) -> JobResult:
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
            "value_error": _WHY if result.value_kind is not None else result.value_error,
            "error": _shorter(result),
            "artifacts": (),
            "artifacts_skipped": (),
            "evidence": {**result.evidence, "cut_short": _WHY},
        }
    )


def _shorter(result: JobResult) -> JobError | None:
    if result.error is None:
        return None
    cut = {name: getattr(result.error, name)[:_STREAM_BYTES] for name in ("type", "message", "traceback")}
    return result.error.model_copy(update=cut)
