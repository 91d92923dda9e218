"""A tenant runs no more jobs at once than it may; the others are parked and follow in their order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from cellblock import JobState, Outcome, RateLimited
from cellblock.ledger import Claim, Dropped, Ledger
from cellblock.ledger.claims import Picked
from cellblock.ledger.keys import JobOwner
from cellblock.ledger.upkeep_replies import FreeSlotReply
from ledger.kit import (
    STORES,
    admit,
    be_late,
    claim,
    expire_lease,
    finish,
    manifest,
    open_ledger,
    operation,
    result_of,
    settings_of,
    story,
)

pytestmark = pytest.mark.no_rerun

Store = tuple[Ledger, Redis]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Store]:
    with open_ledger(request.param, redis_url, ledger={"tenant_slots": 1}) as opened:
        yield opened


def park(ledger: Ledger, *job_ids: str) -> None:
    """Accept these; every one has to wait, and none needs a message."""
    for job_id in job_ids:
        assert ledger.admissions.admit(job_id, manifest()).wake == ()
        assert ledger.reads.status(job_id).state is JobState.PARKED
        assert ledger.claims.claim_next(message=job_id, worker="w1", operation=operation()) == Dropped(
            "parked"
        )


def test_a_job_over_the_bound_is_parked_and_the_end_of_another_lets_it_run(store: Store) -> None:
    ledger, redis = store
    admit(ledger, "first")
    held = claim(ledger, "first")
    park(ledger, "second", "third")
    assert ledger.figures.depth() == 0, "no worker is missing"
    done = ledger.finish(held, result_of(held), operation())
    assert done.wake == ("second",)
    assert finish(ledger, claim(ledger, "second"))
    assert finish(ledger, claim(ledger, "third"))
    assert story(ledger, "second") == ["queued", "started", "succeeded"]
    assert redis.exists(ledger.keys.parked, ledger.keys.slots("default"), ledger.keys.ready("default")) == 0


def test_other_tenants_are_not_concerned(store: Store) -> None:
    ledger, _ = store
    admit(ledger, "first")
    claim(ledger, "first")
    admit(ledger, "other", tenant="acme")
    claim(ledger, "other")


def test_a_newcomer_does_not_overtake_what_was_parked(store: Store) -> None:
    ledger, _ = store
    admit(ledger, "first")
    held = claim(ledger, "first")
    park(ledger, "second")
    finish(ledger, held)
    admit(ledger, "late")
    delivered = ledger.claims.claim_next(message="late", worker="w1", operation=operation())
    assert isinstance(delivered, Claim)
    assert delivered.job_id == "second"


@pytest.mark.parametrize("how", ["release", "lost", "cancelled"])
def test_every_way_out_of_a_slot_lets_the_next_one_run(store: Store, how: str) -> None:
    ledger, redis = store
    admit(ledger, "first")
    held = claim(ledger, "first")
    park(ledger, "second")
    if how == "release":
        woken = ledger.release(held, operation(), ran=False).wake
        assert woken == ("second",), "one slot, one message; the first has gone to the end of the line"
    elif how == "lost":
        expire_lease(ledger, redis, "first")
        (reaped,) = ledger.upkeep.reap()
        woken = reaped.wake
        assert woken == ("first",), "one slot, one message; the first keeps its place"
    else:
        ledger.cancel("first")
        woken = ledger.finish(held, result_of(held, Outcome.CANCELLED), operation()).wake
        assert woken == ("second",)
    claim(ledger, woken[0])


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
    park(ledger, "second")
    redis.delete(ledger.keys.job("first"))  # Injected: its record is gone while it runs
    expire_lease(ledger, redis, "first")
    assert list(ledger.upkeep.reap()) == []
    assert ledger.upkeep.look_at_parked() == ["second"]
    claim(ledger, "second")


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
        assert ledger.upkeep.look_at_parked() == ["second", "third"]
        assert ledger.upkeep.look_at_parked() == []
        claim(ledger, "second")
        claim(ledger, "third")


def test_a_parked_job_can_be_cancelled_and_can_be_too_late(store: Store) -> None:
    ledger, redis = store
    admit(ledger, "first")
    held = claim(ledger, "first")
    park(ledger, "second", "third")
    assert ledger.cancel("second").word == "cancelled"
    be_late(ledger, redis, "third")
    assert [(done.job_id, done.word) for done in ledger.upkeep.expire()] == [("third", "expired")]
    assert ledger.finish(held, result_of(held), operation()).wake == ()
    result = ledger.reads.result("third")
    assert result is not None
    assert result.outcome is Outcome.REJECTED
    assert result.error is not None
    assert result.error.type == "Expired"


def test_a_late_job_at_the_head_of_the_line_holds_nobody_up(store: Store) -> None:
    ledger, redis = store
    admit(ledger, "late")
    admit(ledger, "next")
    be_late(ledger, redis, "late")
    claim(ledger, "next")
    assert ledger.claims.claim_next(message="late", worker="w1", operation=operation()) == Dropped("late")
    assert [done.job_id for done in ledger.upkeep.expire()] == ["late"]


def test_a_hundred_late_jobs_do_not_cost_a_message_its_job(store: Store) -> None:
    ledger, redis = store
    for number in range(150):
        admit(ledger, f"late{number:03}")
        be_late(ledger, redis, f"late{number:03}")
    admit(ledger, "good")
    claim(ledger, "good")


def test_a_job_nobody_can_read_does_not_cost_the_next_its_message(store: Store) -> None:
    ledger, redis = store
    admit(ledger, "unreadable")
    admit(ledger, "next")
    redis.set(ledger.keys.spec("unreadable"), "{}")
    claim(ledger, "next")
    assert ledger.reads.status("unreadable").state is JobState.REJECTED


def test_a_bound_set_while_jobs_run_counts_them(store: Store) -> None:
    ledger, _ = store
    with settings_of(ledger, tenant_slots=0):
        for job_id in ("one", "two", "three"):
            admit(ledger, job_id)
            claim(ledger, job_id)
    with settings_of(ledger, tenant_slots=2):
        park(ledger, "four")
        assert ledger.upkeep.look_at_parked() == []


def test_a_higher_bound_lets_thousands_run_in_rounds(redis_url: str) -> None:
    with open_ledger("redis", redis_url, ledger={"tenant_slots": 1}) as (ledger, redis):
        admit(ledger, "first")
        held = claim(ledger, "first")
        waiting = {f"job{number:05}": number for number in range(9000)}
        redis.zadd(ledger.keys.ready("default"), waiting)  # Injected: their records do not matter here
        redis.sadd(ledger.keys.parked, "default")
        with settings_of(ledger, tenant_slots=20_000):
            assert len(ledger.finish(held, result_of(held), operation()).wake) == 1000


def test_a_job_that_was_picked_and_overtaken_is_not_claimed_without_a_slot(store: Store) -> None:
    """Injected: between the pick and the claim a more urgent job came and took the one slot."""
    ledger, _ = store
    admit(ledger, "picked")
    admit(ledger, "urgent", priority="high")
    claim(ledger, "urgent")
    picked = Picked("picked", JobOwner("default"))
    assert ledger.claims._claim_each([picked], "w2", operation()) == ["again"]
    assert ledger.reads.status("picked").state is JobState.PARKED


def test_the_slot_of_a_job_with_a_lease_is_not_taken_back(store: Store) -> None:
    """Injected: the upkeep looked for a lease before the job was claimed."""
    ledger, redis = store
    admit(ledger, "first")
    claim(ledger, "first")
    keys = ledger.keys.of_job("first", JobOwner("default"))
    held = ledger._store.scripts.call(FreeSlotReply, keys, {"job_id": "first"})
    assert (held.word, redis.smembers(ledger.keys.slots("default"))) == ("held", {"first"})
