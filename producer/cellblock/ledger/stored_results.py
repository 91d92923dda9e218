"""How the store holds a result: without the fields that the job's record has, and without empty fields."""

from __future__ import annotations

import json
from collections.abc import Mapping

from cellblock.blobs import Blobs
from cellblock.contract.results import JobResult, Timings
from cellblock.errors import BlobLost

_BLOB = "blob"
_ELSEWHERE = f'{{"{_BLOB}":'
_IN_THE_RECORD = {
    *("job_id", "outcome", "level", "attempt", "worker", "trace_id", "timings"),
}


def stored(result: JobResult) -> str:
    """The result as text, to be kept beside the job's record."""
    left_out = _IN_THE_RECORD if result.value_kind is not None else _IN_THE_RECORD | {"value"}
    return result.model_dump_json(exclude=left_out, exclude_defaults=True)


def deposited(text: str, blobs: Blobs) -> tuple[str, str]:
    """Puts a long result into the blob store. Returns the text that replaces it, and the blob's name."""
    data = text.encode()
    name = blobs.put(data)
    return json.dumps({_BLOB: name, "size_bytes": len(data)}), name


def within_reach(text: str, blobs: Blobs | None) -> str:
    """The text that :func:`stored` made, fetched from the blob store if it is there.

    Raises :class:`BlobLost`, :class:`BlobsUnavailable`.
    """
    if not text.startswith(_ELSEWHERE):
        return text
    ref = json.loads(text)
    if blobs is None:
        raise BlobLost(
            str(ref[_BLOB]).rpartition("/")[2],
            "the result is in the fleet's blob store, and this process has none: set CELLBLOCK_BLOBS_URL",
        )
    return blobs.get(str(ref[_BLOB]), int(ref["size_bytes"])).decode()


def restored(job_id: str, record: Mapping[str, str], text: str) -> JobResult:
    """The result of an ended job, from its record and the text that :func:`stored` made."""
    known: dict[str, object] = {
        "job_id": job_id,
        "outcome": record["outcome"],
        "level": record["level"],
        "attempt": int(record["attempt"]),
        "worker": record.get("worker"),
        "trace_id": record["trace_id"],
        "timings": timings(record).model_dump(),
        **({"cost_micros": int(record["cost"])} if "cost" in record else {}),
    }
    # Joined as text: a job's output can be long, and is parsed once. The ledger's fields come last, and win.
    tail = json.dumps(known)[1:]
    return JobResult.model_validate_json(f"{text[:-1]}, {tail}" if text != "{}" else f"{{{tail}")


def heard(job_id: str, notification: str) -> JobResult | None:
    """The result in a job's notification; None where it has to be fetched."""
    record, _, text = notification.partition("\n")
    if not text or text.startswith(_ELSEWHERE):
        return None
    try:
        return restored(job_id, json.loads(record), text)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # not written by us


def timings(record: Mapping[str, str]) -> Timings:
    """A job's times, from its record."""

    def seconds(field: str) -> float | None:
        return int(record[field]) / 1000 if field in record else None

    return Timings(
        submitted=float(record["submitted"]),
        admitted=int(record["admitted_ms"]) / 1000,
        started=seconds("started_ms"),
        finished=seconds("finished_ms"),
    )
