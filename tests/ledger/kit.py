"""What the ledger's tests share: jobs, results, a Redis of either kind, and a look at all it holds."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import fakeredis
from redis import Redis

from cellblock import Event, JobResult, JobSpec, Outcome, Timings
from cellblock.admission.gates import Gates
from cellblock.admission.idempotency import IdempotencyKey
from cellblock.admission.resolve import Manifest, resolve
from cellblock.ledger import Claim, Dropped, Ledger, Round, connect
from cellblock_config import Settings, load_settings

#: Embedded runs use fakeredis, so the scripts have to mean the same there.
STORES = ("redis", "fakeredis")
#: Examples of a state machine. On fakeredis the same scripts run, so a quarter is enough there.
EXAMPLES = int(os.environ.get("EXAMPLES", "60"))
EXAMPLES_ON = {"redis": EXAMPLES, "fakeredis": max(1, EXAMPLES // 4)}

#: A plan that refuses nothing; tests bound it by what they are about.
OPEN = Gates(
    plan="open",
    weight=1,
    parallel=1000,
    emission_us=1,
    burst=10**6,
    runs_per_day=10**6,
    queue_depth=10**6,
    reserve_micros=0,
    budget_micros=10**9,
    result_ttl_s=3600,
)


@contextmanager
def open_ledger(store: str, redis_url: str, **groups: Any) -> Iterator[tuple[Ledger, Redis]]:
    """A ledger on an empty store of this kind, and the store. No pauses, unless the test is about them."""
    groups["ledger"] = {"loss_backoff_s": (0.0,), "fault_retries": 0, **groups.get("ledger", {})}
    settings = load_settings(**{"redis": {"url": redis_url}, **groups})
    if store == "fakeredis":
        redis = cast(Redis, fakeredis.FakeRedis(server=fakeredis.FakeServer(), decode_responses=True))
    else:
        redis = connect(settings)
    try:
        yield Ledger(redis, settings, embedded=isinstance(redis, fakeredis.FakeRedis)), redis
    finally:
        redis.close()


def manifest(settings: Settings | None = None, **fields: Any) -> Manifest:
    """A small job, resolved."""
    return resolve(JobSpec(**{"code": "pass", **fields}), settings or load_settings())


def once(**fields: Any) -> IdempotencyKey:
    """The idempotency key of such a job."""
    key = IdempotencyKey.of(JobSpec(**{"code": "pass", "idempotency_key": "key", **fields}))
    assert key is not None
    return key


def operation() -> str:
    """A fresh operation id."""
    return secrets.token_hex(8)


def admit(ledger: Ledger, job_id: str = "job", **fields: Any) -> str:
    """Accept a job of this id."""
    assert ledger.admissions.admit(job_id, manifest(**fields)).fresh
    return job_id


def claim(ledger: Ledger, job_id: str = "job", worker: str = "w1") -> Claim:
    """Claim a job that has to be the next one."""
    claimed = ledger.claims.claim_next(message=job_id, worker=worker, operation=operation())
    assert not isinstance(claimed, Dropped), claimed
    assert claimed.job_id == job_id, "another job was next"
    return claimed


def result_of(held: Claim, outcome: Outcome = Outcome.OK, **fields: Any) -> JobResult:
    """What a worker would write for this attempt."""
    return JobResult(
        job_id=held.job_id,
        outcome=outcome,
        level=held.manifest.level,
        attempt=held.fence,
        worker=held.worker,
        trace_id=held.manifest.trace_id,
        timings=Timings(submitted=held.manifest.submitted, admitted=held.admitted, started=held.started),
        **fields,
    )


def finish(ledger: Ledger, held: Claim, outcome: Outcome = Outcome.OK) -> bool:
    """End an attempt."""
    return ledger.finish(held, result_of(held, outcome), operation()).word == "finished"


def expire_lease(ledger: Ledger, redis: Redis, job_id: str = "job") -> None:
    """Injected: the lease's end is moved into the past, as if ten seconds had gone without a beat."""
    redis.zadd(ledger.keys.leases, {job_id: 1}, xx=True)
    assert redis.zscore(ledger.keys.leases, job_id) == 1, "there was a lease"


def be_late(ledger: Ledger, redis: Redis, job_id: str = "job") -> None:
    """Injected: the job's deadline is moved into the past, as if it had waited for too long."""
    redis.hset(ledger.keys.job(job_id), "expires_ms", 1)
    redis.zadd(ledger.keys.deadlines, {job_id: 1}, xx=True)


def leave(ledger: Ledger, redis: Redis, job_id: str = "job", tenant: str = "default") -> None:
    """Injected: an ended job's time in the store is over; and a round of upkeep that sees it."""
    redis.hset(ledger.keys.job(job_id), "finished_ms", 1)
    for keeper in redis.zrange(ledger.keys.keepers, 0, -1):
        if str(keeper).startswith(f"{tenant} "):
            redis.zadd(ledger.keys.keepers, {str(keeper): 1})
    ledger.retention.make_room(lead(ledger))


def lead(ledger: Ledger, leader: str = "w", *, failed: bool = False) -> Round:
    """A round of upkeep that has begun; nobody else leads."""
    begun = ledger.upkeep.tick(leader, failed=failed)
    assert isinstance(begun, Round), begun
    return begun


@contextmanager
def settings_of(ledger: Ledger, **changed: object) -> Iterator[None]:
    """Injected: while the block runs, this ledger works under other settings."""
    before = ledger._store.settings
    ledger._store.settings = before.model_copy(update=changed)
    try:
        yield
    finally:
        ledger._store.settings = before


def dump(redis: Redis) -> dict[str, Any]:
    """Everything the store holds, by key: what "nothing changed" is compared with."""
    readers: dict[str, Callable[[str], Any]] = {
        "string": redis.get,
        "hash": redis.hgetall,
        "list": lambda key: redis.lrange(key, 0, -1),
        "set": redis.smembers,
        "zset": lambda key: redis.zrange(key, 0, -1, withscores=True),
        "stream": redis.xrange,
    }
    keys = sorted(cast(list[str], redis.keys("*")))
    return {key: readers[str(redis.type(key))](key) for key in keys}


def events_of(ledger: Ledger, job_id: str = "job") -> list[Event]:
    """The job's events, oldest first."""
    return [event for event in ledger.reads.events(limit=10_000) if event.job_id == job_id]


def story(ledger: Ledger, job_id: str = "job") -> list[str]:
    """The job's events by their last word."""
    return [event.type.removeprefix("agent.run.") for event in events_of(ledger, job_id)]


class FakeWorker:
    """Injected in place of a worker: claims and finishes through the ledger, with no sandbox between.

    ``may_end`` decides which of the jobs it claimed it ends now; by default all, oldest first.
    """

    def __init__(
        self, settings: Settings, may_end: Callable[[list[str]], list[str]] = lambda ids: ids
    ) -> None:
        self._redis = connect(settings)
        self._ledger = Ledger(self._redis, settings, embedded=isinstance(self._redis, fakeredis.FakeRedis))
        self._may_end = may_end
        self._held: dict[str, Claim] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="fake-worker")
        self.most_waiting = 0

    def __enter__(self) -> FakeWorker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._redis.close()

    def _work(self) -> None:
        while not self._stop.wait(0.001):
            ready = cast(list[str], self._redis.zrange(self._ledger.keys.ready("default"), 0, -1))
            for job_id in ready:
                held = claim(self._ledger, job_id, "fake")
                self._held[job_id] = held
            self.most_waiting = max(self.most_waiting, len(self._held))
            fences = [(held.job_id, held.fence) for held in self._held.values()]
            for (job_id, _), (word, _) in self._ledger.beat("fake", fences, {}).items():
                if word == "cancel":
                    held = self._held.pop(job_id)
                    self._ledger.finish(held, result_of(held, Outcome.CANCELLED), operation())
            for job_id in self._may_end(list(self._held)):
                held = self._held.pop(job_id)
                self._ledger.finish(held, result_of(held, stdout=held.manifest.code), operation())
