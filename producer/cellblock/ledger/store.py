"""The only owner of state changes: a typed face over the Lua transitions.

Each transition is one script under scripts/, run on the server's clock and idempotent under an
operation id, so a call resent after a lost reply changes nothing. ARCHITECTURE.md draws the states.

Over 400 lines, because all transitions and reads stay behind one class: no second owner of job state.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, cast

from pydantic import ValidationError
from redis import Redis
from redis.commands.core import Script

from cellblock.admission import Manifest
from cellblock.errors import InvalidJob, RateLimited, UnknownJob
from cellblock.ledger.connection import connect, store_errors
from cellblock.ledger.keys import Keys
from cellblock.models import Event, JobError, JobResult, JobState, JobStatus, Outcome, Timings
from cellblock_config import LevelName, Settings

__all__ = ["Admission", "Claim", "Dropped", "Held", "Ledger", "Reaped", "connect"]

_EVENTS_STEP_S = 1.0

Held = Literal["held", "cancel", "lost"]


@dataclass(frozen=True, slots=True)
class Admission:
    """An accepted job; ``fresh`` is false when it had been accepted before under the same key."""

    job_id: str
    fresh: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """One worker's right to run one attempt. ``fence`` is the attempt's number."""

    job_id: str
    fence: int
    worker: str
    manifest: Manifest
    admitted: float
    started: float


@dataclass(frozen=True, slots=True)
class Dropped:
    """A delivery with nothing to do: the message is acknowledged and forgotten."""

    why: str


@dataclass(frozen=True, slots=True)
class Reaped:
    """What the reaper did with one job; ``requeued`` ones have to be published again."""

    job_id: str
    verdict: Literal["requeued", "lost", "cancelled"]
    priority: str


class Ledger:
    """All transitions and reads of jobs. Thread-safe.

    Every method raises :class:`StoreUnavailable` when Redis is out of reach.
    """

    def __init__(self, redis: Redis, settings: Settings, *, embedded: bool = False) -> None:
        self._redis = redis
        self._settings = settings.ledger
        self.keys = Keys(settings.redis.key_prefix)
        self._scripts = {name: _load(redis, name, plain=embedded) for name in _SCRIPTS}

    def admit(self, job_id: str, manifest: Manifest, idempotency_key: str | None = None) -> Admission:
        """Store the job and make it wait. Calling again with the same id or key changes nothing.

        Raises :class:`InvalidJob` when the key was used for a different job, :class:`RateLimited`
        when too many jobs wait already.
        """
        reply, value = self._admit(job_id, manifest, idempotency_key)
        if reply == "known" and value != job_id and not self._exists(value):
            reply, value = self._admit(job_id, manifest, idempotency_key, forgotten=value)
        if reply == "full":
            raise RateLimited(
                f"{value} jobs are waiting and the queue holds {self._settings.queue_depth} "
                "(CELLBLOCK_LEDGER_QUEUE_DEPTH); try again later",
                retry_after_s=1.0,
            )
        if reply == "conflict":
            raise InvalidJob("idempotency_key", f"{idempotency_key!r} was used for another job, {value}")
        # A resent admission finds its own first sending: that job is as fresh as can be.
        return Admission(value, fresh=value == job_id)

    def _admit(
        self, job_id: str, manifest: Manifest, idempotency_key: str | None, forgotten: str = ""
    ) -> list[str]:
        keys = self.keys
        return self._run(
            "admit",
            [
                keys.job(job_id),
                keys.spec(job_id),
                keys.waiting,
                keys.events,
                keys.idempotency(manifest.tenant, idempotency_key or ""),
            ],
            [
                job_id,
                _digest(manifest),
                manifest.model_dump_json(),
                manifest.tenant,
                manifest.level,
                manifest.priority,
                manifest.trace_id,
                f"{manifest.submitted:.6f}",
                self._settings.queue_depth,
                self._settings.job_ttl_s,
                self._settings.events_kept,
                "1" if idempotency_key else "0",
                forgotten,
            ],
        )

    def claim(self, job_id: str, worker: str, operation: str) -> Claim | Dropped:
        """Become the one running attempt of a waiting job, with a fresh fence and lease."""
        keys = self.keys
        reply, *values = self._run(
            "claim",
            [keys.job(job_id), keys.spec(job_id), keys.waiting, keys.leases, keys.events],
            [job_id, worker, operation, _ms(self._settings.lease_s), self._settings.events_kept],
        )
        if reply == "drop":
            return Dropped(values[0])
        fence, stored, admitted_ms, started_ms = values
        try:
            manifest = Manifest.model_validate_json(stored)
        except ValidationError:
            self._reject_unreadable(job_id, fence, operation)
            return Dropped("unreadable")
        return Claim(
            job_id,
            int(fence),
            worker,
            manifest,
            int(admitted_ms) / 1000,
            int(started_ms) / 1000,
        )

    def _reject_unreadable(self, job_id: str, fence: str, operation: str) -> None:
        """End a job whose stored manifest is none. Nobody could run it: trying again changes nothing."""
        closing = _closing_result(job_id, self._record(job_id), Outcome.REJECTED)
        ending = [JobState.REJECTED, Outcome.REJECTED, closing, *self._ending_args(job_id)]
        self._run("finish", self.keys.ending(job_id), [job_id, fence, operation, *ending])

    def beat(
        self, worker: str, held: Sequence[tuple[str, int]], status: Mapping[str, object]
    ) -> dict[tuple[str, int], Held]:
        """Renew every lease this worker still owns, and say that the worker lives."""
        flat = [str(part) for pair in held for part in pair]
        words = self._run(
            "beat",
            [self.keys.worker(worker), self.keys.leases, *(self.keys.job(job_id) for job_id, _ in held)],
            [worker, _ms(self._settings.lease_s), _ms(3 * self._settings.beat_s), json.dumps(status), *flat],
        )
        return dict(zip(held, cast(list[Held], words), strict=True))

    def finish(self, claim: Claim, result: JobResult, operation: str) -> bool:
        """End the job with this result. False when the attempt is stale: nothing was written."""
        (reply, *_) = self._run(
            "finish",
            self.keys.ending(claim.job_id),
            [
                claim.job_id,
                claim.fence,
                operation,
                JobState.after(result.outcome),
                result.outcome,
                result.model_dump_json(),
                *self._ending_args(claim.job_id),
            ],
        )
        return reply == "finished"

    def release(self, claim: Claim, operation: str) -> Literal["released", "cancelled", "stale"]:
        """Give the job back uncounted; a ``released`` one has to be published again."""
        record = self._record(claim.job_id)
        (reply, *_) = self._run(
            "release",
            self.keys.ending(claim.job_id),
            [
                claim.job_id,
                claim.fence,
                operation,
                _closing_result(claim.job_id, record, Outcome.CANCELLED),
                *self._ending_args(claim.job_id),
            ],
        )
        return cast(Literal["released", "cancelled", "stale"], reply)

    def cancel(self, job_id: str) -> Literal["cancelled", "requested", "terminal"]:
        """End a waiting job now; ask the worker of a running one to stop it. Idempotent.

        Raises :class:`UnknownJob`.
        """
        record = self._record(job_id)
        (reply, *_) = self._run(
            "cancel",
            self.keys.ending(job_id),
            [job_id, _closing_result(job_id, record, Outcome.CANCELLED), *self._ending_args(job_id)],
        )
        if reply == "unknown":
            raise UnknownJob(f"no job {job_id}: never accepted here, or its result has expired")
        return cast(Literal["cancelled", "requested", "terminal"], reply)

    def extend_leases(self) -> int | None:
        """After an outage: every lease gets its full length again. None if another reaper did it just now."""
        reply, *count = self._run(
            "extend", [self.keys.leases, self.keys.extended], [_ms(self._settings.lease_s)]
        )
        return int(count[0]) if reply == "extended" else None

    def reap(self, limit: int = 100) -> Iterator[Reaped]:
        """Judge up to ``limit`` jobs whose lease has run out, one at a time."""
        with store_errors("looking for lost leases"):
            expired = cast(
                list[str],
                self._redis.zrange(
                    self.keys.leases, "-inf", self._now_ms(), byscore=True, offset=0, num=limit
                ),
            )
        for job_id in expired:
            try:
                record = self._record(job_id)
            except UnknownJob:
                with store_errors("dropping the lease of an expired job"):
                    self._redis.zrem(self.keys.leases, job_id)
                continue
            (reply, *_) = self._run(
                "reap",
                self.keys.ending(job_id),
                [
                    job_id,
                    self._settings.loss_limit,
                    _closing_result(job_id, record, Outcome.WORKER_LOST),
                    _closing_result(job_id, record, Outcome.CANCELLED),
                    *self._ending_args(job_id),
                ],
            )
            if reply in {"requeued", "lost", "cancelled"}:
                verdict = cast(Literal["requeued", "lost", "cancelled"], reply)
                yield Reaped(job_id, verdict, record["priority"])

    def unclaimed(self, offset: int = 0, limit: int = 1000) -> list[tuple[str, str]]:
        """(job id, priority) of jobs published longer than ``republish_after_s`` ago and not yet claimed.

        At most ``limit`` of them, oldest first, from ``offset`` on.
        """
        with store_errors("looking for jobs without a message"):
            before = self._now_ms() - _ms(self._settings.republish_after_s)
            ids = cast(
                list[str],
                self._redis.zrange(self.keys.waiting, "-inf", before, byscore=True, offset=offset, num=limit),
            )
            pipe = self._redis.pipeline(transaction=False)
            for job_id in ids:
                pipe.hget(self.keys.job(job_id), "priority")
            found = list(zip(ids, cast(list[str | None], pipe.execute()), strict=True))
            for job_id in [job_id for job_id, priority in found if priority is None]:
                self._redis.zrem(self.keys.waiting, job_id)  # its record has expired
        return [(job_id, priority) for job_id, priority in found if priority is not None]

    def republished(self, job_id: str) -> None:
        """Note that a waiting job's message was sent again; a job claimed meanwhile is left alone."""
        with store_errors("noting a republished job"):
            self._redis.zadd(self.keys.waiting, {job_id: self._now_ms()}, xx=True)

    def status(self, job_id: str) -> JobStatus:
        """Where a job is. Raises :class:`UnknownJob`."""
        record = self._record(job_id)
        return JobStatus(
            job_id=job_id,
            state=JobState(record["state"]),
            outcome=Outcome(record["outcome"]) if "outcome" in record else None,
            tenant=record["tenant"],
            attempt=int(record["attempt"]),
            losses=int(record["losses"]),
            cancel_requested=record.get("cancel") == "1",
            worker=record.get("worker"),
            timings=_timings(record),
            trace_id=record["trace_id"],
        )

    def result(self, job_id: str) -> JobResult | None:
        """The result of an ended job, None while it is under way. Raises :class:`UnknownJob`."""
        with store_errors("reading a result"):
            pipe = self._redis.pipeline(transaction=False)
            pipe.get(self.keys.result(job_id))
            pipe.hgetall(self.keys.job(job_id))
            stored, record = cast(tuple[str | None, dict[str, str]], tuple(pipe.execute()))
        if not record:
            raise UnknownJob(f"no job {job_id}: never accepted here, or its result has expired")
        if stored is None:
            return None
        return JobResult.model_validate_json(stored).model_copy(update={"timings": _timings(record)})

    def events(self, after: str = "0", *, limit: int = 100, wait_s: float = 0) -> list[Event]:
        """Events after a stream id, oldest first; waits up to ``wait_s`` for the first."""
        deadline = time.monotonic() + wait_s
        while True:
            left_s = deadline - time.monotonic()
            # In steps: one blocking read may not outlast the socket's own timeout.
            block = max(1, _ms(min(left_s, _EVENTS_STEP_S))) if left_s > 0 else None
            with store_errors("reading events"):
                reply = self._redis.xread({self.keys.events: after}, count=limit, block=block)
            found = [Event.from_fields(stream_id, fields) for stream_id, fields in _entries(reply)]
            if found or left_s <= 0:
                return found

    def settled(self, job_ids: Sequence[str]) -> list[str]:
        """Those of the jobs that have ended or are unknown, found in one round trip."""
        with store_errors("looking for results"):
            pipe = self._redis.pipeline(transaction=False)
            for job_id in job_ids:
                pipe.exists(self.keys.result(job_id))
                pipe.exists(self.keys.job(job_id))
            found = pipe.execute()
        pairs = zip(job_ids, found[::2], found[1::2], strict=True)
        return [job_id for job_id, ended, known in pairs if ended or not known]

    def depth(self) -> int:
        """How many jobs wait."""
        with store_errors("counting waiting jobs"):
            return self._redis.zcard(self.keys.waiting)

    def running(self) -> int:
        """How many jobs hold a lease."""
        with store_errors("counting running jobs"):
            return self._redis.zcard(self.keys.leases)

    def workers(self) -> dict[str, dict[str, object]]:
        """What every live worker last said of itself."""
        pattern = self.keys.worker("*").replace("[", "\\[")
        with store_errors("listing workers"):
            names = list(self._redis.scan_iter(match=pattern, count=500))
            values = cast(list[str | None], self._redis.mget(names)) if names else []
        prefix = len(self.keys.worker(""))
        return {name[prefix:]: json.loads(value) for name, value in zip(names, values, strict=True) if value}

    def _exists(self, job_id: str) -> bool:
        with store_errors("reading a job"):
            return bool(self._redis.exists(self.keys.job(job_id)))

    def _run(self, name: str, keys: list[str], args: Sequence[object]) -> list[str]:
        with store_errors(f"running {name}"):
            return cast(list[str], self._scripts[name](keys=keys, args=[str(arg) for arg in args]))

    def _ending_args(self, job_id: str) -> list[object]:
        return [self._settings.result_ttl_s, self._settings.events_kept, self.keys.done(job_id)]

    def _record(self, job_id: str) -> dict[str, str]:
        with store_errors("reading a job"):
            record = cast(dict[str, str], self._redis.hgetall(self.keys.job(job_id)))
        if not record:
            raise UnknownJob(f"no job {job_id}: never accepted here, or its result has expired")
        return record

    def _now_ms(self) -> int:
        seconds, micros = self._redis.time()
        return int(seconds) * 1000 + int(micros) // 1000


_SCRIPTS = ("admit", "claim", "beat", "finish", "release", "cancel", "reap", "extend")


def _load(redis: Redis, name: str, *, plain: bool) -> Script:
    folder = resources.files("cellblock.ledger") / "scripts"
    # A full Redis has to shed load at admission and still let running jobs beat and end. (The in-process
    # Redis of embedded runs knows neither memory limits nor this line.)
    flags = "" if plain or name == "admit" else "#!lua flags=allow-oom\n"
    prelude = (folder / "prelude.lua").read_text()
    return redis.register_script(flags + prelude + (folder / f"{name}.lua").read_text())


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _digest(manifest: Manifest) -> str:
    """What makes two submissions the same job: everything but when and under which trace it was sent."""
    same = manifest.model_dump_json(exclude={"submitted", "trace_id", "signature"})
    return hashlib.sha256(same.encode()).hexdigest()


def _entries(reply: Any) -> Iterator[tuple[str, dict[str, str]]]:
    """The (id, fields) pairs of an XREAD reply; RESP3 answers with a map and one more level of lists."""
    for chunk in reply.values() if isinstance(reply, dict) else [entries for _, entries in reply or []]:
        for entry in chunk:
            if isinstance(entry, list):
                yield from (cast(tuple[str, dict[str, str]], tuple(inner)) for inner in entry)
            else:
                yield entry


def _timings(record: Mapping[str, str]) -> Timings:
    def seconds(field: str) -> float | None:
        return int(record[field]) / 1000 if field in record else None

    return Timings(
        submitted=float(record["submitted"]),
        admitted=int(record["admitted_ms"]) / 1000,
        started=seconds("started_ms"),
        finished=seconds("finished_ms"),
    )


_CLOSING = {
    Outcome.CANCELLED: JobError(type="Cancelled", message="Cancelled"),
    Outcome.WORKER_LOST: JobError(type="WorkerLost", message="Every attempt lost its worker"),
    Outcome.REJECTED: JobError(
        type="ManifestUnreadable",
        message="What the store holds of the job is no manifest: it was altered, or written by another "
        "version of cellblock than the worker's; submit it again",
    ),
}


def _closing_result(job_id: str, record: Mapping[str, str], outcome: Outcome) -> str:
    """The result of a job that the ledger itself ends."""
    return JobResult(
        job_id=job_id,
        outcome=outcome,
        error=_CLOSING[outcome],
        level=cast(LevelName, record["level"]),
        evidence={"losses": int(record["losses"]) + (outcome is Outcome.WORKER_LOST)},
        attempt=int(record["attempt"]),
        timings=_timings(record),
        worker=record.get("worker"),
        trace_id=record["trace_id"],
    ).model_dump_json()
