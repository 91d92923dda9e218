"""What is tried again: our faults up to a setting, a program's failures only where the job asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from cellblock import JobState, Outcome
from cellblock.ledger import Dropped, Ledger
from ledger.kit import (
    STORES,
    admit,
    claim,
    dump,
    expire_lease,
    finish,
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
    settings = {"fault_retries": 2, "retry_backoff_s": 10, "loss_backoff_s": (0, 5, 30), "loss_limit": 3}
    with open_ledger(request.param, redis_url, ledger=settings) as opened:
        yield opened


def fail(ledger: Ledger, outcome: Outcome, job_id: str = "job") -> str:
    held = claim(ledger, job_id)
    return ledger.finish(held, result_of(held, outcome), operation()).word


def end_pause(ledger: Ledger, redis: Redis, job_id: str = "job") -> None:
    """Injected: the pause before the next attempt is over."""
    assert ledger.upkeep.wake_delayed() == []
    redis.zadd(ledger.keys.delayed, {job_id: 1}, xx=True)
    assert ledger.upkeep.wake_delayed() == [job_id]


def test_a_fault_of_ours_is_tried_again_after_growing_pauses_then_is_a_dead_letter(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    for least, most in ((5, 15), (10, 30)):
        assert fail(ledger, Outcome.SANDBOX_ERROR) == "retried"
        pause_s = ledger.reads.due_in_s("job")
        assert pause_s is not None
        assert least - 1 < pause_s <= most
        assert ledger.claims.claim_next(message="job", worker="w1", operation=operation()) == Dropped(
            "delayed"
        ), "a stray message"
        end_pause(ledger, redis)
    assert fail(ledger, Outcome.SANDBOX_ERROR) == "finished"
    started = ["started", "retried"] * 2 + ["started", "failed"]
    assert story(ledger) == ["queued", *started], "one terminal event"
    assert ledger.reads.dead() == ["job"]
    assert [past.why for past in ledger.reads.attempts("job")] == ["sandbox_error"] * 3
    assert [past.fence for past in ledger.reads.attempts("job")] == [1, 2, 3]


@pytest.mark.parametrize(
    "outcome", [Outcome.EXIT, Outcome.MEMORY, Outcome.WALL_TIMEOUT, Outcome.REJECTED, Outcome.OK]
)
def test_a_program_that_fails_is_not_run_again(store: Store, outcome: Outcome) -> None:
    ledger, _ = store
    admit(ledger)
    assert fail(ledger, outcome) == "finished"
    assert ledger.reads.dead() == []


def test_a_job_that_asks_for_retries_gets_as_many(store: Store) -> None:
    ledger, redis = store
    admit(ledger, retries=1)
    assert fail(ledger, Outcome.EXIT) == "retried"
    end_pause(ledger, redis)
    assert fail(ledger, Outcome.EXIT) == "finished"
    result = ledger.reads.result("job")
    assert result is not None
    assert (result.outcome, result.attempt) == (Outcome.EXIT, 2)


def test_a_retry_told_twice_is_one(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    held, op = claim(ledger), operation()
    words = [ledger.finish(held, result_of(held, Outcome.SANDBOX_ERROR), op).word for _ in range(2)]
    assert words == ["retried", "retried"]
    assert redis.hget(ledger.keys.job("job"), "faults") == "1"


def test_a_cancelled_pause_is_an_end(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    fail(ledger, Outcome.SANDBOX_ERROR)
    assert ledger.reads.status("job").state is JobState.QUEUED
    assert ledger.cancel("job").word == "cancelled"
    assert redis.exists(ledger.keys.delayed) == 0


def test_each_loss_is_followed_by_a_longer_pause(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    claim(ledger)
    expire_lease(ledger, redis)
    assert [done.wake for done in ledger.upkeep.reap()] == [("job",)]
    claim(ledger)
    expire_lease(ledger, redis)
    assert [(done.word, done.wake) for done in ledger.upkeep.reap()] == [("requeued", ())]
    pause_s = ledger.reads.due_in_s("job")
    assert pause_s is not None
    assert 2 < pause_s <= 7.5, "five seconds, spread"
    end_pause(ledger, redis)
    claim(ledger)
    expire_lease(ledger, redis)
    assert [done.word for done in ledger.upkeep.reap()] == ["lost"]
    assert [past.why for past in ledger.reads.attempts("job")] == ["lost", "lost", "worker_lost"]


def test_a_dead_letter_runs_again_when_an_operator_says_so(store: Store) -> None:
    ledger, _ = store
    with settings_of(ledger, fault_retries=0):
        admit(ledger)
        assert fail(ledger, Outcome.SANDBOX_ERROR) == "finished"
    op = operation()
    assert ledger.retry_dead("job", op).wake == ("job",)
    assert ledger.retry_dead("job", op).word == "retried", "told twice"
    assert ledger.retry_dead("job", operation()).word == "alive"
    assert ledger.reads.result("job") is None
    assert ledger.reads.dead() == []
    held = claim(ledger)
    assert held.fence == 2, "nothing of an earlier attempt can be taken for one of this"
    assert finish(ledger, held)
    assert story(ledger) == ["queued", "started", "failed", "queued", "started", "succeeded"]


def test_a_dead_letter_can_be_dropped_with_its_payload(store: Store) -> None:
    ledger, redis = store
    with settings_of(ledger, fault_retries=0):
        admit(ledger)
        fail(ledger, Outcome.SANDBOX_ERROR)
    op = operation()
    assert ledger.upkeep.drop_dead("job", op)
    assert ledger.upkeep.drop_dead("job", op), "told twice"
    assert not ledger.upkeep.drop_dead("job", operation())
    assert redis.exists(ledger.keys.spec("job"), ledger.keys.attempts("job"), ledger.keys.dead) == 0
    assert ledger.reads.result("job") is not None
    assert ledger.retry_dead("job", operation()).word == "alive"


@pytest.mark.parametrize("running", [False, True])
def test_a_job_that_lives_cannot_be_dropped(store: Store, running: bool) -> None:
    ledger, redis = store
    admit(ledger)
    if running:
        claim(ledger)
    before = dump(redis)
    assert not ledger.upkeep.drop_dead("job", operation())
    assert dump(redis) == before


def test_what_started_in_time_is_not_too_late_afterwards(store: Store) -> None:
    """Its worker ends, or its pause lasts, beyond the deadline it had met: no fault of its caller's."""
    ledger, redis = store
    admit(ledger, expires_s=60)
    held = claim(ledger)
    redis.hset(ledger.keys.job("job"), "admitted_ms", 1)  # Injected: it was accepted long ago
    redis.hset(ledger.keys.job("job"), "expires_ms", 2)
    ledger.release(held, operation())
    assert list(ledger.upkeep.expire()) == []
    assert finish(ledger, claim(ledger))


def test_a_fault_of_ours_in_a_job_that_was_cancelled_is_a_cancellation(store: Store) -> None:
    ledger, _ = store
    admit(ledger)
    held = claim(ledger)
    ledger.cancel("job")
    assert ledger.finish(held, result_of(held, Outcome.SANDBOX_ERROR), operation()).word == "finished"
    result = ledger.reads.result("job")
    assert result is not None
    assert result.outcome is Outcome.CANCELLED
    assert (story(ledger)[-1], ledger.reads.dead()) == ("cancelled", [])


def test_a_pause_grows_to_its_bound_and_no_further(store: Store) -> None:
    ledger, redis = store
    with settings_of(ledger, fault_retries=20, retry_backoff_s=10, retry_backoff_max_s=40):
        admit(ledger)
        for _ in range(20):
            assert fail(ledger, Outcome.SANDBOX_ERROR) == "retried"
            pause_s = ledger.reads.due_in_s("job")
            assert pause_s is not None
            assert 4 < pause_s <= 60
            end_pause(ledger, redis)


def test_no_more_dead_letters_are_kept_than_the_setting_says(store: Store) -> None:
    ledger, redis = store
    with settings_of(ledger, fault_retries=0, dead_kept=3):
        for number in range(6):
            admit(ledger, f"job{number}")
            fail(ledger, Outcome.SANDBOX_ERROR, f"job{number}")
        ledger.upkeep.forget_the_dead()
    assert ledger.reads.dead() == ["job5", "job4", "job3"]
    assert redis.exists(*(ledger.keys.spec(f"job{number}") for number in range(6))) == 3, "nor their payloads"


def test_a_dead_letter_that_runs_again_has_the_window_its_caller_gave_it(store: Store) -> None:
    ledger, redis = store
    with settings_of(ledger, fault_retries=0):
        admit(ledger, expires_s=50)
        fail(ledger, Outcome.SANDBOX_ERROR)
    ledger.retry_dead("job", operation())
    queued, expires = redis.hmget(ledger.keys.job("job"), ["queued_ms", "expires_ms"])
    assert int(str(expires)) - int(str(queued)) == 50_000
    assert redis.zscore(ledger.keys.deadlines, "job") == int(str(expires))


def test_a_job_in_a_long_pause_is_remembered_until_its_deadline(store: Store) -> None:
    ledger, redis = store
    with settings_of(ledger, fault_retries=1, job_ttl_s=100, retry_backoff_s=1000, retry_backoff_max_s=1000):
        admit(ledger, expires_s=50)
        assert fail(ledger, Outcome.SANDBOX_ERROR) == "retried"
        deadline_s = (redis.zscore(ledger.keys.deadlines, "job") or 0) / 1000 - redis.time()[0]
    for key in (ledger.keys.job("job"), ledger.keys.spec("job")):
        assert redis.ttl(key) > deadline_s > 500


@pytest.mark.parametrize("how", ["finish", "release"])
def test_an_attempt_whose_job_is_forgotten_is_stale(store: Store, how: str) -> None:
    ledger, redis = store
    admit(ledger)
    held = claim(ledger)
    redis.delete(ledger.keys.job("job"))
    before = dump(redis)
    fault = result_of(held, Outcome.SANDBOX_ERROR)
    done = ledger.finish(held, fault, "op") if how == "finish" else ledger.release(held, "op")
    assert done.word == "stale"
    assert dump(redis) == before


def test_a_job_that_never_starts_anywhere_still_meets_its_deadline(store: Store) -> None:
    ledger, redis = store
    admit(ledger, expires_s=50)
    before = redis.hget(ledger.keys.job("job"), "expires_ms")
    for _ in range(3):
        assert ledger.release(claim(ledger), operation(), ran=False).word == "released"
    assert redis.hget(ledger.keys.job("job"), "expires_ms") == before
    assert redis.zscore(ledger.keys.deadlines, "job") == int(str(before))


def test_a_job_that_was_cancelled_and_fails_by_itself_is_not_tried_again(store: Store) -> None:
    ledger, _ = store
    admit(ledger, retries=2)
    held = claim(ledger)
    ledger.cancel("job")
    assert ledger.finish(held, result_of(held, Outcome.EXIT), operation()).word == "finished"
    assert story(ledger)[-1] == "failed"
