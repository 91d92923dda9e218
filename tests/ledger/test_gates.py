"""Rate, queue, runs and money of a plan: checked and taken together, given back together, never twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from redis import Redis

from cellblock import BudgetExceeded, Outcome, RateLimited
from cellblock.admission.gates import Gates
from cellblock.ledger import Claim, Dropped, Ledger, connect
from cellblock_config import load_settings
from ledger.kit import (
    OPEN,
    STORES,
    be_late,
    claim,
    dump,
    expire_lease,
    manifest,
    once,
    open_ledger,
    operation,
    result_of,
    settings_of,
)

pytestmark = pytest.mark.no_rerun

Store = tuple[Ledger, Redis]
WIDE = replace(
    OPEN,
    plan="wide",
    parallel=10,
    emission_us=1_000_000,
    burst=1000,
    runs_per_day=1000,
    queue_depth=1000,
    reserve_micros=100,
)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Store]:
    with open_ledger(request.param, redis_url, ledger={"fault_retries": 1, "retry_backoff_s": 60}) as opened:
        yield opened


def admit(ledger: Ledger, job_id: str, gates: Gates = WIDE, **fields: Any) -> None:
    assert ledger.admissions.admit(job_id, manifest(**fields), gates=gates).fresh


def account(ledger: Ledger, redis: Redis, tenant: str = "default") -> dict[str, int]:
    """The only day there is: runs, reserved, spent."""
    stored = redis.hgetall(ledger.keys.account(tenant))
    found = {str(name).split(".")[1]: int(value) for name, value in stored.items() if "." in str(name)}
    return {"runs": 0, "reserved": 0, "spent": 0} | found


def end(ledger: Ledger, held: Claim, outcome: Outcome = Outcome.OK, cost: int = 0) -> str:
    result = result_of(held, outcome).model_copy(update={"cost_micros": cost})
    return ledger.finish(held, result, operation()).word


@pytest.mark.parametrize(
    ("gates", "admitted", "says"),
    [
        (
            replace(WIDE, burst=3, emission_us=10_000_000),
            3,
            "rate: one run each 10 s and 3 at once are allowed, and used",
        ),
        (replace(WIDE, runs_per_day=2), 2, "runs_per_day: 2 of 2 runs today"),
        (replace(WIDE, queue_depth=4), 4, "queue_depth: 4 jobs wait and 4 may"),
        (
            replace(WIDE, budget_micros=250),
            2,
            r"cost_per_day: 0 spent and 0\.0002 held of 0\.00025 today \(UTC\), and this",
        ),
    ],
)
def test_each_limit_refuses_by_name_and_takes_nothing(
    store: Store, gates: Gates, admitted: int, says: str
) -> None:
    ledger, redis = store
    for number in range(admitted):
        admit(ledger, f"job{number}", gates)
    before = dump(redis)
    with pytest.raises(RateLimited, match=says) as refused:
        admit(ledger, "more", gates)
    assert "tenant 'default', plan 'wide'" in str(refused.value)
    assert 0 < refused.value.retry_after_s <= 86_400
    limit = says.partition(":")[0]
    allowed = {"rate": 3, "runs_per_day": 2, "queue_depth": 4, "cost_per_day": 250}
    used = {"rate": 3, "runs_per_day": 2, "queue_depth": 4, "cost_per_day": 200}
    error = refused.value
    assert (error.limit, error.allowed, error.used) == (limit, allowed[limit], used[limit])
    assert dump(redis) == before


def test_money_that_is_held_may_be_back_in_a_moment_and_what_is_spent_comes_tomorrow(store: Store) -> None:
    ledger, _ = store
    gates = replace(WIDE, budget_micros=250)
    admit(ledger, "one", gates)
    admit(ledger, "two", gates)
    with pytest.raises(BudgetExceeded) as held:
        admit(ledger, "three", gates)
    assert held.value.retry_after_s == 5
    for _ in range(2):
        taken = ledger.claims.claim_next(message="-", worker="w1", operation=operation())
        assert isinstance(taken, Claim)
        end(ledger, taken, cost=100)
    with pytest.raises(BudgetExceeded) as spent:
        admit(ledger, "three", gates)
    day_ms = 86_400_000
    now_ms = 1000 * ledger._store.redis.time()[0]
    assert abs(spent.value.retry_after_s - (day_ms - now_ms % day_ms) / 1000) < 3


def test_the_rate_lets_one_more_through_as_time_goes_by(store: Store) -> None:
    ledger, redis = store
    slow = replace(WIDE, burst=2, emission_us=10_000_000)
    admit(ledger, "a", slow)
    admit(ledger, "b", slow)
    with pytest.raises(RateLimited) as refused:
        admit(ledger, "c", slow)
    assert 9 < refused.value.retry_after_s <= 10
    redis.decrby(ledger.keys.rate("default"), 10_000_000)  # Injected: ten seconds have gone
    admit(ledger, "c", slow)
    with pytest.raises(RateLimited):
        admit(ledger, "d", slow)


def test_no_tenant_feels_anothers_limits(store: Store) -> None:
    ledger, _ = store
    tight = replace(WIDE, burst=1, emission_us=10_000_000, runs_per_day=1, queue_depth=1, budget_micros=100)
    admit(ledger, "a", tight, tenant="one")
    admit(ledger, "b", tight, tenant="two")


def test_an_admission_sent_again_takes_nothing_twice(store: Store) -> None:
    ledger, redis = store
    first = manifest()
    ledger.admissions.admit("job", first, once(), gates=WIDE)
    before = dump(redis)
    ledger.admissions.admit("job", first, once(), gates=WIDE)
    ledger.admissions.admit("other", first, once(), gates=WIDE)
    assert dump(redis) == before
    assert account(ledger, redis) == {"runs": 1, "reserved": 100, "spent": 0}


def test_the_end_takes_what_was_used_and_gives_the_rest_back(store: Store) -> None:
    ledger, redis = store
    admit(ledger, "job")
    assert account(ledger, redis)["reserved"] == 100
    assert end(ledger, claim(ledger), cost=30) == "finished"
    assert account(ledger, redis) == {"runs": 1, "reserved": 0, "spent": 30}
    result = ledger.reads.result("job")
    assert result is not None
    assert result.cost_micros == 30


def test_never_more_than_was_reserved_is_taken(store: Store) -> None:
    ledger, redis = store
    admit(ledger, "job")
    end(ledger, claim(ledger), cost=10**9)
    assert account(ledger, redis) == {"runs": 1, "reserved": 0, "spent": 100}


def test_a_finish_sent_again_takes_nothing_twice(store: Store) -> None:
    ledger, redis = store
    admit(ledger, "job")
    held, op = claim(ledger), operation()
    result = result_of(held).model_copy(update={"cost_micros": 30})
    for _ in range(3):
        ledger.finish(held, result, op)
    ledger.finish(held, result, operation())
    assert account(ledger, redis) == {"runs": 1, "reserved": 0, "spent": 30}


@pytest.mark.parametrize("how", ["fault", "lost", "cancelled", "expired"])
def test_what_was_our_fault_or_never_ran_costs_nothing(store: Store, how: str) -> None:
    ledger, redis = store
    admit(ledger, "job")
    if how == "cancelled":
        ledger.cancel("job")
    elif how == "expired":
        be_late(ledger, redis)
        list(ledger.upkeep.expire())
    else:
        with settings_of(ledger, fault_retries=0, loss_limit=1):
            held = claim(ledger)
            if how == "fault":
                end(ledger, held, Outcome.SANDBOX_ERROR, cost=50)
            else:
                expire_lease(ledger, redis)
                list(ledger.upkeep.reap())
    assert account(ledger, redis) == {"runs": 1, "reserved": 0, "spent": 0}


def test_a_lost_attempt_is_not_charged_and_the_next_one_is_once(store: Store) -> None:
    ledger, redis = store
    admit(ledger, "job")
    lost = claim(ledger)
    expire_lease(ledger, redis)
    list(ledger.upkeep.reap())
    again = claim(ledger)
    assert end(ledger, lost, cost=60) == "stale"
    assert end(ledger, again, cost=40) == "finished"
    assert account(ledger, redis) == {"runs": 1, "reserved": 0, "spent": 40}


def test_retries_that_the_job_asked_for_are_charged_together(store: Store) -> None:
    ledger, redis = store
    admit(ledger, "job", retries=2)
    for cost in (20, 30):
        assert end(ledger, claim(ledger), Outcome.EXIT, cost) == "retried"
        redis.zadd(ledger.keys.delayed, {"job": 1}, xx=True)
        ledger.upkeep.wake_delayed()
    assert end(ledger, claim(ledger), cost=15) == "finished"
    assert account(ledger, redis) == {"runs": 1, "reserved": 0, "spent": 65}


def test_what_attempts_use_together_stays_within_the_cap(store: Store) -> None:
    """A job at its cap is not tried again, and each attempt knows what the earlier ones used."""
    ledger, redis = store
    ledger.admissions.admit("job", manifest(retries=5), gates=WIDE)
    assert end(ledger, claim(ledger), Outcome.EXIT, cost=70) == "retried"
    redis.zadd(ledger.keys.delayed, {"job": 1}, xx=True)
    ledger.upkeep.wake_delayed()
    held = claim(ledger)
    assert held.charged_micros == 70
    assert end(ledger, held, Outcome.COST_CAP, cost=30) == "finished"
    assert account(ledger, redis) == {"runs": 1, "reserved": 0, "spent": 100}


def test_days_older_than_forty_are_forgotten(store: Store) -> None:
    ledger, redis = store
    key, today = ledger.keys.account("default"), int(redis.time()[0]) // 86_400
    redis.hset(key, mapping={f"{today - age}.spent": 1 for age in (1, 39, 40, 47, 200)})
    admit(ledger, "job")
    assert {one.day.toordinal() - 719_163 for one in ledger.figures.usage("default")} == {
        today,
        today - 1,
        today - 39,
    }


def test_jobs_that_were_forgotten_do_not_fill_the_line(store: Store) -> None:
    """Injected: their records expired while they waited, in an outage."""
    ledger, redis = store
    two = replace(WIDE, queue_depth=2)
    for name in ("a", "b"):
        admit(ledger, name, two)
        redis.delete(ledger.keys.job(name))
        redis.zadd(ledger.keys.line("default"), {name: 1}, xx=True)
        redis.zadd(ledger.keys.deadlines, {name: 1}, xx=True)
    list(ledger.upkeep.expire())
    admit(ledger, "c", two)
    assert redis.zrange(ledger.keys.line("default"), 0, -1) == ["c"]


def test_a_dead_letter_that_runs_again_costs_nothing_more(store: Store) -> None:
    ledger, redis = store
    admit(ledger, "job")
    with settings_of(ledger, fault_retries=0):
        end(ledger, claim(ledger), Outcome.SANDBOX_ERROR)
    op = operation()
    for _ in range(2):
        ledger.retry_dead("job", op)
    assert account(ledger, redis) == {"runs": 1, "reserved": 0, "spent": 0}
    end(ledger, claim(ledger), cost=10)
    assert account(ledger, redis) == {"runs": 1, "reserved": 0, "spent": 0}


def test_a_plan_says_how_long_results_are_kept(store: Store) -> None:
    ledger, redis = store
    admit(ledger, "job", replace(WIDE, result_ttl_s=77))
    end(ledger, claim(ledger))
    leaves_s = (redis.zscore(ledger.keys.keepers, "default 77") or 0) / 1000 - redis.time()[0]
    assert 70 < leaves_s <= 78


def test_a_plan_says_how_many_run_at_once(store: Store) -> None:
    ledger, _ = store
    two = replace(WIDE, parallel=2)
    for name in ("a", "b", "c"):
        admit(ledger, name, two)
    held = claim(ledger, "a")
    claim(ledger, "b")
    assert ledger.claims.claim_next(message="c", worker="w1", operation=operation()) == Dropped("parked")
    assert ledger.finish(held, result_of(held), operation()).wake == ("c",)
    assert ledger.upkeep.look_at_parked() == []
    claim(ledger, "c")


def test_two_hundred_submitters_at_once_never_overdraw(redis_url: str) -> None:
    """A budget for 37 runs: exactly 37 are admitted."""
    gates = replace(WIDE, budget_micros=3_799)
    settings = load_settings(redis={"url": redis_url})
    admitted, refused = [], []
    start = threading.Barrier(200)

    def submit(number: int) -> None:
        with connect(settings) as redis:
            ledger = Ledger(redis, settings)
            ledger.admissions._schema_checked = True
            start.wait()
            try:
                ledger.admissions.admit(f"job{number}", manifest(), gates=gates)
                admitted.append(number)
            except BudgetExceeded:
                refused.append(number)

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(admitted), len(refused)) == (37, 163)
