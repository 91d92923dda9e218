"""A tenant runs no more jobs at once than it may; the others are parked and promoted in their order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from cellblock import JobState, Outcome, RateLimited
from cellblock.ledger import Dropped, Ledger, Wake
from ledger.kit import (
    STORES,
    admit,
    be_late,
    claim,
    expire_lease,
    finish,
    open_ledger,
    operation,
    result_of,
    settings_of,
    story,
)

Store = tuple[Ledger, Redis]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Store]:
    with open_ledger(request.param, redis_url, ledger={"tenant_slots": 1}) as opened:
        yield opened


def park(ledger: Ledger, *job_ids: str) -> None:
    """Deliver each of these; every one has to wait."""
    for job_id in job_ids:
        admit(ledger, job_id)
        assert ledger.claim(job_id, "w1", operation()) == Dropped("parked")


def test_a_job_over_the_bound_is_parked_and_the_end_of_another_promotes_it(store: Store) -> None:
    ledger, redis = store
    admit(ledger, "first")
    held = claim(ledger, "first")
    park(ledger, "second", "third")
    assert ledger.status("second").state is JobState.PARKED
    assert redis.zrange(ledger.keys.waiting, 0, -1) == [], "no sweep sends its message again"
    done = ledger.finish(held, result_of(held), operation())
    assert done.wake == (Wake("second", "normal"),)
    assert finish(ledger, claim(ledger, "second"))
    assert finish(ledger, claim(ledger, "third"))
    assert story(ledger, "second") == ["queued", "started", "succeeded"]
    assert redis.exists(ledger.keys.parked_tenants, ledger.keys.slots("default")) == 0


def test_other_tenants_are_not_concerned(store: Store) -> None:
    ledger, _ = store
    admit(ledger, "first")
    claim(ledger, "first")
    admit(ledger, "other", tenant="acme")
    claim(ledger, "other")


def test_a_newcomer_does_not_overtake_what_was_promoted(store: Store) -> None:
    ledger, _ = store
    admit(ledger, "first")
    held = claim(ledger, "first")
    park(ledger, "second")
    finish(ledger, held)
    park(ledger, "late")
    claim(ledger, "second")


@pytest.mark.parametrize("how", ["release", "cancel", "lost", "expired"])
def test_every_way_out_of_a_slot_promotes(store: Store, how: str) -> None:
    ledger, redis = store
    admit(ledger, "first")
    if how != "expired":
        held = claim(ledger, "first")
    else:
        admit(ledger, "zeroth")
        earlier = claim(ledger, "zeroth")
        assert ledger.claim("first", "w1", operation()) == Dropped("parked")
        finish(ledger, earlier)  # so that a slot is kept for the first one, which then is too late
    park(ledger, "second")
    second = Wake("second", "normal")
    if how == "release":
        assert second in ledger.release(held, operation()).wake
    elif how == "lost":
        expire_lease(ledger, redis, "first")
        assert [second in done.wake for done in ledger.reap()] == [True]
    elif how == "expired":
        be_late(ledger, redis, "first")
        assert [done.wake for done in ledger.expire()] == [(second,)]
    else:
        ledger.cancel("first")
        assert ledger.finish(held, result_of(held, Outcome.CANCELLED), operation()).wake == (second,)


def test_a_lease_that_ran_out_holds_its_slot_until_it_is_reaped(store: Store) -> None:
    """Its worker may beat again first: then the tenant would run one more than it may."""
    ledger, redis = store
    admit(ledger, "first")
    held = claim(ledger, "first")
    expire_lease(ledger, redis, "first")
    park(ledger, "second")
    ledger.beat("w1", [("first", held.fence)], {})
    assert finish(ledger, held)
    claim(ledger, "second")


def test_a_slot_of_nobody_is_free(store: Store) -> None:
    ledger, redis = store
    admit(ledger, "first")
    claim(ledger, "first")
    redis.delete(ledger.keys.job("first"))  # Injected: its record is gone while it runs
    expire_lease(ledger, redis, "first")
    assert list(ledger.reap()) == []
    admit(ledger, "second")
    claim(ledger, "second")


def test_a_promotion_nobody_heard_of_is_made_good(store: Store) -> None:
    """The worker died between the script's reply and the message; then its slot's time passes too."""
    ledger, redis = store
    admit(ledger, "first")
    held = claim(ledger, "first")
    park(ledger, "second", "third")
    finish(ledger, held)
    assert ledger.promote_parked() == [], "the slot is kept for the second"
    redis.zadd(ledger.keys.slots("default"), {"second": 1})  # Injected: nobody claimed it in time
    assert ledger.promote_parked() == [Wake("third", "normal")]
    assert ledger.status("second").state is JobState.PARKED
    assert [job.job_id for job in ledger.unclaimed()] == [], "it is young"
    claim(ledger, "third")
    assert ledger.claim("second", "w1", operation()) == Dropped("parked")


def test_parked_jobs_count_as_waiting_where_the_queue_is_full(store: Store) -> None:
    ledger, _ = store
    admit(ledger, "first")
    claim(ledger, "first")
    park(ledger, "second", "third")
    with settings_of(ledger, queue_depth=2), pytest.raises(RateLimited, match="2 jobs are waiting"):
        admit(ledger, "fourth")


def test_without_a_bound_what_is_parked_comes_free(store: Store) -> None:
    ledger, _ = store
    admit(ledger, "first")
    claim(ledger, "first")
    park(ledger, "second", "third")
    with settings_of(ledger, tenant_slots=0):
        assert {wake.job_id for wake in ledger.promote_parked()} == {"second", "third"}
        claim(ledger, "third")
        claim(ledger, "second")


def test_a_parked_job_can_be_cancelled_and_can_be_too_late(store: Store) -> None:
    ledger, redis = store
    admit(ledger, "first")
    held = claim(ledger, "first")
    park(ledger, "second", "third")
    assert ledger.cancel("second").word == "cancelled"
    be_late(ledger, redis, "third")
    assert [(done.job_id, done.word) for done in ledger.expire()] == [("third", "expired")]
    assert ledger.finish(held, result_of(held), operation()).wake == ()
    result = ledger.result("third")
    assert result is not None
    assert result.outcome is Outcome.REJECTED
    assert result.error is not None
    assert result.error.type == "Expired"


def test_a_message_that_takes_longer_than_a_slot_is_kept_does_not_go_round_for_ever(store: Store) -> None:
    """Injected: what was kept for the promoted job is over when its message arrives, each time."""
    ledger, redis = store
    admit(ledger, "running")
    held = claim(ledger, "running")
    park(ledger, "a", "b", "c")
    assert [wake.job_id for wake in ledger.finish(held, result_of(held), operation()).wake] == ["a"]
    redis.zadd(ledger.keys.slots("default"), {"a": 1}, xx=True)
    assert [wake.job_id for wake in ledger.promote_parked()] == ["b"], "the slot goes on to the next"
    late = claim(ledger, "a")
    assert redis.zrange(ledger.keys.slots("default"), 0, -1) == ["a"], "one slot, one job"
    assert ledger.claim("b", "w1", operation()) == Dropped("parked")
    assert [wake.job_id for wake in ledger.finish(late, result_of(late), operation()).wake] == ["b"]
    assert finish(ledger, claim(ledger, "b"))
    assert finish(ledger, claim(ledger, "c"))


def test_a_bound_set_while_jobs_run_counts_them(store: Store) -> None:
    ledger, _ = store
    with settings_of(ledger, tenant_slots=0):
        for job_id in ("one", "two", "three"):
            admit(ledger, job_id)
            claim(ledger, job_id)
    with settings_of(ledger, tenant_slots=2):
        park(ledger, "four")
        assert ledger.promote_parked() == []


def test_thousands_are_promoted_in_rounds(redis_url: str) -> None:
    with open_ledger("redis", redis_url, ledger={"tenant_slots": 1}) as (ledger, redis):
        admit(ledger, "first")
        held = claim(ledger, "first")
        parked = {f"normal job{number:05}": number for number in range(9000)}
        redis.zadd(ledger.keys.parked("default"), parked)  # Injected: their records do not matter here
        redis.sadd(ledger.keys.parked_tenants, "default")
        with settings_of(ledger, tenant_slots=20_000):
            assert len(ledger.finish(held, result_of(held), operation()).wake) == 1000
            assert [len(ledger.promote_parked()) for _ in range(9)] == [1000] * 8 + [0]
        assert redis.exists(ledger.keys.parked_tenants) == 0
