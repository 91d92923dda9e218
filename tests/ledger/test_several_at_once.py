"""Several jobs admitted, or claimed, in one call: each as if it had come alone."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from cellblock import BudgetExceeded, InvalidJob, JobState, StoreFull, StoreUnavailable
from cellblock.admission.gates import Gates
from cellblock.ledger import Admission, Candidate, Claim, Dropped, Keys, Ledger, connect
from cellblock.ledger.script_calls import ScriptCall
from cellblock_config import load_settings
from cellblock_workers.worker.claiming import Claiming
from ledger.kit import OPEN, STORES, be_late, dump, manifest, once, open_ledger, operation

pytestmark = pytest.mark.no_rerun

Store = tuple[Ledger, Redis]
#: By tenant its plan. "none" has none.
PLANS: dict[str, Gates | None] = {
    "none": None,
    "a": replace(OPEN, plan="small"),
    "b": replace(OPEN, plan="large", weight=3),
    "c": replace(OPEN, plan="large", weight=3),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Store]:
    with open_ledger(request.param, redis_url) as opened:
        yield opened


def candidate(job_id: str, gates: Gates | None = None, **fields: Any) -> Candidate:
    return Candidate(job_id, manifest(**fields), gates=gates)


def admit(ledger: Ledger, *tenants: str, **fields: Any) -> None:
    """A job of each, called by its number."""
    made = [
        candidate(f"{at:03}", PLANS.get(tenant), tenant=tenant, **fields) for at, tenant in enumerate(tenants)
    ]
    answers = ledger.admissions.admit_many(made)
    assert [answer.job_id for answer in answers if isinstance(answer, Admission)] == [
        one.job_id for one in made
    ]


def claimed(answers: Sequence[Claim | Dropped]) -> list[str]:
    return [answer.job_id for answer in answers if isinstance(answer, Claim)]


def test_a_job_that_is_refused_keeps_no_other_out(store: Store) -> None:
    ledger, redis = store
    poor = replace(OPEN, plan="poor", reserve_micros=60, budget_micros=100)
    admitted = ledger.admissions.admit_many(
        [
            candidate("first", poor, tenant="acme"),
            candidate("second", poor, tenant="acme"),
            candidate("third", tenant="other"),
            Candidate("keyed", manifest(), idempotency=once()),
            Candidate("again", manifest(), idempotency=once()),
            Candidate("different", manifest(code="1"), idempotency=once(code="1")),
        ]
    )
    first, second, third, keyed, again, different = admitted
    assert first == Admission("first", fresh=True, wake=("first",))
    assert isinstance(second, BudgetExceeded)
    assert third == Admission("third", fresh=True, wake=("third",))
    assert keyed == Admission("keyed", fresh=True, wake=("keyed",))
    assert again == Admission("keyed", fresh=False)
    assert isinstance(different, InvalidJob)
    there = [ledger.keys.job(job_id) for job_id in ("first", "keyed", "third")]
    assert sorted(redis.keys(ledger.keys.job("*"))) == there


def test_nothing_asked_is_nothing_done(store: Store) -> None:
    ledger, redis = store
    assert ledger.admissions.admit_many([]) == []
    assert dump(redis) == {}


def test_a_server_that_has_forgotten_the_scripts_is_told_them_again(store: Store) -> None:
    ledger, redis = store
    admit(ledger, "a", "a")
    redis.script_flush()
    admit(ledger, "a", "a", "a")
    assert claimed(ledger.claims.claim_next_many(messages=["-"] * 3, worker="w", operation=operation())) == [
        "000",
        "001",
        "002",
    ]


def test_what_was_admitted_before_the_store_was_lost_is_known(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: the store answers one trip, and then no more."""
    ledger, _ = store
    real, trips = ledger._store.scripts.call_each, []

    def once_only(reply: Any, calls: Sequence[ScriptCall]) -> list[Any]:
        trips.append(len(calls))
        if len(trips) > 1:
            raise StoreUnavailable("it is gone")
        return real(reply, calls)

    monkeypatch.setattr(ledger._store.scripts, "call_each", once_only)
    answers = ledger.admissions.admit_many([candidate(f"{at:03}") for at in range(200)])
    assert len(trips) == 2, "nobody is asked again who does not answer"
    assert [isinstance(answer, Admission) for answer in answers] == [True] * 64 + [False] * 136
    assert all(isinstance(answer, StoreUnavailable) for answer in answers[64:])


def test_long_jobs_are_sent_a_few_at_a_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, _ = store
    real, trips = ledger._store.scripts.call_each, []

    def counting(reply: Any, calls: Sequence[ScriptCall]) -> list[Any]:
        trips.append(len(calls))
        return real(reply, calls)

    monkeypatch.setattr(ledger._store.scripts, "call_each", counting)
    long = "#" * 400_000
    assert len(ledger.admissions.admit_many([candidate(f"{at}", code=long) for at in range(5)])) == 5
    assert trips == [2, 2, 1]


def test_a_full_store_says_so_of_each(redis_url: str) -> None:
    with open_ledger("redis", redis_url) as (ledger, redis):
        admit(ledger, "a")
        redis.config_set("maxmemory", "1mb")
        try:
            answers = ledger.admissions.admit_many([candidate("x"), candidate("y")])
        finally:
            redis.config_set("maxmemory", "0")
    assert [type(answer) for answer in answers] == [StoreFull, StoreFull]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tenants=st.lists(st.sampled_from(sorted(PLANS)), min_size=1, max_size=14),
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=6),
)
def test_several_claims_take_what_single_ones_would(
    redis_url: str, tenants: list[str], counts: list[int]
) -> None:
    """Each tenant has as many jobs as turns: four of each come after those."""
    padded = tenants + sorted(PLANS) * sum(counts)
    orders = []
    for together in (True, False):
        with open_ledger("redis", redis_url) as (ledger, redis):
            redis.flushall()
            admit(ledger, *padded)
            order: list[str] = []
            for count in counts:
                if together:
                    order += claimed(
                        ledger.claims.claim_next_many(
                            messages=["-"] * count, worker="w", operation=operation()
                        )
                    )
                else:
                    order += [
                        job_id
                        for _ in range(count)
                        for job_id in claimed(
                            [ledger.claims.claim_next(message="-", worker="w", operation=operation())]
                        )
                    ]
            orders.append(order)
    assert orders[0] == orders[1]


def test_no_more_are_claimed_than_there_are_slots_and_the_rest_goes_to_others(store: Store) -> None:
    ledger, _ = store
    narrow = replace(OPEN, plan="narrow", parallel=2)
    for at in range(5):
        assert ledger.admissions.admit(f"n{at}", manifest(tenant="narrow"), gates=narrow).fresh
    admit(ledger, "a")
    answers = ledger.claims.claim_next_many(messages=["n4"] * 6, worker="w", operation=operation())
    assert sorted(claimed(answers)) == ["000", "n0", "n1"]
    assert answers[3:] == [Dropped("parked")] * 3


def test_late_and_unreadable_jobs_are_passed_over(store: Store) -> None:
    ledger, redis = store
    admit(ledger, "a", "a", "a", "b")
    be_late(ledger, redis, "000")
    redis.set(ledger.keys.spec("001"), "no manifest")
    answers = ledger.claims.claim_next_many(messages=["-"] * 4, worker="w", operation=operation())
    assert sorted(claimed(answers)) == ["002", "003"]
    assert ledger.reads.status("001").state is JobState.REJECTED
    assert ledger.figures.running() == 2


def _lose_a_field_of_its_result(redis: Redis, keys: Keys) -> None:
    redis.set(keys.spec("001"), "no manifest")
    redis.hdel(keys.job("001"), "level")


BROKEN: dict[str, Callable[[Redis, Keys], object]] = {
    "it cannot be rejected": _lose_a_field_of_its_result,
    "a number is missing": lambda redis, keys: redis.hdel(keys.job("001"), "admitted_ms"),
    "a number is not one": lambda redis, keys: redis.hset(keys.job("001"), "admitted_ms", "x"),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_record_costs_its_neighbours_nothing(
    store: Store, broken: Callable[[Redis, Keys], object]
) -> None:
    ledger, redis = store
    admit(ledger, *["none"] * 4)
    broken(redis, ledger.keys)
    assert claimed(ledger.claims.claim_next_many(messages=["-"] * 3, worker="w", operation=operation())) == [
        "000",
        "002",
        "003",
    ]


def test_claims_that_are_there_are_kept_when_the_store_refuses_another(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: the second of three answers is an error."""
    ledger, _ = store
    admit(ledger, "a", "a", "a")
    real = ledger._store.scripts.call_each

    def failing(reply: Any, calls: Sequence[ScriptCall]) -> list[Any]:
        answers = real(reply, calls)
        answers[1] = StoreUnavailable("LOADING")
        return answers

    monkeypatch.setattr(ledger._store.scripts, "call_each", failing)
    answers = ledger.claims.claim_next_many(messages=["-"] * 3, worker="w", operation=operation())
    assert claimed(answers) == ["000", "002"]
    assert answers[2] == Dropped("contended")


def test_a_store_that_refuses_every_claim_is_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, _ = store
    admit(ledger, "a", "a")
    refusal: list[Any] = [StoreUnavailable("LOADING")] * 2
    monkeypatch.setattr(ledger._store.scripts, "call_each", lambda reply, calls: refusal)  # injected
    with pytest.raises(StoreUnavailable, match="LOADING"):
        ledger.claims.claim_next_many(messages=["-"] * 2, worker="w", operation=operation())


def test_workers_that_claim_several_at_once_share_them(redis_url: str) -> None:
    jobs = 120
    found: list[str] = []

    def work() -> None:
        with connect(load_settings(redis={"url": redis_url})) as own:
            ledger = Ledger(own, load_settings(redis={"url": redis_url}))
            while got := claimed(
                ledger.claims.claim_next_many(messages=["-"] * 8, worker="w", operation=operation())
            ):
                found.extend(got)

    with open_ledger("redis", redis_url) as (ledger, _):
        for at in range(jobs):
            ledger.admissions.admit(f"{at:03}", manifest(tenant=f"t{at % 3}"))
        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert Counter(found) == {f"{at:03}": 1 for at in range(jobs)}
        assert ledger.figures.running() == jobs


class SlowClaims:
    """Injected before real claims: the first call waits until all others wait for it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.go = threading.Event()
        self.counts: list[int] = []

    def claim_next_many(
        self, *, messages: Sequence[str], worker: str, operation: str
    ) -> list[Claim | Dropped]:
        self.counts.append(len(messages))
        assert self.go.wait(10)
        return self._ledger.claims.claim_next_many(messages=messages, worker=worker, operation=operation)


def together(claiming: Claiming, slow: SlowClaims, threads: int) -> list[str | BaseException]:
    """What each thread has claimed, when all but the first found one asking."""
    found: list[str | BaseException] = []

    def work() -> None:
        try:
            _, got = claiming.claim("-")
            found.append(got.job_id if isinstance(got, Claim) else got.why)
        except StoreUnavailable as error:
            found.append(error)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    workers[0].start()
    while not slow.counts:
        pass
    for worker in workers[1:]:
        worker.start()
    while len(claiming._waiting) < threads - 1:
        pass
    slow.go.set()
    for worker in workers:
        worker.join()
    return found


def test_threads_of_a_worker_claim_together(redis_url: str) -> None:
    with open_ledger("redis", redis_url) as (ledger, _):
        admit(ledger, *["a"] * 12)
        slow = SlowClaims(ledger)
        found = together(Claiming(slow, "w"), slow, threads=12)  # type: ignore[arg-type]
        assert sorted(map(str, found)) == [f"{at:03}" for at in range(12)]
        assert slow.counts == [1, 8, 3]


def test_each_thread_hears_that_the_store_is_away(redis_url: str) -> None:
    with open_ledger("redis", "redis://127.0.0.1:1/0") as (ledger, _):
        slow = SlowClaims(ledger)
        found = together(Claiming(slow, "w"), slow, threads=5)  # type: ignore[arg-type]
        assert [isinstance(one, StoreUnavailable) for one in found] == [True] * 5
        assert slow.counts == [1, 4]
