"""Whose job is next: plans by their weight, tenants of a plan in turn, a tenant's own by priority and age."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from redis import Redis

from cellblock.admission.gates import Gates
from cellblock.ledger import Claim, Ledger
from ledger.kit import OPEN, STORES, manifest, open_ledger, operation, result_of, settings_of

pytestmark = pytest.mark.no_rerun

Store = tuple[Ledger, Redis]
PLAN = replace(OPEN, plan="plan")


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Store]:
    with open_ledger(request.param, redis_url) as opened:
        yield opened


def admit(ledger: Ledger, tenant: str, count: int = 1, gates: Gates | None = PLAN, **fields: Any) -> None:
    for _ in range(count):
        ledger.admissions.admit(operation(), manifest(tenant=tenant, **fields), gates=gates)


def start(ledger: Ledger) -> Claim:
    claimed = ledger.claims.claim_next(message="-", worker="w", operation=operation())
    assert isinstance(claimed, Claim)
    return claimed


def run(ledger: Ledger, count: int) -> list[str]:
    """The tenants of the next jobs, each run to its end before the next."""
    tenants = []
    for _ in range(count):
        held = start(ledger)
        ledger.finish(held, result_of(held), operation())
        tenants.append(held.manifest.tenant)
    return tenants


def test_tenants_of_a_plan_take_turns_however_many_jobs_each_has(store: Store) -> None:
    ledger, _ = store
    admit(ledger, "many", 30)
    admit(ledger, "few", 3)
    admit(ledger, "one", 1)
    order = run(ledger, 34)
    assert sorted(order[:3]) == ["few", "many", "one"]
    assert Counter(order[:5]) == {"many": 2, "few": 2, "one": 1}
    assert order[7:] == ["many"] * 27


@pytest.mark.parametrize("slots", [1, 4])
def test_the_first_job_of_a_newcomer_is_next(store: Store, slots: int) -> None:
    """All it waits for is that a running job ends."""
    ledger, _ = store
    with settings_of(ledger, tenant_slots=slots):
        admit(ledger, "many", 50, None)
        run(ledger, 10)
        start(ledger)
        admit(ledger, "newcomer", 1, None)
        assert start(ledger).manifest.tenant == "newcomer"


def test_newcomers_do_not_push_in_before_those_who_wait(store: Store) -> None:
    """However many tenants come, who waits is served after those who were before it."""
    ledger, _ = store
    for tenant in ("a", "b", "c"):
        admit(ledger, tenant, 10)
    assert run(ledger, 3) == ["a", "b", "c"]
    for number in range(10):
        admit(ledger, f"new{number}")
    assert run(ledger, 2) == ["a", "b"]
    assert set(run(ledger, 10)) == {f"new{number}" for number in range(10)}
    assert run(ledger, 3) == ["c", "a", "b"]


def test_newcomers_stand_in_the_order_they_came_whatever_their_names(store: Store) -> None:
    ledger, _ = store
    admit(ledger, "busy", 2)
    held = start(ledger)
    names = ["victim", *(f"0-{number:03}" for number in range(50)), "A"]
    for name in names:
        admit(ledger, name)
    ledger.finish(held, result_of(held), operation())
    assert run(ledger, 52) == names


def test_plans_share_by_weight(store: Store) -> None:
    ledger, _ = store
    for tenant in ("small1", "small2", "small3"):
        admit(ledger, tenant, 100)
    admit(ledger, "big", 200, replace(PLAN, plan="big", weight=4))
    admit(ledger, "none", 100, None)
    order = Counter(run(ledger, 120))
    small = sum(order[f"small{number}"] for number in (1, 2, 3))
    assert abs(order["big"] - 80) <= 2, "four of six"
    assert abs(small - 20) <= 2, "one of six, for each tenant of the plan"
    assert abs(order["none"] - 20) <= 2, "jobs without a plan share a weight of one"


def test_a_plan_that_had_nothing_to_run_has_saved_nothing_up(store: Store) -> None:
    ledger, _ = store
    admit(ledger, "idle", 1, replace(PLAN, plan="idle"))
    admit(ledger, "busy", 100)
    run(ledger, 60)
    admit(ledger, "idle", 50, replace(PLAN, plan="idle"))
    assert abs(Counter(run(ledger, 20))["idle"] - 10) <= 1


def test_a_new_weight_holds_from_the_next_admission_on(store: Store) -> None:
    ledger, _ = store
    other = replace(PLAN, plan="other")
    admit(ledger, "a", 100)
    admit(ledger, "b", 100, other)
    assert Counter(run(ledger, 10)) == {"a": 5, "b": 5}
    admit(ledger, "b", 1, replace(other, weight=4))
    assert Counter(run(ledger, 50)) == {"a": 10, "b": 40}


def test_a_tenant_at_its_bound_does_not_hold_up_the_others(store: Store) -> None:
    ledger, _ = store
    admit(ledger, "bound", 10, replace(PLAN, parallel=1))
    admit(ledger, "free", 10)
    tenants = [start(ledger).manifest.tenant for _ in range(11)]
    assert Counter(tenants) == {"bound": 1, "free": 10}


def test_a_tenant_that_changes_its_plan_takes_its_line_along(store: Store) -> None:
    ledger, redis = store
    admit(ledger, "moves", 3)
    admit(ledger, "stays", 3)
    admit(ledger, "moves", 1, replace(PLAN, plan="other"))
    assert redis.zcard(ledger.keys.lane_turns) == 2
    assert Counter(run(ledger, 7)) == {"moves": 4, "stays": 3}
    assert redis.zcard(ledger.keys.lane_turns) == 0


def test_priority_is_among_a_tenants_own_jobs(store: Store) -> None:
    ledger, _ = store
    admit(ledger, "greedy", 5, priority="high")
    for priority in ("low", "normal", "high"):
        admit(ledger, "modest", 1, priority=priority)
    held = [start(ledger) for _ in range(6)]
    assert [one.manifest.tenant for one in held].count("modest") == 3
    mine = [one.manifest.priority for one in held if one.manifest.tenant == "modest"]
    assert mine == ["high", "normal", "low"]


def test_every_message_may_start_any_job(store: Store) -> None:
    """As many deliveries as jobs, of whatever ids, start them all."""
    ledger, _ = store
    woken = 0
    for number in range(20):
        admission = ledger.admissions.admit(f"job{number}", manifest(tenant=f"t{number % 3}"))
        woken += len(admission.wake)
    assert woken == 20
    assert len({start(ledger).job_id for _ in range(20)}) == 20
