"""The worker's two clocks: the heart renews leases and stops lost ones, the reaper heals lost messages."""

from __future__ import annotations

import json
import select
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from redis import Redis

from cellblock.ledger import Claim, Ledger, connect
from cellblock.queue import Publisher, queue_key
from cellblock_config import Settings, load_settings
from cellblock_workers.lease import Heart, Lease
from cellblock_workers.worker.reaper import Reaper
from ledger.kit import admit, claim, expire_lease, operation, settings_of
from parts import RedisServer, wait_until

pytestmark = pytest.mark.no_rerun

QUICK = {"lease_s": 1.0, "beat_s": 0.1, "republish_after_s": 0.2, "reap_s": 0.05}


def ready() -> Mapping[str, object]:
    return {"state": "ready"}


def has_to_stop(lease: Lease) -> bool:
    """What a session sees: its poll() on the lease."""
    return bool(select.select([lease], [], [], 0)[0])


@pytest.fixture
def heart(ledger: Ledger, settings: Settings) -> Heart:
    return Heart(ledger, "w1", settings.ledger, ready)


def test_a_held_lease_goes_on(heart: Heart, ledger: Ledger, settings: Settings) -> None:
    admit(ledger)
    with heart.hold(claim(ledger)) as lease, connect(settings) as redis:
        expire_lease(ledger, redis)
        heart.beat()
        assert (lease.stopped, has_to_stop(lease), heart.held()) == (None, False, 1)
        assert list(ledger.upkeep.reap()) == [], "the beat renewed it"
    assert heart.held() == 0
    assert ledger.figures.workers() == {"w1": {"state": "ready"}}


def test_a_cancelled_job_has_to_stop(heart: Heart, ledger: Ledger) -> None:
    admit(ledger, "job")
    admit(ledger, "other")
    with heart.hold(claim(ledger, "job")) as lease, heart.hold(claim(ledger, "other")) as other:
        ledger.cancel("job")
        heart.beat()
        assert (lease.stopped, has_to_stop(lease)) == ("cancel", True)
        assert (other.stopped, has_to_stop(other)) == (None, False)


def test_a_lost_lease_has_to_stop_also_when_it_was_cancelled(
    heart: Heart, ledger: Ledger, settings: Settings
) -> None:
    admit(ledger)
    with heart.hold(claim(ledger)) as lease, connect(settings) as redis:
        ledger.cancel("job")
        heart.beat()
        expire_lease(ledger, redis)
        list(ledger.upkeep.reap())
        heart.beat()
        assert (lease.stopped, has_to_stop(lease)) == ("lost", True)


def test_a_beat_renews_no_lease_that_it_did_not_name(
    heart: Heart, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: a job is claimed while the beat is under way."""
    admit(ledger)
    beat = ledger.beat
    with ExitStack() as stack:
        held: list[Lease] = []

        def slow(*given: Any) -> Any:
            held.append(stack.enter_context(heart.hold(claim(ledger), sent=1.0)))
            return beat(*given)

        monkeypatch.setattr(ledger, "beat", slow)
        heart.beat()
        assert held[0].renewed == 1.0


def test_a_cancel_between_the_claim_and_its_lease_is_not_forgotten(heart: Heart, ledger: Ledger) -> None:
    admit(ledger)
    held = claim(ledger)
    ledger.cancel("job")
    heart.nudge("job")
    heart.nudge("of another host")
    with heart.hold(held):
        assert heart._nudged.is_set(), "the next beat is now"


def test_a_beating_heart_keeps_a_short_lease_alive(redis_url: str) -> None:
    settings = load_settings(redis={"url": redis_url}, ledger=QUICK)
    with connect(settings) as redis:
        ledger = Ledger(redis, settings)
        heart = Heart(ledger, "w1", settings.ledger, ready)
        admit(ledger)
        heart.start()
        with heart.hold(claim(ledger)) as lease:
            until = time.monotonic() + 2 * settings.ledger.lease_s
            wait_until(
                lambda: list(ledger.upkeep.reap()) or time.monotonic() > until, what="two leases passing"
            )
            assert ledger.reads.status("job").losses == 0
            assert lease.stopped is None
        heart.stop()


def test_an_outage_longer_than_the_lease_stops_every_attempt(own_redis: RedisServer) -> None:
    settings = load_settings(redis={"url": own_redis.url}, ledger=QUICK)
    with connect(settings) as redis:
        ledger = Ledger(redis, settings)
        heart = Heart(ledger, "w1", settings.ledger, ready)
        admit(ledger)
        with heart.hold(claim(ledger)) as lease:
            asked = time.monotonic()  # a lease is counted from when it was asked for
            heart.beat()
            own_redis.stop()
            heart.beat()
            assert lease.stopped is None, "a short outage stops nothing"
            heart.start()
            assert wait_until(lambda: lease.stopped, 10, "the attempt being stopped") == "lost"
            assert time.monotonic() - asked >= settings.ledger.lease_s
            assert has_to_stop(lease)
        heart.stop()


def test_a_defect_in_the_workers_status_does_not_stop_the_heart(redis_url: str) -> None:
    """Injected: the status callback raises on its first two calls."""
    settings = load_settings(redis={"url": redis_url}, ledger=QUICK)
    calls: list[int] = []

    def status() -> Mapping[str, object]:
        calls.append(1)
        if len(calls) <= 2:
            raise RuntimeError("defect")
        return {"state": "ready"}

    with connect(settings) as redis:
        ledger = Ledger(redis, settings)
        heart = Heart(ledger, "w1", settings.ledger, status)
        heart.start()
        assert wait_until(ledger.figures.workers, what="a beat") == {"w1": {"state": "ready"}}
        heart.stop()


Fleet = tuple[Reaper, Ledger, Redis]


@contextmanager
def reaping(settings: Settings) -> Iterator[Fleet]:
    """A reaper not yet ticking, with the ledger and the broker it looks after."""
    with connect(settings) as redis:
        ledger = Ledger(redis, settings)
        yield Reaper(ledger, Publisher(redis, settings), redis, settings, worker="w"), ledger, redis


@pytest.fixture
def fleet(redis_url: str) -> Iterator[Fleet]:
    with reaping(load_settings(redis={"url": redis_url}, ledger=QUICK)) as opened:
        yield opened


def messages(redis: Redis) -> list[list[str]]:
    """The job ids of each message in the queue, oldest last."""
    bodies = [json.loads(message)["body"] for message in redis.lrange(queue_key(load_settings()), 0, -1)]
    return [json.loads(body)[0][0] for body in bodies]


def tick_until_published(reaper: Reaper, redis: Redis) -> None:
    def published() -> bool:
        reaper.tick()
        return bool(messages(redis))

    wait_until(published, 5, "the message")


def age(ledger: Ledger, redis: Redis, job_id: str) -> None:
    """Injected: the job was published long ago."""
    redis.hset(ledger.keys.job(job_id), "queued_ms", 1)


def test_jobs_without_a_message_are_published_again(fleet: Fleet) -> None:
    reaper, ledger, redis = fleet
    for number in range(3):
        admit(ledger, f"lost{number}")
    reaper.tick()
    assert messages(redis) == [], "their messages may still be under way"
    tick_until_published(reaper, redis)
    assert messages(redis) == [["lost2"], ["lost1"], ["lost0"]]
    reaper.tick()
    assert len(messages(redis)) == 3, "the copies wait in the queue: no second ones"


def test_copies_are_as_many_as_could_run(fleet: Fleet) -> None:
    reaper, ledger, redis = fleet
    with settings_of(ledger, tenant_slots=2):
        for number in range(10):
            admit(ledger, f"job{number}")
        age(ledger, redis, "job0")
        reaper.tick()
    assert messages(redis) == [["job1"], ["job0"]]


def test_a_backlog_is_not_flooded_with_copies(fleet: Fleet) -> None:
    reaper, ledger, redis = fleet
    redis.rpush(queue_key(load_settings()), "{}")  # somebody's message waits
    for number in range(10):
        admit(ledger, f"job{number}")
        age(ledger, redis, f"job{number}")
    reaper.tick()
    assert redis.llen(queue_key(load_settings())) == 1


def test_a_message_lost_in_a_busy_queue_costs_its_job_nothing(fleet: Fleet) -> None:
    """A worker that took the message from the queue died: its job runs for another's message in its turn."""
    _, ledger, _ = fleet
    for name in ("lost", "later"):
        admit(ledger, name)
    held = ledger.claims.claim_next(message="later", worker="w1", operation=operation())
    assert isinstance(held, Claim)
    assert held.job_id == "lost"


def test_a_broker_that_is_away_does_not_keep_lost_jobs_from_being_found(redis_url: str) -> None:
    """A queue that cannot be asked says nothing of the ledger: leases must not be extended for it."""
    settings = load_settings(redis={"url": redis_url, "broker_url": "redis://127.0.0.1:1"}, ledger=QUICK)
    with connect(settings) as redis, connect(settings, broker=True) as broker:
        ledger = Ledger(redis, settings)
        reaper = Reaper(ledger, Publisher(broker, settings), broker, settings, worker="w")
        admit(ledger, "lost")
        claim(ledger, "lost")
        admit(ledger, "waits")
        age(ledger, redis, "waits")
        reaper.start()
        wait_until(lambda: ledger.reads.status("lost").losses == 1, 10, "the lost job being judged")
        reaper.stop()


def test_a_reaper_that_was_just_started_judges_nobody_by_an_outage_it_did_not_see(fleet: Fleet) -> None:
    """Injected: the store was away for most of a lease, and others held leases meanwhile."""
    reaper, ledger, redis = fleet
    admit(ledger)
    claim(ledger)
    ledger.upkeep.tick(reaper._name)
    redis.hincrby(ledger.keys.upkeep, "ticked_ms", -round(900 * QUICK["lease_s"]))
    expire_lease(ledger, redis)
    reaper.tick()
    assert ledger.reads.status("job").losses == 0


def test_a_claimed_job_is_not_published_again(fleet: Fleet) -> None:
    reaper, ledger, redis = fleet
    admit(ledger)
    age(ledger, redis, "job")
    claim(ledger)
    reaper.tick()
    assert messages(redis) == []


def test_a_lost_workers_job_is_published_at_once(fleet: Fleet) -> None:
    reaper, ledger, redis = fleet
    admit(ledger, "lost")
    claim(ledger, "lost")
    expire_lease(ledger, redis, "lost")
    reaper.tick()
    assert messages(redis) == [["lost"]]


def test_a_forgotten_job_holds_nobody_up(fleet: Fleet) -> None:
    reaper, ledger, redis = fleet
    admit(ledger, "forgotten")
    redis.delete(ledger.keys.job("forgotten"))  # as its ttl does
    reaper.tick()
    admit(ledger, "next")
    claim(ledger, "next")
    assert (
        redis.exists(ledger.keys.ready("default"), ledger.keys.line("default"), ledger.keys.lane_heads) == 0
    )
    assert ledger.figures.depth() == 0


def test_the_reapers_thread_outlives_an_outage(own_redis: RedisServer) -> None:
    with reaping(load_settings(redis={"url": own_redis.url}, ledger=QUICK)) as (reaper, ledger, redis):
        admit(ledger)
        claim(ledger)
        own_redis.stop()
        reaper.start()
        own_redis.start()  # appendonly: the job is still there, its lease runs out meanwhile
        wait_until(lambda: ledger.reads.status("job").losses, 10, "the reaper's verdict")
        assert wait_until(lambda: messages(redis), 10, "the message") == [["job"]]
        reaper.stop()
