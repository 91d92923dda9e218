"""How the store holds a result: as JSON in UTF-8, without the fields that the job's record has, and without
empty fields.

It stays bytes until it is read: one character beyond U+FFFF would make text four times as large in memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import TypeAdapter

from cellblock.blobs import Blobs, digest_of
from cellblock.contract.results import JobResult, Timings
from cellblock.errors import BlobLost
from cellblock_config import Settings

_BLOB = "blob"
_ELSEWHERE = f'{{"{_BLOB}":'.encode()
_RESULTS = TypeAdapter(JobResult)
#: JSON may take six bytes for one. Notices make the value, and all files together, longer by this at most.
_JSON_TIMES, _NOTICES_BYTES = 6, 64 * 1024
_IN_THE_RECORD = {
    *("job_id", "outcome", "level", "attempt", "worker", "trace_id", "timings"),
}


def stored(result: JobResult) -> bytes:
    """The result as JSON, to be kept beside the job's record."""
    left_out = _IN_THE_RECORD if result.value_kind is not None else _IN_THE_RECORD | {"value"}
    return _RESULTS.dump_json(result, exclude=left_out, exclude_defaults=True)


def longest_bytes(settings: Settings) -> int:
    """The length of the longest result that a job can have: its parts, and what the filter may add."""
    bounds = settings.ledger
    streams = 2 * settings.egress.output_limit_bytes * _JSON_TIMES
    return bounds.artifacts_bytes * 4 // 3 + bounds.value_bytes + streams + 2 * _NOTICES_BYTES


def deposited(data: bytes, blobs: Blobs, owner: str) -> tuple[bytes, str]:
    """Puts a long result of an owner's into the blob store. Returns the JSON that replaces it, and the blob's
    name."""
    name = blobs.name_of(data, owner)
    blobs.put(data, name)
    return json.dumps({_BLOB: name, "size_bytes": len(data)}).encode(), name


def size_of(data: bytes | bytearray) -> int:
    """The bytes of a stored result, also where it is in the blob store."""
    return len(data) + (int(json.loads(data)["size_bytes"]) if data.startswith(_ELSEWHERE) else 0)


def within_reach(data: bytes, blobs: Blobs | None) -> bytes:
    """The JSON that :func:`stored` made, fetched from the blob store if it is there.

    Raises :class:`BlobLost`, :class:`BlobsUnavailable`.
    """
    if not data.startswith(_ELSEWHERE):
        return data
    ref = json.loads(data)
    if blobs is None:
        raise BlobLost(
            digest_of(str(ref[_BLOB])),
            "the result is in the fleet's blob store, and this process has none: set CELLBLOCK_BLOBS_URL",
        )
    return blobs.get(str(ref[_BLOB]), int(ref["size_bytes"]))


def restored(job_id: str, record: Mapping[str, str], data: bytes) -> JobResult:
    """The result of an ended job, from its record and the JSON that :func:`stored` made."""
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
    # Joined unparsed: a job's output can be long, and is parsed once. The ledger's fields come last, and win.
    tail = json.dumps(known)[1:].encode()
    return JobResult.model_validate_json(
        b"".join((memoryview(data)[:-1], b", ", tail)) if data != b"{}" else b"{" + tail
    )


def heard(job_id: str, notification: str) -> JobResult | None:
    """The result in a job's notification; None where it has to be fetched."""
    record, _, text = notification.partition("\n")
    data = text.encode()
    if not data or data.startswith(_ELSEWHERE):
        return None
    try:
        return restored(job_id, json.loads(record), data)
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
