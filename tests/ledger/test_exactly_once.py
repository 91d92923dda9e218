"""One effect per job: resent scripts change nothing, stale attempts write nothing, keys submit once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from cellblock import InvalidJob, JobState, Outcome, RateLimited
from cellblock.ledger import Admission, Claim, Dropped, Ledger
from cellblock.ledger.claims import Picked
from cellblock.ledger.keys import JobOwner
from ledger.kit import (
    STORES,
    admit,
    claim,
    dump,
    expire_lease,
    finish,
    manifest,
    once,
    open_ledger,
    operation,
    result_of,
    story,
)

pytestmark = pytest.mark.no_rerun

Store = tuple[Ledger, Redis]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Store]:
    with open_ledger(request.param, redis_url, ledger={"queue_depth": 3}) as opened:
        yield opened


def test_admit_resent_changes_nothing(store: Store) -> None:
    ledger, redis = store
    asked = manifest()
    ledger.admissions.admit("job", asked)
    before = dump(redis)
    assert ledger.admissions.admit("job", asked).job_id == "job"
    assert dump(redis) == before


def test_claim_resent_is_the_same_attempt(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    picked = [Picked("job", JobOwner("default"))]
    first = ledger.claims._claim_each(picked, "w1", "op")
    before = dump(redis)
    assert ledger.claims._claim_each(picked, "w1", "op") == first
    assert dump(redis) == before


def test_finish_resent_changes_nothing(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    held = claim(ledger)
    assert ledger.finish(held, result_of(held, stdout="first"), "op").word == "finished"
    before = dump(redis)
    assert ledger.finish(held, result_of(held, stdout="second"), "op").word == "finished"
    assert dump(redis) == before


def test_release_resent_changes_nothing(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    held = claim(ledger)
    assert ledger.release(held, "op").word == "released"
    before = dump(redis)
    assert ledger.release(held, "op").word == "released"
    assert dump(redis) == before


def test_release_resent_late_leaves_the_next_attempt_alone(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    held = claim(ledger)
    ledger.release(held, "op")
    claim(ledger, worker="w2")
    before = dump(redis)
    ledger.release(held, "op")
    assert dump(redis) == before


def test_release_that_cancelled_says_so_again_when_resent(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    held = claim(ledger)
    ledger.cancel("job")
    assert ledger.release(held, "op").word == "cancelled"
    before = dump(redis)
    assert ledger.release(held, "op").word == "cancelled"
    assert dump(redis) == before


@pytest.mark.parametrize("running", [False, True])
def test_cancel_resent_changes_nothing(store: Store, running: bool) -> None:
    ledger, redis = store
    admit(ledger)
    if running:
        claim(ledger)
    ledger.cancel("job")
    before = dump(redis)
    ledger.cancel("job")
    assert dump(redis) == before


def test_reap_resent_counts_one_loss(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    claim(ledger)
    expire_lease(ledger, redis)
    assert [reaped.word for reaped in list(ledger.upkeep.reap())] == ["requeued"]
    before = dump(redis)
    assert list(ledger.upkeep.reap()) == []
    assert dump(redis) == before
    assert ledger.reads.status("job").losses == 1


def _lost(ledger: Ledger, redis: Redis, held: Claim) -> None:
    expire_lease(ledger, redis)
    list(ledger.upkeep.reap())


def _lost_and_running_elsewhere(ledger: Ledger, redis: Redis, held: Claim) -> None:
    _lost(ledger, redis, held)
    claim(ledger, worker="w2")


def _ended(ledger: Ledger, redis: Redis, held: Claim) -> None:
    finish(ledger, held)


def _ended_elsewhere(ledger: Ledger, redis: Redis, held: Claim) -> None:
    _lost(ledger, redis, held)
    finish(ledger, claim(ledger, worker="w2"), Outcome.EXIT)


@pytest.mark.parametrize("meanwhile", [_lost, _lost_and_running_elsewhere, _ended, _ended_elsewhere])
def test_a_stale_attempt_writes_nothing(
    store: Store, meanwhile: Callable[[Ledger, Redis, Claim], None]
) -> None:
    ledger, redis = store
    admit(ledger)
    stale = claim(ledger)
    meanwhile(ledger, redis, stale)
    before = dump(redis)
    assert not finish(ledger, stale)
    assert ledger.release(stale, operation()).word == "stale"
    assert ledger.beat("w1", [("job", stale.fence)], {}) == {("job", stale.fence): ("lost", 0)}
    redis.delete(
        ledger.keys.worker("w1"), ledger.keys.workers
    )  # the beat's word on the worker itself is no job's matter
    assert dump(redis) == before


def test_a_fence_of_the_future_writes_nothing_either(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    held = claim(ledger)
    forged = Claim("job", held.fence + 1, "w1", held.manifest, held.admitted, held.started)
    before = dump(redis)
    assert not finish(ledger, forged)
    assert ledger.release(forged, operation()).word == "stale"
    assert dump(redis) == before


def test_a_second_delivery_is_dropped(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    held = claim(ledger)
    before = dump(redis)
    assert ledger.claims.claim_next(message="job", worker="w2", operation=operation()) == Dropped("running")
    assert dump(redis) == before
    finish(ledger, held)
    before = dump(redis)
    assert ledger.claims.claim_next(message="job", worker="w2", operation=operation()) == Dropped("terminal")
    assert dump(redis) == before


def test_a_delivery_while_the_lease_has_run_out_is_the_reapers_to_judge(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    claim(ledger)
    expire_lease(ledger, redis)
    assert ledger.claims.claim_next(message="job", worker="w2", operation=operation()) == Dropped("running")
    assert ledger.reads.status("job").losses == 0


def test_the_same_key_returns_the_first_job(store: Store) -> None:
    ledger, redis = store
    first = ledger.admissions.admit("one", manifest(), once())
    before = dump(redis)
    assert ledger.admissions.admit("two", manifest(), once()) == Admission("one", fresh=False)
    assert dump(redis) == before
    assert first == Admission("one", fresh=True, wake=("one",))


def test_the_same_key_returns_the_first_job_also_after_its_end(store: Store) -> None:
    ledger, _ = store
    ledger.admissions.admit("one", manifest(), once())
    finish(ledger, claim(ledger, "one"))
    assert ledger.admissions.admit("two", manifest(), once()) == Admission("one", fresh=False)


@pytest.mark.parametrize(
    "change", [{"code": "other"}, {"stdin": b"x"}, {"limits": {"pids": 7}}, {"level": "strict"}]
)
def test_the_same_key_for_another_job_is_refused(store: Store, change: dict[str, Any]) -> None:
    ledger, redis = store
    ledger.admissions.admit("one", manifest(), once())
    before = dump(redis)
    with pytest.raises(InvalidJob, match=r"idempotency_key: 'key' was used for another job, one"):
        ledger.admissions.admit("two", manifest(**change), once(**change))
    assert dump(redis) == before


def test_another_trace_or_time_is_no_other_job(store: Store) -> None:
    ledger, _ = store
    ledger.admissions.admit("one", manifest(), once())
    later: dict[str, Any] = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    assert not ledger.admissions.admit("two", manifest(**later), once(**later)).fresh


def test_tenants_do_not_share_keys(store: Store) -> None:
    ledger, _ = store
    assert ledger.admissions.admit("one", manifest(tenant="acme"), once(tenant="acme")).fresh
    assert ledger.admissions.admit("two", manifest(tenant="umbrella"), once(tenant="umbrella")).fresh


def test_a_full_queue_says_when_to_come_back_and_stores_nothing(store: Store) -> None:
    ledger, redis = store
    for number in range(3):
        admit(ledger, f"job{number}")
    before = dump(redis)
    with pytest.raises(RateLimited, match=r"3 jobs are waiting.*CELLBLOCK_LEDGER_QUEUE_DEPTH") as caught:
        ledger.admissions.admit("more", manifest(), once())
    assert caught.value.retry_after_s > 0
    assert dump(redis) == before


def test_a_full_queue_still_knows_what_it_accepted_and_takes_more_when_one_starts(store: Store) -> None:
    ledger, _ = store
    ledger.admissions.admit("job0", manifest(), once())
    admit(ledger, "job1")
    admit(ledger, "job2")
    assert ledger.admissions.admit("again", manifest(), once()) == Admission("job0", fresh=False)
    claim(ledger, "job0")
    assert ledger.admissions.admit("job3", manifest()).fresh
    assert story(ledger, "job3") == ["queued"]
    assert ledger.reads.status("job3").state is JobState.QUEUED


def test_a_key_whose_job_is_forgotten_is_free_for_any_job(store: Store) -> None:
    ledger, redis = store
    ledger.admissions.admit("old", manifest(code="1"), once(code="1"))
    redis.delete(ledger.keys.job("old"))
    assert ledger.admissions.admit("new", manifest(code="2"), once(code="2")).job_id == "new"
