"""The only owner of state changes: a typed face over the Lua transitions.

Each transition is one script under scripts/, run on the server's clock and idempotent under an
operation id, so a call resent after a lost reply changes nothing. ARCHITECTURE.md draws the states.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from pydantic import ValidationError
from redis import Redis

from cellblock.admission import Manifest
from cellblock.errors import InvalidJob, RateLimited, UnknownJob
from cellblock.ledger import closing
from cellblock.ledger.closing import closing_result
from cellblock.ledger.connection import connect, store_errors
from cellblock.ledger.keys import Keys
from cellblock.ledger.reads import Reads
from cellblock.ledger.scripts import Scripts
from cellblock.ledger.server import check_schema
from cellblock.models import JobResult, JobState, Outcome
from cellblock_config import Settings

__all__ = [
    "Admission",
    "Claim",
    "Dropped",
    "Held",
    "Ledger",
    "Transition",
    "Unclaimed",
    "Wake",
    "connect",
]

_log = logging.getLogger(__name__)

Held = Literal["held", "cancel", "lost"]
#: Retries spread out: what failed together may not come back together.
_SPREAD_PERCENT = (50, 150)
#: What admit writes of every job: a record without it was not written by us.
_WRITTEN_ONCE = {
    "state",
    "tenant",
    "level",
    "priority",
    "trace_id",
    "submitted",
    "attempt",
    "losses",
    "admitted_ms",
}


class Wake(NamedTuple):
    """A job whose message has to be sent."""

    job_id: str
    priority: str


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
    wake: tuple[Wake, ...] = ()


@dataclass(frozen=True, slots=True)
class Transition:
    """What became of a job. ``wake``: jobs this lets run, to be published; the sweep is the second net."""

    job_id: str
    word: str
    wake: tuple[Wake, ...] = ()


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """A job that waits for longer than a message should take. ``overtaken``: later ones have been claimed."""

    job_id: str
    priority: str
    overtaken: bool


class Ledger(Reads):
    """All transitions of jobs, and what can be asked of them. Thread-safe.

    Every method raises :class:`StoreUnavailable` when Redis is out of reach.
    """

    def __init__(self, redis: Redis, settings: Settings, *, embedded: bool = False) -> None:
        super().__init__(redis, Keys(settings.redis.key_prefix))
        self._settings = settings.ledger
        self._scripts = Scripts(redis, embedded=embedded)
        self._schema_checked = False

    def admit(self, job_id: str, manifest: Manifest, idempotency_key: str | None = None) -> Admission:
        """Store the job and make it wait. Calling again with the same id or key changes nothing.

        Raises :class:`InvalidJob` when the key was used for a different job, :class:`RateLimited`
        when too many jobs wait already, :class:`SchemaMismatch` on a store of another version.
        """
        if not self._schema_checked:  # once: a store that is new becomes this version's with its first job
            check_schema(self._redis, self.keys)
            self._schema_checked = True
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
        idempotency = self.keys.idempotency(manifest.tenant, idempotency_key or "")
        return self._scripts.run(
            "admit",
            [*self.keys.of_job(job_id, manifest.tenant), idempotency],
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
                _ms(manifest.expires_s),
                self._settings.events_kept,
                1 if idempotency_key else 0,
                forgotten,
            ],
        )

    def claim(self, job_id: str, worker: str, operation: str) -> Claim | Dropped:
        """Become the one running attempt of a waiting job, with a fresh fence and lease.

        A job whose tenant runs all it may is parked instead: dropped, until a slot is free.
        """
        tenant = self._tenant(job_id)
        if tenant is None:
            with store_errors("forgetting an expired job"):
                self._redis.zrem(self.keys.waiting, job_id)
            return Dropped("unknown")
        settings = self._settings
        lease_ms = _ms(settings.lease_s)
        word, *values = self._scripts.run(
            "claim",
            self.keys.of_job(job_id, tenant),
            [
                job_id,
                worker,
                operation,
                lease_ms,
                settings.job_ttl_s,
                tenant,
                settings.tenant_slots,
                lease_ms,
                settings.events_kept,
            ],
        )
        if word == "parked":
            return Dropped("parked", _wakes(values))
        if word == "drop":
            return Dropped(values[0])
        fence, stored, admitted_ms, started_ms = values
        try:
            manifest = Manifest.model_validate_json(stored)
        except ValidationError:
            self._reject_unreadable(job_id, tenant, fence, operation)
            return Dropped("unreadable")
        return Claim(
            job_id,
            int(fence),
            worker,
            manifest,
            int(admitted_ms) / 1000,
            int(started_ms) / 1000,
        )

    def _reject_unreadable(self, job_id: str, tenant: str, fence: str, operation: str) -> None:
        """End a job whose stored manifest is none. Nobody could run it: trying again changes nothing."""
        result = closing_result(job_id, self._record(job_id), Outcome.REJECTED, closing.UNREADABLE)
        ending = [JobState.REJECTED, Outcome.REJECTED, result, "failures", 0, 0, 0, 100, ""]
        self._transition("finish", job_id, tenant, [fence, operation, *ending])

    def beat(
        self, worker: str, held: Sequence[tuple[str, int]], status: Mapping[str, object]
    ) -> dict[tuple[str, int], Held]:
        """Renew every lease this worker still owns, and say that the worker lives."""
        flat = [part for pair in held for part in pair]
        words = self._scripts.run(
            "beat",
            [
                self.keys.worker(worker),
                self.keys.leases,
                self.keys.workers,
                *(self.keys.job(job_id) for job_id, _ in held),
            ],
            [worker, _ms(self._settings.lease_s), _ms(3 * self._settings.beat_s), json.dumps(status), *flat],
        )
        return dict(zip(held, cast(list[Held], words), strict=True))

    def finish(self, claim: Claim, result: JobResult, operation: str) -> Transition:
        """``finished``: the job has ended with this result. ``retried``: it failed and will run again.

        ``stale``: the attempt owns nothing any more, and nothing was written.
        """
        ours = result.outcome is Outcome.SANDBOX_ERROR
        retries = self._settings.fault_retries if ours else claim.manifest.retries
        if result.outcome in {Outcome.OK, Outcome.CANCELLED, Outcome.REJECTED}:
            retries = 0
        return self._transition(
            "finish",
            claim.job_id,
            claim.manifest.tenant,
            [
                claim.fence,
                operation,
                JobState.after(result.outcome),
                result.outcome,
                result.model_dump_json(),
                "faults" if ours else "failures",
                retries,
                _ms(self._settings.retry_backoff_s),
                _ms(self._settings.retry_backoff_max_s),
                _spread(),
                self._cancelled_result(claim.job_id) if ours else "",
            ],
        )

    def _cancelled_result(self, job_id: str) -> str:
        return closing_result(job_id, self._record(job_id), Outcome.CANCELLED, closing.CANCELLED)

    def release(self, claim: Claim, operation: str) -> Transition:
        """Give the job back uncounted: ``released``, ``cancelled`` if that had been asked, or ``stale``."""
        args = [claim.fence, operation, self._cancelled_result(claim.job_id)]
        return self._transition("release", claim.job_id, claim.manifest.tenant, args)

    def cancel(self, job_id: str) -> Transition:
        """``cancelled``: a waiting job has ended now. ``requested``: its worker will stop a running one.

        ``terminal``: it had ended. Idempotent. Raises :class:`UnknownJob`.
        """
        record = self._record(job_id)
        result = closing_result(job_id, record, Outcome.CANCELLED, closing.CANCELLED)
        done = self._transition("cancel", job_id, record["tenant"], [result, self.keys.control])
        if done.word == "unknown":
            raise UnknownJob(f"no job {job_id}: never accepted here, or its result has expired")
        return done

    def revive(self, job_id: str, operation: str) -> Transition:
        """Let a dead letter run again: ``revived``, ``alive`` if it is none, ``gone`` if its payload is.

        Raises :class:`UnknownJob`.
        """
        tenant = self._tenant(job_id)
        if tenant is None:
            raise UnknownJob(f"no job {job_id}: never accepted here, or it was kept long enough")
        settings = self._settings
        args = [job_id, operation, _ms(settings.expires_s), settings.job_ttl_s, settings.events_kept]
        word, *wake = self._scripts.run("revive", self.keys.of_job(job_id, tenant), args)
        return Transition(job_id, word, _wakes(wake))

    def bury(self, job_id: str) -> bool:
        """Drop a dead letter with its payload and history; its result stays. Whether it was one."""
        (word,) = self._scripts.run("bury", self.keys.of_job(job_id, "-"), [job_id])
        return word == "buried"

    def forget_the_dead(self) -> None:
        """Drop dead letters older than ``dead_ttl_s``, and of too many the oldest with their payloads."""
        with store_errors("forgetting old dead letters"):
            before = self._now_ms() - 1000 * self._settings.dead_ttl_s
            self._redis.zremrangebyscore(self.keys.dead, "-inf", before)
            surplus = cast(list[str], self._redis.zrange(self.keys.dead, 0, -1 - self._settings.dead_kept))
        for job_id in surplus:
            self.bury(job_id)

    def extend_leases(self) -> int | None:
        """After an outage: every lease gets its full length again. None if another reaper did it just now."""
        reply, *count = self._scripts.run(
            "extend", [self.keys.leases, self.keys.extended], [_ms(self._settings.lease_s)]
        )
        return int(count[0]) if reply == "extended" else None

    def reap(self, limit: int = 100) -> Iterator[Transition]:
        """Judge up to ``limit`` jobs whose lease has run out: ``requeued``, ``lost``, ``cancelled``."""
        backoffs = ",".join(str(_ms(pause_s)) for pause_s in self._settings.loss_backoff_s)
        for job_id, record in self._overdue(self.keys.leases, limit):
            lost = closing_result(job_id, record, Outcome.WORKER_LOST, closing.WORKER_LOST)
            cancelled = closing_result(job_id, record, Outcome.CANCELLED, closing.CANCELLED)
            args = [self._settings.loss_limit, backoffs, _spread(), lost, cancelled]
            done = self._transition("reap", job_id, record["tenant"], args)
            if done.word not in {"live", "gone"}:
                yield done

    def expire(self, limit: int = 100) -> Iterator[Transition]:
        """End up to ``limit`` jobs that were not started in time: ``expired`` each."""
        for job_id, record in self._overdue(self.keys.deadlines, limit):
            late = closing_result(job_id, record, Outcome.REJECTED, closing.EXPIRED)
            done = self._transition("expire", job_id, record["tenant"], [late])
            if done.word == "expired":
                yield done

    def wake_delayed(self, limit: int = 1000) -> list[Wake]:
        """Up to ``limit`` jobs whose delay is over, now waiting, to be published."""
        wakes: list[Wake] = []
        for job_id, record in self._overdue(self.keys.delayed, limit):
            _, *woken = self._scripts.run("wake", self.keys.of_job(job_id, record["tenant"]), [job_id])
            wakes += _wakes(woken)
        return wakes

    def promote_parked(self, limit: int = 100) -> list[Wake]:
        """Jobs of up to ``limit`` tenants that have a free slot, should a promotion have been missed."""
        with store_errors("looking for parked jobs"):
            tenants = cast(list[str], self._redis.srandmember(self.keys.parked_tenants, limit))
        wakes: list[Wake] = []
        for tenant in tenants:
            args = [tenant, self._settings.tenant_slots, _ms(self._settings.lease_s)]
            _, *woken = self._scripts.run("promote", self.keys.of_job("-", tenant), args)
            wakes += _wakes(woken)
        return wakes

    def unclaimed(self, offset: int = 0, limit: int = 1000) -> list[Unclaimed]:
        """Jobs published longer than ``republish_after_s`` ago and not yet claimed, from ``offset`` on."""
        after_ms = _ms(self._settings.republish_after_s)
        with store_errors("looking for jobs without a message"):
            before = self._now_ms() - after_ms
            published = cast(
                list[tuple[str, float]],
                self._redis.zrange(
                    self.keys.waiting, "-inf", before, byscore=True, offset=offset, num=limit, withscores=True
                ),
            )
            pipe = self._redis.pipeline(transaction=False)
            pipe.hgetall(self.keys.watermarks)
            for job_id, _ in published:
                pipe.hmget(self.keys.job(job_id), ["priority", "queued_ms", "state"])
            watermarks, *found = pipe.execute()
            gone = [
                job_id
                for (job_id, _), (priority, *_) in zip(published, found, strict=True)
                if priority is None
            ]
            if gone:
                self._redis.zrem(self.keys.waiting, *gone)  # their records have expired
        unclaimed = []
        for (job_id, score), (priority, queued_ms, state) in zip(published, found, strict=True):
            if priority is not None:
                # A promoted job was queued long ago, and its message sent when it was promoted.
                sent_ms = score if state == JobState.PARKED else int(queued_ms)
                overtaken = sent_ms + after_ms < int(watermarks.get(priority, 0))
                unclaimed.append(Unclaimed(job_id, priority, overtaken))
        return unclaimed

    def republished(self, job_id: str) -> None:
        """Note that a waiting job's message was sent again; a job claimed meanwhile is left alone."""
        args = [job_id, _ms(self._settings.republish_after_s)]
        self._scripts.run("republish", self.keys.of_job(job_id, "-"), args)

    def _overdue(self, index: str, limit: int) -> Iterator[tuple[str, dict[str, str]]]:
        """(id, record) of up to ``limit`` jobs whose time in this index has passed."""
        with store_errors("looking for what is due"):
            now = self._now_ms()
            due = cast(list[str], self._redis.zrange(index, "-inf", now, byscore=True, offset=0, num=limit))
        for job_id in due:
            try:
                record = self._record(job_id)
            except UnknownJob:
                record = {}
            if record.keys() >= _WRITTEN_ONCE:
                yield job_id, record
                continue
            if record:
                _log.error("the record of job %s is not whole: %s leaves it alone now", job_id, index)
            with store_errors("forgetting a job without a record"):
                self._redis.zrem(index, job_id)

    def _transition(self, name: str, job_id: str, tenant: str, args: Sequence[object]) -> Transition:
        settings = self._settings
        common = [
            tenant,
            settings.tenant_slots,
            _ms(settings.lease_s),
            settings.result_ttl_s,
            settings.dead_ttl_s,
            settings.events_kept,
            self.keys.done(job_id),
        ]
        word, *wake = self._scripts.run(name, self.keys.of_job(job_id, tenant), [job_id, *args, *common])
        return Transition(job_id, word, () if word in {"stale", "terminal"} else _wakes(wake))


def _spread() -> int:
    return random.randint(*_SPREAD_PERCENT)  # noqa: S311 - nobody gains by guessing it


def _wakes(flat: Sequence[str]) -> tuple[Wake, ...]:
    return tuple(Wake(job_id, priority) for job_id, priority in zip(flat[::2], flat[1::2], strict=True))


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _digest(manifest: Manifest) -> str:
    """What makes two submissions the same job: everything but when and under which trace it was sent."""
    same = manifest.model_dump_json(exclude={"submitted", "trace_id", "signature"})
    return hashlib.sha256(same.encode()).hexdigest()
