"""Every arrow of a job's state machine, on Redis and on the in-process Redis of embedded runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from cellblock import JobState, Outcome, UnknownJob
from cellblock.ledger import Dropped, Ledger
from ledger.kit import STORES, admit, claim, events_of, expire_lease, finish, manifest, open_ledger, story

pytestmark = pytest.mark.no_rerun

Store = tuple[Ledger, Redis]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Store]:
    with open_ledger(request.param, redis_url) as opened:
        yield opened


def places(store: Store) -> tuple[list[str], list[str]]:
    """Who waits and who holds a lease."""
    ledger, redis = store
    waiting = [
        job_id for tenant in ("default", "acme") for job_id in redis.zrange(ledger.keys.ready(tenant), 0, -1)
    ]
    return [str(job_id) for job_id in waiting], [str(id) for id in redis.zrange(ledger.keys.leases, 0, -1)]


def test_admit_makes_a_job_wait(store: Store) -> None:
    ledger, _ = store
    admission = ledger.admissions.admit("job", manifest(tenant="acme"))
    assert (admission.job_id, admission.fresh) == ("job", True)
    status = ledger.reads.status("job")
    assert (status.state, status.attempt, status.losses, status.tenant) == (JobState.QUEUED, 0, 0, "acme")
    assert status.timings.started is None
    assert places(store) == (["job"], [])
    assert story(ledger) == ["queued"]
    assert ledger.reads.result("job") is None


def test_claim_makes_it_run_under_a_fence_and_a_lease(store: Store) -> None:
    ledger, redis = store
    asked = manifest(code="print(1)", stdin=b"\xff")
    ledger.admissions.admit("job", asked)
    held = claim(ledger, worker="w7")
    assert (held.fence, held.worker, held.manifest) == (1, "w7", asked)
    status = ledger.reads.status("job")
    assert (status.state, status.attempt, status.worker) == (JobState.RUNNING, 1, "w7")
    assert places(store) == ([], ["job"])
    assert story(ledger) == ["queued", "started"]
    expiry, (seconds, micros) = redis.zscore(ledger.keys.leases, "job"), redis.time()
    assert expiry is not None
    assert 9_000 < expiry - seconds * 1000 - micros / 1000 <= 10_000


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.WORKER_LOST])
def test_finish_ends_it_with_the_result_and_one_terminal_event(store: Store, outcome: Outcome) -> None:
    ledger, _ = store
    admit(ledger)
    assert finish(ledger, claim(ledger), outcome)
    status = ledger.reads.status("job")
    assert (status.state, status.outcome) == (JobState.after(outcome), outcome)
    assert places(store) == ([], [])
    last = events_of(ledger)[-1]
    assert (last.type, last.outcome, last.attempt) == (f"agent.run.{JobState.after(outcome)}", outcome, 1)
    result = ledger.reads.result("job")
    assert result is not None
    assert result.outcome is outcome
    timings = result.timings
    assert timings.started is not None
    assert timings.finished is not None
    assert timings.admitted <= timings.started <= timings.finished


def test_release_makes_it_wait_again_without_a_loss(store: Store) -> None:
    ledger, _ = store
    admit(ledger)
    assert ledger.release(claim(ledger), "op").word == "released"
    status = ledger.reads.status("job")
    assert (status.state, status.attempt, status.losses) == (JobState.QUEUED, 1, 0)
    assert places(store) == (["job"], [])
    assert claim(ledger).fence == 2, "the fence stays raised"
    assert story(ledger) == ["queued", "started", "retried", "started"]


def test_release_ends_a_job_that_was_asked_to_stop(store: Store) -> None:
    ledger, _ = store
    admit(ledger)
    held = claim(ledger)
    assert ledger.cancel("job").word == "requested"
    assert ledger.release(held, "op").word == "cancelled"
    assert ledger.reads.status("job").state is JobState.CANCELLED
    assert places(store) == ([], [])
    assert story(ledger) == ["queued", "started", "cancelled"]


def test_cancel_ends_a_waiting_job_at_once(store: Store) -> None:
    ledger, _ = store
    admit(ledger)
    assert ledger.cancel("job").word == "cancelled"
    assert ledger.reads.status("job").state is JobState.CANCELLED
    assert places(store) == ([], [])
    assert story(ledger) == ["queued", "cancelled"]
    result = ledger.reads.result("job")
    assert result is not None
    assert (result.outcome, result.isolation, result.attempt) == (Outcome.CANCELLED, None, 0)
    assert result.error is not None


def test_cancel_asks_a_running_job_to_stop_and_its_next_beat_says_so(store: Store) -> None:
    ledger, _ = store
    admit(ledger)
    held = claim(ledger)
    key = (held.job_id, held.fence)
    assert ledger.beat("w1", [key], {}) == {key: ("held", 0)}
    assert ledger.cancel("job").word == "requested"
    status = ledger.reads.status("job")
    assert (status.state, status.cancel_requested) == (JobState.RUNNING, True)
    assert ledger.beat("w1", [key], {}) == {key: ("cancel", 0)}
    assert finish(ledger, held, Outcome.CANCELLED)
    assert story(ledger) == ["queued", "started", "cancelled"]


def test_cancel_of_an_ended_job_changes_nothing(store: Store) -> None:
    ledger, _ = store
    admit(ledger)
    finish(ledger, claim(ledger))
    assert ledger.cancel("job").word == "terminal"
    assert ledger.reads.status("job").state is JobState.SUCCEEDED
    assert story(ledger) == ["queued", "started", "succeeded"]


def test_beat_renews_the_lease_and_tells_of_the_worker(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    held = claim(ledger)
    expire_lease(ledger, redis)
    assert ledger.beat("w1", [("job", held.fence)], {"state": "ready"}) == {("job", 1): ("held", 0)}
    assert list(ledger.upkeep.reap()) == [], "the renewed lease is live"
    assert ledger.figures.workers() == {"w1": {"state": "ready"}}


def test_beat_answers_for_each_job_by_itself(store: Store) -> None:
    ledger, _ = store
    for job_id in ("mine", "ended", "stopping"):
        admit(ledger, job_id)
    held = {job_id: claim(ledger, job_id) for job_id in ("mine", "ended", "stopping")}
    ledger.cancel("stopping")
    finish(ledger, held["ended"])
    stale = ("mine", 0)
    pulses = ledger.beat("w1", [*((id, held[id].fence) for id in held), stale, ("never", 1)], {})
    assert pulses == {
        ("mine", 1): ("held", 0),
        ("ended", 1): ("lost", 0),
        ("stopping", 1): ("cancel", 0),
        stale: ("lost", 0),
        ("never", 1): ("lost", 0),
    }


@pytest.mark.parametrize("call", ["status", "result", "cancel"])
def test_a_job_nobody_accepted_is_unknown(store: Store, call: str) -> None:
    ledger, redis = store
    with pytest.raises(UnknownJob, match="no job nobody"):
        getattr(ledger if call == "cancel" else ledger.reads, call)("nobody")
    assert ledger.claims.claim_next(message="nobody", worker="w1", operation="op") == Dropped("unknown")
    assert redis.keys("*") == []
