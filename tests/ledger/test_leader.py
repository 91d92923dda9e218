"""One of all workers leads the upkeep: taken over in time, and fenced."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from redis import Redis

from cellblock.ledger import Following, Ledger, connect
from cellblock.queue import Publisher
from cellblock_config import Settings, load_settings
from cellblock_workers.worker.reaper import Reaper
from ledger.kit import STORES, admit, claim, expire_lease, finish, lead, open_ledger
from parts import wait_until

pytestmark = pytest.mark.no_rerun

Store = tuple[Ledger, Redis]
TAKEN_OVER_S = 5


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Store]:
    with open_ledger(request.param, redis_url) as opened:
        yield opened


def test_one_leads_and_another_follows_and_may_lead_when_it_is_over(store: Store) -> None:
    ledger, redis = store
    first = lead(ledger, "first")
    following = ledger.upkeep.tick("second")
    assert isinstance(following, Following)
    assert 2 < following.ends_in_s <= 3
    assert lead(ledger, "first").epoch == first.epoch, "it goes on"
    redis.delete(ledger.keys.leader)  # Injected: as time does
    assert lead(ledger, "second").epoch == first.epoch + 1
    assert isinstance(ledger.upkeep.tick("first"), Following)


def test_who_resigns_leaves_the_lead_to_the_next_and_takes_it_from_nobody(store: Store) -> None:
    ledger, _ = store
    lead(ledger, "first")
    ledger.upkeep.resign("second")
    assert isinstance(ledger.upkeep.tick("second"), Following)
    ledger.upkeep.resign("first")
    lead(ledger, "second")


def test_a_leader_that_was_replaced_changes_nothing_any_more(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    finish(ledger, claim(ledger))
    stale = lead(ledger, "frozen")
    redis.delete(ledger.keys.leader)  # Injected: it was frozen for longer than its lead
    lead(ledger, "second")
    redis.hset(ledger.keys.job("job"), "finished_ms", 1)
    for keeper in redis.zrange(ledger.keys.keepers, 0, -1):
        redis.zadd(ledger.keys.keepers, {str(keeper): 1})
    ledger._store.settings = ledger._store.settings.model_copy(update={"events_ttl_s": -10})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cellblock.ledger.retention._WORK_S", 0.1)  # it would ask again and again
        assert ledger.retention.make_room(stale) == 0
    assert ledger.upkeep.trim_events(stale) == 0
    assert ledger.reads.result("job") is not None
    assert len(ledger.reads.events()) == 3


@contextmanager
def reapers(redis_url: str, count: int) -> Iterator[list[Reaper]]:
    settings = load_settings(redis={"url": redis_url})
    with ExitStack() as stack:
        started = []
        for number in range(count):
            redis = stack.enter_context(connect(settings))
            publisher = Publisher(redis, settings)
            reaper = Reaper(Ledger(redis, settings), publisher, redis, settings, worker=f"w{number}")
            reaper.start()
            stack.callback(reaper.stop)
            started.append(reaper)
        yield started


def leader_of(redis: Redis, settings: Settings) -> str:
    return str(redis.get(f"{settings.redis.key_prefix}:leader") or "")


@pytest.mark.parametrize("how", ["dies", "ends"])
def test_another_takes_over_in_time_and_lost_jobs_are_found(
    redis_url: str, settings: Settings, how: str
) -> None:
    with reapers(redis_url, 5) as started, connect(settings) as redis:
        ledger = Ledger(redis, settings)
        first = wait_until(lambda: leader_of(redis, settings), 5, "a leader")
        leading = next(reaper for reaper in started if reaper._name == first)
        admit(ledger)
        claim(ledger)
        if how == "dies":  # Injected: its thread does no more, and it gives nothing up
            leading._closing.set()
            leading._thread.join()
            leading._leads = False
        else:
            leading.stop()
        expire_lease(ledger, redis)
        gone = time.monotonic()
        wait_until(lambda: leader_of(redis, settings) not in {"", first}, 10, "another leading")
        took_s = time.monotonic() - gone
        assert took_s < TAKEN_OVER_S
        wait_until(lambda: ledger.reads.status("job").losses == 1, 5, "the lost job being judged")
        wait_until(lambda: ledger.reads.status("job").state == "queued", 5, "and waiting again")


def test_only_the_leader_works(redis_url: str, settings: Settings) -> None:
    """A follower asks for the lead once a lease, in one command."""
    with reapers(redis_url, 10), connect(settings) as redis:
        wait_until(lambda: leader_of(redis, settings), 5, "a leader")
        time.sleep(1)
        before = redis.info("stats")["total_commands_processed"]
        time.sleep(4)
        a_second = (redis.info("stats")["total_commands_processed"] - before) / 4
        print(f"{a_second:.0f} commands a second")
        assert a_second < 80, "one of them works"
