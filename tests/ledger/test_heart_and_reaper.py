"""The worker's two clocks: the heart renews leases and stops lost ones, the reaper heals lost messages."""

from __future__ import annotations

import base64
import json
import select
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from cellblock.broker import Publisher, create_celery, queue_key
from cellblock.ledger import Ledger, connect
from cellblock_config import Settings, load_settings
from cellblock_workers.worker.lease import Heart, Lease
from cellblock_workers.worker.reaper import Reaper
from ledger.kit import admit, claim, expire_lease
from parts import RedisServer, wait_until

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
        assert list(ledger.reap()) == [], "the beat renewed it"
    assert heart.held() == 0
    assert ledger.workers() == {"w1": {"state": "ready"}}


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
        list(ledger.reap())
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
            held.append(stack.enter_context(heart.hold(claim(ledger), asked=1.0)))
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
            wait_until(lambda: list(ledger.reap()) or time.monotonic() > until, what="two leases passing")
            assert ledger.status("job").losses == 0
            assert lease.stopped is None
        heart.stop()


def test_an_outage_longer_than_the_lease_stops_every_attempt(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    server.start()
    settings = load_settings(redis={"url": server.url}, ledger=QUICK)
    with connect(settings) as redis:
        ledger = Ledger(redis, settings)
        heart = Heart(ledger, "w1", settings.ledger, ready)
        admit(ledger)
        with heart.hold(claim(ledger)) as lease:
            heart.beat()
            renewed = time.monotonic()
            server.stop()
            heart.beat()
            assert lease.stopped is None, "a short outage stops nothing"
            heart.start()
            assert wait_until(lambda: lease.stopped, 10, "the attempt being stopped") == "lost"
            assert time.monotonic() - renewed >= settings.ledger.lease_s
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
        assert wait_until(ledger.workers, what="a beat") == {"w1": {"state": "ready"}}
        heart.stop()


Fleet = tuple[Reaper, Ledger, Redis]


@contextmanager
def reaping(settings: Settings) -> Iterator[Fleet]:
    """A reaper not yet ticking, with the ledger and the broker it looks after."""
    app = create_celery(settings)
    with connect(settings) as redis:
        ledger = Ledger(redis, settings)
        yield Reaper(ledger, Publisher(app), redis, settings), ledger, redis
    app.close()


@pytest.fixture
def fleet(redis_url: str) -> Iterator[Fleet]:
    with reaping(load_settings(redis={"url": redis_url}, ledger=QUICK)) as opened:
        yield opened


def messages(redis: Redis, priority: str = "normal") -> list[list[str]]:
    """The job ids of each message in a queue, oldest last."""
    bodies = [
        json.loads(message)["body"] for message in redis.lrange(queue_key(load_settings(), priority), 0, -1)
    ]
    return [json.loads(base64.b64decode(body))[0][0] for body in bodies]


def tick_until_published(reaper: Reaper, redis: Redis, priority: str = "normal") -> None:
    def published() -> bool:
        reaper.tick()
        return bool(messages(redis, priority))

    wait_until(published, 5, "the message")


def age(ledger: Ledger, redis: Redis, job_id: str) -> None:
    """Injected: the job was published long ago."""
    redis.zadd(ledger.keys.waiting, {job_id: 1}, xx=True)


@pytest.mark.parametrize("priority", ["high", "normal", "low"])
def test_a_job_without_a_message_is_published_again_in_its_class(fleet: Fleet, priority: str) -> None:
    reaper, ledger, redis = fleet
    admit(ledger, "lost", priority=priority)
    reaper.tick()
    assert messages(redis, priority) == [], "its message may still be under way"
    tick_until_published(reaper, redis, priority)
    assert messages(redis, priority) == [["lost"]]
    age(ledger, redis, "lost")
    reaper.tick()
    assert len(messages(redis, priority)) == 1, "the copy waits in the queue: no second one"


def test_republishing_waits_its_time_again(fleet: Fleet) -> None:
    reaper, ledger, redis = fleet
    admit(ledger, "lost")
    age(ledger, redis, "lost")
    reaper.tick()
    redis.delete(queue_key(load_settings(), "normal"))  # this message is lost too
    reaper.tick()
    assert messages(redis) == []
    tick_until_published(reaper, redis)


def test_a_backlog_is_not_flooded_with_copies(fleet: Fleet) -> None:
    reaper, ledger, redis = fleet
    redis.rpush(queue_key(load_settings(), "normal"), "{}")  # somebody's message waits
    for number in range(10):
        admit(ledger, f"job{number}")
        age(ledger, redis, f"job{number}")
    reaper.tick()
    assert redis.llen(queue_key(load_settings(), "normal")) == 1


def test_a_message_lost_in_a_busy_queue_shows_by_being_overtaken(fleet: Fleet) -> None:
    """A worker that took the message from the queue died before Celery had noted it."""
    reaper, ledger, redis = fleet
    queue = queue_key(load_settings(), "normal")
    admit(ledger, "lost")
    time.sleep(2 * QUICK["republish_after_s"])
    for name in ("later", "waits"):
        admit(ledger, name)
    redis.rpush(queue, "{}")  # the queue is not empty
    age(ledger, redis, "lost")
    reaper.tick()
    assert redis.llen(queue) == 1, "nothing that was queued later has been claimed"
    claim(ledger, "later")
    for _ in range(2):  # every other tick begins at the oldest again
        reaper.tick()
    assert redis.llen(queue) == 2
    age(ledger, redis, "waits")
    for _ in range(2):
        reaper.tick()
    assert redis.llen(queue) == 2, "not sent again at once, and what came after it is not concerned"


def test_a_wrong_guess_is_repeated_ever_more_slowly(fleet: Fleet) -> None:
    _, ledger, redis = fleet
    admit(ledger)
    gaps = []
    for _ in range(4):
        redis.zadd(ledger.keys.waiting, {"job": 1})  # Injected: its time has come again
        ledger.republished("job")
        ledger.republished("job")  # sent again after a lost reply: nothing
        score = redis.zscore(ledger.keys.waiting, "job")
        assert score is not None
        gaps.append(score / 1000 - time.time())
    assert [round(gap / QUICK["republish_after_s"]) for gap in gaps] == [0, 1, 3, 7]


def test_a_broker_that_is_away_does_not_keep_lost_jobs_from_being_found(redis_url: str) -> None:
    """A queue that cannot be asked says nothing of the ledger: leases may not be extended for it."""
    settings = load_settings(redis={"url": redis_url, "broker_url": "redis://127.0.0.1:1"}, ledger=QUICK)
    app = create_celery(settings)
    with connect(settings) as redis, connect(settings, broker=True) as broker:
        ledger = Ledger(redis, settings)
        reaper = Reaper(ledger, Publisher(app), broker, settings)
        admit(ledger, "waits")
        age(ledger, redis, "waits")
        admit(ledger, "lost")
        claim(ledger, "lost")
        reaper.start()
        wait_until(lambda: ledger.status("lost").losses == 1, 10, "the lost job being judged")
        reaper.stop()
    app.close()


def test_a_reaper_that_was_just_started_judges_nobody_by_an_outage_it_did_not_see(fleet: Fleet) -> None:
    """Injected: the store was away for most of a lease, and others held leases meanwhile."""
    reaper, ledger, redis = fleet
    admit(ledger)
    claim(ledger)
    ledger.tick()
    redis.decrby(ledger.keys.ticked, round(900 * QUICK["lease_s"]))
    expire_lease(ledger, redis)
    reaper.tick()
    assert ledger.status("job").losses == 0


def test_a_claimed_job_is_not_published_again(fleet: Fleet) -> None:
    reaper, ledger, redis = fleet
    admit(ledger)
    age(ledger, redis, "job")
    claim(ledger)
    reaper.tick()
    assert messages(redis) == []


def test_a_lost_workers_job_is_published_at_once(fleet: Fleet) -> None:
    reaper, ledger, redis = fleet
    admit(ledger, "lost", priority="high")
    claim(ledger, "lost")
    expire_lease(ledger, redis, "lost")
    reaper.tick()
    assert messages(redis, "high") == [["lost"]]


def test_a_forgotten_job_leaves_the_waiting_and_is_not_published(fleet: Fleet) -> None:
    reaper, ledger, redis = fleet
    admit(ledger)
    age(ledger, redis, "job")
    redis.delete(ledger.keys.job("job"))  # as its ttl does
    reaper.tick()
    assert messages(redis) == []
    assert ledger.depth() == 0


def test_the_reapers_thread_outlives_an_outage(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    server.start()
    with reaping(load_settings(redis={"url": server.url}, ledger=QUICK)) as (reaper, ledger, redis):
        admit(ledger)
        claim(ledger)
        server.stop()
        reaper.start()
        server.start()  # appendonly: the job is still there, its lease runs out meanwhile
        wait_until(lambda: ledger.status("job").losses, 10, "the reaper's verdict")
        assert wait_until(lambda: messages(redis), 10, "the message") == [["job"]]
        reaper.stop()
    server.stop()
