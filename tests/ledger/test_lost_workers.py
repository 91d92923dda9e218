"""Reaping: a lost worker's job runs again, one that loses every worker ends, no other is touched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from redis import Redis
from redis.commands.core import Script

from cellblock import JobState, Outcome
from cellblock.ledger import Ledger, Transition
from cellblock.ledger.upkeep_replies import ReapWord
from ledger.kit import STORES, admit, claim, dump, events_of, expire_lease, finish, lead, open_ledger, story
from parts import wait_until

pytestmark = pytest.mark.no_rerun

Store = tuple[Ledger, Redis]


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Store]:
    with open_ledger(request.param, redis_url) as opened:
        yield opened


@pytest.mark.parametrize("store_kind", STORES)
def test_a_lease_nobody_renews_runs_out_by_the_servers_clock(store_kind: str, redis_url: str) -> None:
    with open_ledger(store_kind, redis_url, ledger={"lease_s": 0.1, "beat_s": 0.02, "reap_s": 0.01}) as (
        ledger,
        _,
    ):
        admit(ledger, priority="high")
        claim(ledger)
        reaped = wait_until(lambda: list(ledger.upkeep.reap()), 5, "the lease running out")
        assert reaped == [Transition("job", ReapWord.REQUEUED, ("job",))]


def test_a_live_lease_is_left_alone(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    claim(ledger)
    before = dump(redis)
    assert list(ledger.upkeep.reap()) == []
    assert dump(redis) == before


def test_a_lost_job_waits_again_with_one_loss_and_its_payload(store: Store) -> None:
    ledger, redis = store
    admit(ledger, code="print(1)")
    claim(ledger)
    expire_lease(ledger, redis)
    assert list(ledger.upkeep.reap()) == [Transition("job", ReapWord.REQUEUED, ("job",))]
    status = ledger.reads.status("job")
    assert (status.state, status.attempt, status.losses) == (JobState.QUEUED, 1, 1)
    again = claim(ledger, worker="w2")
    assert (again.fence, again.manifest.code) == (2, "print(1)")


def test_a_job_that_loses_every_worker_ends_as_worker_lost(store: Store) -> None:
    ledger, redis = store
    admit(ledger, level="strict", tenant="acme")
    verdicts = []
    for _ in range(3):
        claim(ledger)
        expire_lease(ledger, redis)
        verdicts += [reaped.word for reaped in list(ledger.upkeep.reap())]
    assert verdicts == ["requeued", "requeued", "lost"]
    attempts = ["started", "retried"] * 2 + ["started", "failed"]
    assert story(ledger) == ["queued", *attempts]
    assert {event.outcome for event in events_of(ledger) if event.type.endswith("retried")} == {
        Outcome.WORKER_LOST
    }
    last = events_of(ledger)[-1]
    assert (last.outcome, last.attempt, last.tenant) == (Outcome.WORKER_LOST, 3, "acme")
    result = ledger.reads.result("job")
    assert result is not None
    assert (result.outcome, result.level, result.attempt) == (Outcome.WORKER_LOST, "strict", 3)
    assert result.evidence == {"losses": 3}
    assert result.error is not None
    assert result.error.type == "WorkerLost"
    assert result.timings.finished is not None


def test_a_lease_renewed_while_the_reaper_looked_is_left_alone(store: Store) -> None:
    """Injected: the beat comes between the reaper's list of expired leases and its verdict."""
    ledger, redis = store
    admit(ledger)
    held = claim(ledger)
    expire_lease(ledger, redis)
    reap = ledger._store.scripts._script("reap")

    def beaten_to_it(**given: Any) -> Any:
        ledger.beat("w1", [("job", held.fence)], {})
        return reap(**given)

    ledger._store.scripts._scripts["reap"] = cast(Script, beaten_to_it)
    assert list(ledger.upkeep.reap()) == []
    assert ledger.reads.status("job").losses == 0
    assert finish(ledger, held)


@pytest.mark.parametrize("store_kind", STORES)
def test_the_loss_limit_is_the_operators(store_kind: str, redis_url: str) -> None:
    with open_ledger(store_kind, redis_url, ledger={"loss_limit": 1}) as (ledger, redis):
        admit(ledger)
        claim(ledger)
        expire_lease(ledger, redis)
        assert [reaped.word for reaped in list(ledger.upkeep.reap())] == ["lost"]


def test_releases_burn_no_attempt(store: Store) -> None:
    ledger, _ = store
    admit(ledger)
    for number in range(5):
        assert ledger.release(claim(ledger), f"op{number}").word == "released"
    assert ledger.reads.status("job").losses == 0
    assert finish(ledger, claim(ledger))


def test_a_lost_job_that_was_asked_to_stop_ends_cancelled(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    claim(ledger)
    ledger.cancel("job")
    expire_lease(ledger, redis)
    assert list(ledger.upkeep.reap()) == [Transition("job", ReapWord.CANCELLED)]
    assert story(ledger) == ["queued", "started", "cancelled"]
    result = ledger.reads.result("job")
    assert result is not None
    assert result.outcome is Outcome.CANCELLED


def test_a_reaper_judges_as_many_as_it_is_asked_to(store: Store) -> None:
    ledger, redis = store
    for number in range(7):
        admit(ledger, f"job{number}")
        claim(ledger, f"job{number}")
        expire_lease(ledger, redis, f"job{number}")
    assert [len(list(ledger.upkeep.reap(limit=5))) for _ in range(3)] == [5, 2, 0]
    assert ledger.figures.depth() == 7


def test_a_lease_whose_job_was_forgotten_is_dropped(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    claim(ledger)
    expire_lease(ledger, redis)
    redis.delete(ledger.keys.job("job"))  # as its ttl does
    assert list(ledger.upkeep.reap()) == []
    assert redis.zcard(ledger.keys.leases) == 0


def test_a_lease_of_a_job_that_does_not_run_is_dropped_without_a_loss(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    finish(ledger, claim(ledger))
    redis.zadd(ledger.keys.leases, {"job": 1})  # injected: no script leaves one behind
    assert list(ledger.upkeep.reap()) == []
    assert redis.zcard(ledger.keys.leases) == 0
    assert ledger.reads.status("job").losses == 0


def quiet_for(ledger: Ledger, redis: Redis, seconds: float) -> None:
    """Injected: the last tick is moved into the past, as if no reaper had reached the store since."""
    redis.hincrby(ledger.keys.upkeep, "ticked_ms", -round(1000 * seconds))


def test_nobody_is_judged_after_an_outage_before_all_leases_were_extended_once(store: Store) -> None:
    ledger, redis = store
    for name in ("one", "two"):
        admit(ledger, name)
        claim(ledger, name)
    assert lead(ledger).extended is None
    quiet_for(ledger, redis, 11)
    for name in ("one", "two"):
        expire_lease(ledger, redis, name)
    assert list(ledger.upkeep.reap()) == [], "a round that began before the outage judges nobody"
    assert (lead(ledger).extended, lead(ledger).extended) == (2, None)
    assert list(ledger.upkeep.reap()) == []
    expire_lease(ledger, redis, "one")
    assert [done.word for done in ledger.upkeep.reap()] == ["requeued"], (
        "a worker that does not beat even now is lost"
    )


@pytest.mark.parametrize(("quiet_s", "failed", "extended"), [(3, True, None), (5, True, 1), (5, False, None)])
def test_a_short_outage_extends_leases_for_those_who_felt_it(
    store: Store, quiet_s: float, failed: bool, extended: int | None
) -> None:
    """By default a lease is 10 s and a beat 3: none runs out within 4 s of an outage."""
    ledger, redis = store
    admit(ledger)
    claim(ledger)
    ledger.upkeep.tick("w")
    quiet_for(ledger, redis, quiet_s)
    assert lead(ledger, failed=failed).extended == extended


def test_a_reaper_that_was_frozen_alone_extends_nothing(store: Store) -> None:
    """Another reaper ticked meanwhile: the store was there, and who did not beat is lost."""
    ledger, redis = store
    admit(ledger)
    claim(ledger)
    ledger.upkeep.tick("w")
    expire_lease(ledger, redis)
    assert lead(ledger, failed=True).extended is None
    assert [done.word for done in ledger.upkeep.reap()] == ["requeued"]


def test_a_clock_that_was_put_back_holds_no_job_for_the_time_it_was_ahead(store: Store) -> None:
    """Injected: a lease that a server with its clock a day ahead has written."""
    ledger, redis = store
    admit(ledger)
    claim(ledger)
    now_ms = 1000 * redis.time()[0]
    redis.zadd(ledger.keys.leases, {"job": now_ms + 86_400_000})
    ledger.upkeep.tick("w")
    assert (redis.zscore(ledger.keys.leases, "job") or 0) <= now_ms + 12_000


def test_names_of_workers_do_not_pile_up(store: Store) -> None:
    ledger, redis = store
    redis.zadd(ledger.keys.workers, {f"w{number}": 1 for number in range(300)})
    ledger.beat("alive", [], {})
    lead(ledger)
    assert redis.zrange(ledger.keys.workers, 0, -1) == ["alive"]
