"""Questions to the ledger about a job, or about named jobs; nothing here changes one."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from pydantic import ValidationError

from cellblock.admission.idempotency import IdempotencyKey
from cellblock.contract.events import Event
from cellblock.contract.job_status import DeadLetter, JobState, JobStatus, PastAttempt
from cellblock.contract.outcomes import Outcome
from cellblock.contract.results import JobResult
from cellblock.errors import ArchiveUnavailable, InvalidJob, SchemaMismatch, UnknownJob
from cellblock.ledger.archiving import Archiving
from cellblock.ledger.connection import get_bytes, store_errors
from cellblock.ledger.event_retention import EventStream, id_of
from cellblock.ledger.keys import JobOwner
from cellblock.ledger.store import Store
from cellblock.ledger.stored_results import restored, timings, within_reach
from cellblock_config import LevelName, PriorityClass

_EVENTS_STEP_S = 1.0
#: The most events of one answer, where only an id is looked for.
_EVENTS_PAGE = 1000
#: After a failed question to the archive, the pause is the time that the question took, times this factor.
_ARCHIVE_PAUSE = 2
_ARCHIVE_WARNS_S = 10.0
_log = logging.getLogger(__name__)


def unknown_job(job_id: str) -> UnknownJob:
    """The error for an id that the store and the archive do not know."""
    return UnknownJob(f"no job {job_id or repr(job_id)}: never accepted here, or its result has expired")


class Reads:
    """Questions about jobs. Every method raises :class:`StoreUnavailable`."""

    _archive_asked_at = 0.0  #: the earliest time (monotonic) of the next question: it was away
    _archive_warned_at = float("-inf")

    def __init__(self, store: Store, archiving: Archiving) -> None:
        self._store = store
        self._redis, self._keys = store.redis, store.keys
        self._stream = EventStream(store.redis, store.keys)
        self._archiving = archiving

    def require_tenant(self, job_id: str, tenant: str | None) -> None:
        """Raises :class:`UnknownJob` for a job of another tenant, with the text for a missing job."""
        if tenant is not None and self.record_anywhere(job_id)["tenant"] != tenant:
            raise unknown_job(job_id)

    def status(self, job_id: str) -> JobStatus:
        """The status of a job. Raises :class:`UnknownJob`."""
        record = self.record_anywhere(job_id)
        found = status_of(job_id, record)
        return found.model_copy(update={"state": self._state(job_id, record)})

    def _state(self, job_id: str, record: Mapping[str, str]) -> JobState:
        """The state of a job. A queued job is parked if it could be claimed except for its tenant's slots."""
        state, lane = JobState(record["state"]), JobOwner.of_record(record).lane
        if state is not JobState.QUEUED:
            return state
        with store_errors("reading a job's state"):
            pipe = self._redis.pipeline(transaction=False)
            pipe.sismember(self._keys.parked, lane)
            pipe.zscore(self._keys.ready(lane), job_id)
            parked, place = pipe.execute()
        return JobState.PARKED if parked and place is not None else state

    def result(self, job_id: str) -> JobResult | None:
        """The result of an ended job; None while it waits or runs.

        Raises :class:`UnknownJob`, :class:`BlobLost` for a long result that the blob store does not have.
        """
        with store_errors("reading a result"):
            pipe = self._redis.pipeline(transaction=False)
            get_bytes(pipe, self._keys.result(job_id))
            pipe.hgetall(self._keys.job(job_id))
            stored, record = cast(tuple[bytes | None, dict[str, str]], tuple(pipe.execute()))
        if not record:
            return self._archived_result(job_id)
        if stored is None:
            return None
        return restored(job_id, record, within_reach(stored, self._store.blobs))

    def _archived_result(self, job_id: str) -> JobResult:
        found = self._store.archive.job(job_id) if self._store.archive is not None else None
        if found is None:
            raise unknown_job(job_id)
        if found.output is None:
            raise UnknownJob(
                f"the archive does not have the output of job {job_id}: it has expired "
                "(CELLBLOCK_ARCHIVE_OUTPUT_TTL_S, result_ttl_s or bytes_stored of its plan), or archivers "
                f"ended while writing it; the job ended {found.record['outcome']}"
            )
        return restored(job_id, found.record, within_reach(found.output, self._store.blobs))

    def events(self, after: str = "0", *, limit: int = 100, wait_s: float = 0) -> list[Event]:
        """Events after a stream id, oldest first; waits up to ``wait_s`` for the first.

        A reader that has missed events gets ``agent.events.gap`` first.
        """
        gap = self._stream.gap_after(after) if id_of(after) > (0, 0) else None
        if gap is not None:
            return [gap, *self.events(gap.id, limit=limit)]
        deadline = time.monotonic() + wait_s
        while True:
            left_s = deadline - time.monotonic()
            # In steps: one blocking read must not outlast the socket's own timeout.
            block = max(1, round(1000 * min(left_s, _EVENTS_STEP_S))) if left_s > 0 else None
            with store_errors("reading events"):
                reply = self._redis.xread({self._keys.events: after}, count=limit, block=block)
            found = []
            for stream_id, fields in entries(reply):
                event = readable(stream_id, fields)
                found += [event] if event is not None else []
                after = stream_id
            if found or left_s <= 0:
                return found

    def event_before_last(self, count: int) -> str:
        """The stream id after which the last ``count`` events follow; ``0`` if there are no more events."""
        last, left = "+", count + 1
        while left:
            page = min(left, _EVENTS_PAGE)
            with store_errors("reading events"):
                reply = self._redis.xrevrange(self._keys.events, max=last, count=page)
            found = cast(list[tuple[str, object]], reply)
            if len(found) < page:
                return "0"
            left -= page
            last = f"({found[-1][0]}"
        return last.removeprefix("(")

    def last_event_id(self) -> str:
        """The stream id of the newest event; ``0`` without any."""
        with store_errors("reading events"):
            newest = cast(list[tuple[str, object]], self._redis.xrevrange(self._keys.events, count=1))
        return newest[0][0] if newest else "0"

    def has_seen(self, tenant: str) -> bool:
        """Whether there is an account of this tenant: for forty days after its last job on a plan, else while
        one of its jobs is kept."""
        with store_errors("looking for a tenant"):
            return bool(self._redis.exists(self._keys.account(tenant)))

    def named_blobs(self, names: Sequence[str]) -> set[str]:
        """The subset of these blobs that some job names."""
        with store_errors("looking for blobs that jobs name"):
            counts = cast(list[str | None], self._redis.hmget(self._keys.blobs, list(names))) if names else []
        return {name for name, count in zip(names, counts, strict=True) if count is not None}

    def settled(self, job_ids: Sequence[str]) -> list[str]:
        """The subset of these jobs that have ended or are unknown, found in one round trip."""
        with store_errors("looking for results"):
            pipe = self._redis.pipeline(transaction=False)
            for job_id in job_ids:
                pipe.exists(self._keys.result(job_id))
                pipe.exists(self._keys.job(job_id))
            found = pipe.execute()
        pairs = zip(job_ids, found[::2], found[1::2], strict=True)
        return [job_id for job_id, ended, known in pairs if ended or not known]

    def due_in_s(self, job_id: str) -> float | None:
        """The seconds left of a job's pause before its next attempt; None if it is not in a pause."""
        with store_errors("reading a job's pause"):
            due_ms = self._redis.zscore(self._keys.delayed, job_id)
            return None if due_ms is None else max(0.0, (float(due_ms) - self._store.now_ms()) / 1000)

    def attempts(self, job_id: str) -> list[PastAttempt]:
        """The history of a job's attempts that did not simply end, oldest first."""
        with store_errors("reading a job's attempts"):
            lines = cast(list[str], self._redis.lrange(self._keys.attempts(job_id), 0, -1))
        past = []
        for line in lines:
            fence, worker, started_ms, ended_ms, why = line.split(" ")
            started, ended = int(started_ms) / 1000, int(ended_ms) / 1000
            past.append(PastAttempt(fence=int(fence), worker=worker, started=started, ended=ended, why=why))
        return past

    def dead(self, *, limit: int = 100) -> list[str]:
        """The ids of dead letters, latest first. ``limit`` 0: all of them."""
        with store_errors("listing dead letters"):
            return cast(list[str], self._redis.zrange(self._keys.dead, 0, limit - 1, desc=True))

    def dead_letter(self, job_id: str) -> DeadLetter:
        """A dead letter with its history. Raises :class:`UnknownJob`."""
        record = self.record(job_id)
        with store_errors("reading a dead letter"):
            if self._redis.zscore(self._keys.dead, job_id) is None:
                raise UnknownJob(f"job {job_id} is not a dead letter: it is {record['state']}")
        result = self.result(job_id)
        return DeadLetter(
            job_id=job_id,
            tenant=record["tenant"],
            level=cast(LevelName, record["level"]),
            priority=cast(PriorityClass, record["priority"]),
            outcome=Outcome(record["outcome"]),
            error=result.error if result else None,
            ended=int(record["finished_ms"]) / 1000,
            attempts=self.attempts(job_id),
            trace_id=record["trace_id"],
        )

    def tenant(self, job_id: str) -> str | None:
        """The tenant of a job; None if there is no job of this id."""
        with store_errors("reading a job"):
            return cast(str | None, self._redis.hget(self._keys.job(job_id), "tenant"))

    def accepted(self, tenant: str, idempotency: IdempotencyKey) -> str | None:
        """The job accepted under this key of the tenant's; None if there is none or it has been forgotten.

        Raises :class:`InvalidJob` when the key was used for a different job.
        """
        with store_errors("looking for an idempotency key"):
            stored = cast(str | None, self._redis.get(self._keys.idempotency(tenant, idempotency.name)))
        known = self._known_key(stored) or self._archived_key(tenant, idempotency.name)
        if known is None:
            return None
        job_id, digest = known
        if digest != idempotency.digest:
            raise conflict(idempotency, job_id)
        return job_id

    def _known_key(self, stored: str | None) -> tuple[str, str] | None:
        """The id and digest of a stored key, if its job is in Redis or had to leave it early."""
        if stored is None:
            return None
        job_id, digest, *early = stored.split(" ")
        return (job_id, digest) if early or self.exists(job_id) else None

    def _archived_key(self, tenant: str, name: str) -> tuple[str, str] | None:
        """The id and digest of a key whose job has left Redis; None while the archive is away, so that jobs
        go on. An archive that answers slowly is not asked each time."""
        asked = time.monotonic()
        if self._store.archive is None or asked < self._archive_asked_at:
            return None
        try:
            return self._store.archive.accepted(tenant, name)
        except (ArchiveUnavailable, SchemaMismatch) as error:
            now = time.monotonic()
            self._archive_asked_at = now + _ARCHIVE_PAUSE * (now - asked)
            if now > self._archive_warned_at + _ARCHIVE_WARNS_S:
                self._archive_warned_at = now
                _log.warning("idempotency keys of jobs that have left Redis are not known: %s", error)
            return None

    def exists(self, job_id: str) -> bool:
        """Whether the store has a job of this id."""
        with store_errors("reading a job"):
            return bool(self._redis.exists(self._keys.job(job_id)))

    def record_anywhere(self, job_id: str) -> Mapping[str, str]:
        """The record of a job in Redis or in the archive. Raises :class:`UnknownJob`."""
        try:
            return self.record(job_id)
        except UnknownJob:
            found = self._store.archive.job(job_id) if self._store.archive is not None else None
            if found is None:
                raise
            return found.record

    def record(self, job_id: str) -> dict[str, str]:
        """The record of a job in Redis. Raises :class:`UnknownJob`."""
        with store_errors("reading a job"):
            record = cast(dict[str, str], self._redis.hgetall(self._keys.job(job_id)))
        if not record:
            raise unknown_job(job_id)
        return record


def readable(stream_id: str, fields: dict[str, str]) -> Event | None:
    """The event of one entry; None, and logged, for an entry of a version that this one cannot read."""
    try:
        return Event.from_fields(stream_id, fields)
    except (ValidationError, ValueError, KeyError):
        _log.warning("event %s cannot be read by this version and is left out", stream_id)
        return None


def entries(reply: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """The (id, fields) pairs of an XREAD reply; RESP3 answers with a map and one more level of lists."""
    for chunk in reply.values() if isinstance(reply, dict) else [entries for _, entries in reply or []]:
        for entry in chunk:
            if isinstance(entry, list):
                yield from (cast(tuple[str, dict[str, str]], tuple(inner)) for inner in entry)
            else:
                yield entry


def status_of(job_id: str, record: Mapping[str, str]) -> JobStatus:
    """The status that a record shows. A record does not show whether the job is parked."""
    return JobStatus(
        job_id=job_id,
        state=JobState(record["state"]),
        outcome=Outcome(record["outcome"]) if "outcome" in record else None,
        tenant=record["tenant"],
        level=cast(LevelName, record["level"]),
        plan=record.get("plan"),
        parent=record.get("parent"),
        reserved_micros=int(record["reserved"]) if "reserved" in record else None,
        cost_micros=int(record["cost"]) if "cost" in record else None,
        attempt=int(record["attempt"]),
        losses=int(record.get("losses", 0)),
        cancel_requested=record.get("cancel") == "1",
        worker=record.get("worker"),
        timings=timings(record),
        trace_id=record["trace_id"],
    )


def conflict(idempotency: IdempotencyKey, job_id: str) -> InvalidJob:
    """The error for a key that was used for a different job."""
    return InvalidJob("idempotency_key", f"{idempotency.name!r} was used for another job, {job_id}")
