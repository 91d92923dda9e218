"""A job that a running job asks for: in its slot, within its limits, for its money."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from cellblock import Client, Job, JobSpec, JobState, Limits, Outcome, PolicyDenied
from cellblock.admission.nesting import Parent
from cellblock.admission.sealing import new_pair
from cellblock.ledger import Claim, Dropped
from cellblock_config import Settings, load_settings
from ledger.kit import claim, expire_lease, operation, result_of

pytestmark = pytest.mark.no_rerun


@contextmanager
def open_client(redis_url: str, **groups: Any) -> Iterator[Client]:
    with Client(settings=load_settings(redis={"url": redis_url}, **groups)) as client:
        yield client


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    with open_client(redis_url) as opened:
        yield opened


def spec(parent: Job | str | None = None, **fields: Any) -> JobSpec:
    given: dict[str, Any] = {"code": "1", "plan": "freemium", **fields}
    if given["plan"] is not None:
        given = {"nested_cost_micros": 750, **given}
    if parent is not None:
        given["parent"] = parent if isinstance(parent, str) else parent.id
    return JobSpec(**given)


def start(client: Client, job: Job) -> Claim:
    return claim(client._ledger, job.id)


def end(client: Client, held: Claim, cost: int = 0, outcome: Outcome = Outcome.OK) -> None:
    result = result_of(held, outcome).model_copy(update={"cost_micros": cost})
    assert client._ledger.finish(held, result, operation()).word == "finished"


def money(client: Client) -> tuple[int, int, int]:
    (today,) = client.usage("default")
    return today.runs, today.reserved_micros, today.spent_micros


def left(client: Client, parent: Job) -> int:
    return client._ledger.parent(parent.id, "default").left_micros


def test_it_runs_in_the_slot_of_its_parent(client: Client) -> None:
    """A plan of one job at once: a parent that waits for its nested run would wait for ever."""
    parent = client.submit(spec())
    start(client, parent)
    other = client.submit(spec())
    assert client.status(other.id).state is JobState.PARKED
    child = client.submit(spec(parent))
    held = start(client, child)
    second = client.submit(spec(parent))
    assert client._ledger.claims.claim_next(message=second.id, worker="w", operation=operation()) == Dropped(
        "parked"
    ), "one at a time"
    assert client.counts().parked == {"default": 2}
    end(client, held)
    start(client, second)
    assert client.status(other.id).state is JobState.PARKED


def test_its_money_is_its_parents(client: Client) -> None:
    parent = client.submit(spec())
    held = start(client, parent)
    assert money(client) == (1, 1000, 0)
    child = client.submit(spec(parent, max_cost_micros=400))
    assert money(client) == (2, 1000, 0), "nothing more is held of the tenant's"
    assert client._ledger.beat("w1", [(parent.id, held.fence)], {}) == {
        (parent.id, held.fence): ("held", 400)
    }
    end(client, start(client, child), cost=150)
    assert money(client) == (2, 850, 150)
    assert client._ledger.beat("w1", [(parent.id, held.fence)], {}) == {
        (parent.id, held.fence): ("held", 150)
    }
    end(client, held, cost=900)
    assert money(client) == (2, 0, 1000), "both together cost no more than was held"


def test_it_may_cost_half_of_what_is_left_unless_it_says(client: Client) -> None:
    parent = client.submit(spec())
    start(client, parent)
    for _ in range(3):
        before = left(client, parent)
        assert 750 < before < 900, "what the parent may have spent is not to be had"
        child = client.submit(spec(parent))
        assert abs(before - left(client, parent) - before / 2) < 20
        client.cancel(child.id)  # what was not spent comes back
    client.submit(spec(parent, max_cost_micros=before - 100))
    with pytest.raises(PolicyDenied, match=r"half of what its parent has left: .* at least 100"):
        client.submit(spec(parent))
    with pytest.raises(
        PolicyDenied, match=r"max_cost_micros: 1001 micros requested; its parent has \d+ left"
    ):
        client.submit(spec(parent, max_cost_micros=1001))


def test_what_it_spends_after_its_parents_end_is_its_own(client: Client) -> None:
    parent = client.submit(spec())
    held = start(client, parent)
    nested = start(client, client.submit(spec(parent, max_cost_micros=400)))
    end(client, held, cost=1000)
    assert money(client) == (2, 400, 600)
    end(client, nested, cost=100)
    assert money(client) == (2, 0, 700)


def test_a_parent_whose_worker_is_lost_keeps_what_it_did_not_lend(client: Client) -> None:
    parent = client.submit(spec())
    start(client, parent)
    child = client.submit(spec(parent, max_cost_micros=400))
    expire_lease(client._ledger, client._redis, parent.id)
    assert [done.word for done in client._ledger.upkeep.reap()] == ["requeued"]
    client.cancel(child.id)
    assert money(client) == (2, 1000, 0)
    end(client, start(client, parent), cost=2000)
    assert money(client) == (2, 0, 1000)


def test_a_parent_that_an_operator_lets_run_again_has_no_money_to_give(redis_url: str) -> None:
    with open_client(redis_url, ledger={"fault_retries": 0}) as client:
        parent = client.submit(spec())
        held = start(client, parent)
        child = client.submit(spec(parent, max_cost_micros=400))
        end(client, held, outcome=Outcome.SANDBOX_ERROR)
        client.retry_dead(parent.id)
        assert money(client) == (2, 400, 0)
        client.cancel(child.id)
        assert money(client) == (2, 0, 0)
        again = start(client, parent)
        assert again.lent_micros == 0
        with pytest.raises(PolicyDenied, match="half of what its parent has left: 0 micros"):
            client.submit(spec(parent))
        end(client, again, cost=2000)
        assert money(client) == (2, 0, 0)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"limits": Limits(timeout_s=6)}, "limits.timeout_s: 6 requested; its parent has"),
        ({"limits": Limits(memory_bytes=2**27 + 1)}, "limits.memory_bytes"),
        ({"limits": Limits(cpus=0.2)}, "limits.cpus: 0.2 requested; its parent has 0.1"),
        ({"limits": Limits(pids=11)}, "limits.pids: 11 requested; its parent has 10"),
        ({"limits": Limits(output_bytes=2000)}, "limits.output_bytes: 2000 requested; its parent has 1000"),
        ({"limits": Limits(cpu_s=4)}, "limits.cpu_s: 4 requested; its parent has 3"),
        ({"level": "permissive"}, "level: 'permissive' requested; plan 'freemium' allows standard"),
        ({"plan": "premium"}, "plan: 'premium' requested; its parent's plan is 'freemium'"),
        ({"tenant": "other"}, "parent: no job"),
    ],
)
def test_it_gets_no_more_than_its_parent_has(client: Client, asked: dict[str, Any], field: str) -> None:
    limits = Limits(timeout_s=5, cpu_s=3, memory_bytes=2**27, cpus=0.1, pids=10, output_bytes=1000)
    parent = client.submit(spec(limits=limits))
    start(client, parent)
    with pytest.raises(PolicyDenied, match=field):
        client.submit(spec(parent, **asked))
    time.sleep(0.02)  # all of this may have taken less than a millisecond, in which times are counted
    child = client.submit(spec(parent, plan=None, max_cost_micros=400))
    manifest = start(client, child).manifest
    assert (manifest.plan, manifest.parent, manifest.depth) == ("freemium", parent.id, 1)
    given = manifest.limits
    assert (given.memory_bytes, given.cpus, given.pids, given.output_bytes) == (2**27, 0.1, 10, 1000)
    assert given.cpu_s == 3
    assert 3 < given.timeout_s < 5, "what is left of its parent's time"
    assert manifest.expires_s <= 5
    assert manifest.trace_id == client.status(parent.id).trace_id


def test_what_it_does_not_say_is_its_parents(client: Client) -> None:
    parent = client.submit(spec(tenant="acme", level="strict"))
    start(client, parent)
    child = client.submit(JobSpec(code="1", parent=parent.id, max_cost_micros=400))
    manifest = start(client, child).manifest
    assert (manifest.tenant, manifest.plan, manifest.level) == ("acme", "freemium", "strict")


def test_it_runs_at_no_weaker_level(client: Client) -> None:
    parent = client.submit(spec(plan=None))
    start(client, parent)
    with pytest.raises(PolicyDenied, match="level: 'permissive' requested; its parent runs at 'standard'"):
        client.submit(spec(parent, plan=None, level="permissive"))


def test_only_a_running_job_has_nested_runs(client: Client) -> None:
    parent = client.submit(spec())
    missing = "parent: no job .* is running"
    with pytest.raises(PolicyDenied, match=missing):
        client.submit(spec(parent))
    with pytest.raises(PolicyDenied, match=missing):
        client.submit(spec("0" * 32))
    held = start(client, parent)
    client.submit(spec(parent))
    end(client, held)
    with pytest.raises(PolicyDenied, match=missing):
        client.submit(spec(parent))


def test_a_parent_that_ends_while_it_is_asked_for_has_none(client: Client) -> None:
    """Injected: it ends between the look at it and the admission."""
    parent = client.submit(spec())
    held = start(client, parent)
    looked_at = client._ledger.parent(parent.id, "default")
    end(client, held)
    client._ledger.parent = lambda *_: looked_at  # type: ignore[method-assign]
    with pytest.raises(PolicyDenied, match="is running"):
        client.submit(spec(parent))
    assert money(client)[:2] == (1, 0)


def test_money_that_was_given_to_another_meanwhile_is_not_given_twice(client: Client) -> None:
    """Injected: two nested runs were both told what is left before either was admitted."""
    parent = client.submit(spec())
    start(client, parent)
    looked_at = client._ledger.parent(parent.id, "default")
    client._ledger.parent = lambda *_: looked_at  # type: ignore[method-assign]
    client.submit(spec(parent, max_cost_micros=800))
    with pytest.raises(PolicyDenied, match=r"parent: it has \d+ micros left"):
        client.submit(spec(parent, max_cost_micros=800))


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_runs_nest_no_deeper_than_allowed(redis_url: str, depth: int) -> None:
    with open_client(redis_url, policy={"max_recursion_depth": depth}) as client:
        job = client.submit(spec(plan=None))
        for _ in range(depth):
            start(client, job)
            job = client.submit(spec(job, plan=None))
        start(client, job)
        with pytest.raises(
            PolicyDenied, match=rf"nested {depth} deep .* {depth} is the most .*RECURSION_DEPTH"
        ):
            client.submit(spec(job, plan=None))


def test_submitting_again_with_a_key_is_the_same_nested_run(client: Client) -> None:
    parent = client.submit(spec())
    start(client, parent)
    one = client.submit(spec(parent, idempotency_key="k"))
    assert client.submit(spec(parent, idempotency_key="k")).id == one.id


def test_a_nested_run_that_is_lost_comes_again_in_its_parents_slot(client: Client) -> None:
    parent = client.submit(spec())
    start(client, parent)
    child = client.submit(spec(parent))
    start(client, child)
    expire_lease(client._ledger, client._redis, child.id)
    (done,) = client._ledger.upkeep.reap()
    assert (done.word, done.wake) == ("requeued", (child.id,))
    assert start(client, child).fence == 2
    assert client._redis.scard(client._ledger.keys.slots("default")) == 1


def test_whoever_starts_nested_runs_and_ends_wins_no_slot_by_it(client: Client) -> None:
    first = client.submit(spec())
    held = start(client, first)
    child = client.submit(spec(first))
    nested = start(client, child)
    grandchild = client.submit(spec(child, max_cost_micros=150))
    deep = start(client, grandchild)
    end(client, held)
    waits = client.submit(spec())
    for one in (nested, deep):
        assert client._ledger.claims.claim_next(
            message=waits.id, worker="w", operation=operation()
        ) == Dropped("parked")
        assert client._ledger.upkeep.look_at_parked() == []
        end(client, one)
    assert client._ledger.upkeep.look_at_parked() == [waits.id]
    start(client, waits)


def test_what_waits_to_run_in_a_job_that_has_ended_does_not_run(client: Client) -> None:
    parent = client.submit(spec())
    held = start(client, parent)
    running = client.submit(spec(parent))
    other = start(client, running)
    waits = client.submit(spec(parent))
    end(client, held)
    end(client, other)
    assert client._ledger.claims.claim_next(message=waits.id, worker="w", operation=operation()) == Dropped(
        "terminal"
    )
    result = client.result(waits.id, timeout_s=5)
    assert (result.outcome, result.error and result.error.type) == (Outcome.CANCELLED, "ParentEnded")
    assert money(client)[1] == 0


def test_the_ledger_itself_lends_no_money_to_another_tenant(client: Client) -> None:
    """Injected: a producer whose own look at the parent said nothing of the tenant."""
    parent = client.submit(spec(tenant="victim"))
    start(client, parent)
    looked_at = client._ledger.parent(parent.id)
    stolen = Parent(parent.id, looked_at.manifest.model_copy(update={"tenant": "thief"}), 10, 1000)
    client._ledger.parent = lambda *_: stolen  # type: ignore[method-assign]
    with pytest.raises(PolicyDenied, match="of tenant 'thief' is running"):
        client.submit(spec(parent, tenant="thief"))


def test_nothing_of_it_is_left_in_the_store(client: Client, settings: Settings) -> None:
    parent = client.submit(spec())
    held = start(client, parent)
    child = client.submit(spec(parent))
    end(client, start(client, child))
    end(client, held)
    assert [str(key) for key in client._redis.keys("*") if f"/{parent.id}" in str(key)] == []


def slots_held(client: Client) -> int:
    client._ledger.upkeep.look_at_parked()
    return client._redis.scard(client._ledger.keys.slots("default"))


@pytest.mark.parametrize("inner_first", [False, True])
def test_a_slot_is_held_however_deep_in_it_something_runs(client: Client, inner_first: bool) -> None:
    """A plan of one job at once: nothing else starts while the third below the first still runs."""
    client.governance.set("*", "parallel", "1", "root")
    first = client.submit(spec(plan="premium", nested_cost_micros=10_000))
    held = [start(client, first)]
    for micros in (8000, 4000, 1000):
        above = client.job(held[-1].job_id)
        child = client.submit(spec(above, plan="premium", max_cost_micros=micros, nested_cost_micros=micros))
        held.append(start(client, child))
    beside = client.submit(spec(first, plan="premium", max_cost_micros=1000))
    other = client.submit(spec(plan="premium"))
    for one in reversed(held[1:3]) if inner_first else held[1:3]:
        end(client, one)
    assert slots_held(client) == 1
    assert isinstance(
        client._ledger.claims.claim_next(message=beside.id, worker="w", operation=operation()), Dropped
    ), "its lane's slot is taken"
    end(client, held[0])
    client.cancel(beside.id)
    assert slots_held(client) == 1
    assert client.status(other.id).state is JobState.PARKED
    end(client, held[3])
    assert slots_held(client) == 0
    start(client, other)


def test_where_nothing_is_bounded_nothing_is_left_of_who_ended_before_its_nested_runs(redis_url: str) -> None:
    with open_client(redis_url) as client:
        parent = client.submit(spec(plan=None))
        held = start(client, parent)
        nested = start(client, client.submit(spec(parent, plan=None)))
        end(client, held)
        end(client, nested)
        assert client._redis.scard(client._ledger.keys.slots("default")) == 0


def test_a_parent_cannot_lend_what_it_may_have_spent(client: Client) -> None:
    """Injected: it began earlier. Else a chain of runs could each burn all the money and lend it on."""
    parent = client.submit(spec(nested_cost_micros=0, max_cost_micros=1000, limits=Limits(timeout_s=60)))
    held = start(client, parent)
    began = round((held.started - 45) * 1000)
    client._redis.hset(client._ledger.keys.job(parent.id), "started_ms", began)
    known = client._ledger.parent(parent.id)
    assert known.accrued_micros > known.reserved_micros / 2
    asked = spec(parent, nested_cost_micros=0, max_cost_micros=known.reserved_micros)
    with pytest.raises(PolicyDenied, match=r"micros requested; its parent has \d+ left") as refusal:
        client.submit(asked)
    assert abs(known.left_micros - int(refusal.value.problem.split()[-2])) < 5
    looked_at = replace(known, reserved_micros=5000)
    client._ledger.parent = lambda *_: looked_at  # type: ignore[method-assign]
    with pytest.raises(PolicyDenied, match=rf"parent: it has {known.left_micros} micros left"):
        client.submit(asked)  # the ledger knows it too


def test_what_a_plan_has_become_is_no_reason_to_refuse_what_nobody_asked(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cellblock.governance._FRESH_S", 0.0)
    monkeypatch.setattr("cellblock.admission.plans._LOOK_S", 0.0)
    book = tmp_path / "plans.toml"
    shipped = (resources.files("cellblock_config") / "plans.toml").read_text()
    book.write_text(shipped)
    with open_client(redis_url, plans={"file": str(book)}) as client:
        parent = client.submit(spec(tenant="acme", limits=Limits(timeout_s=50)))
        start(client, parent)
        client.governance.set("acme", "timeout_s", "5", "root")
        book.write_text(shipped + 'acme = "casual"\n')
        child = client.submit(spec(parent, nested_cost_micros=0, plan=None))
        assert client.status(child.id).plan == "freemium", "its parent's, whatever its tenant is on by now"
        assert start(client, child).manifest.limits.timeout_s == 5
        token = client.api_keys.create("acme")
        keyed = JobSpec(code="1", parent=parent.id, max_cost_micros=150)
        assert client.status(client.submit(keyed, api_key=token).id).plan == "freemium"


def test_a_parent_at_the_bounds_of_its_fleet_has_nested_runs(redis_url: str) -> None:
    bounds = {"sandbox": {"timeout_max_s": 100}, "ledger": {"expires_s": 60}}
    with open_client(redis_url, **bounds) as client:
        parent = client.submit(spec(plan=None, limits=Limits(timeout_s=100)))
        start(client, parent)
        held = start(client, client.submit(spec(parent, plan=None)))
        assert held.manifest.expires_s == 60


def test_one_key_at_once_from_many_sides_is_one_nested_run(client: Client) -> None:
    parent = client.submit(spec())
    start(client, parent)
    asked = spec(parent, nested_cost_micros=0, idempotency_key="k")
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: client.submit(asked).id, range(16)))
    assert len(found) == 1


def test_what_is_nested_in_a_confidential_job_is_confidential(redis_url: str) -> None:
    (_, public), (_, fleet) = new_pair(), new_pair()
    sealing = {"tenant_keys": {"default": public}, "fleet_key": fleet}
    with open_client(redis_url, sealing=sealing) as client:
        parent = client.submit(spec(confidential=True))
        start(client, parent)
        child = client.submit(spec(parent, code="print('marker')", nested_cost_micros=0))
        stored = str(client._redis.get(client._ledger.keys.spec(child.id)))
        assert "marker" not in stored
        assert f'"seal_to":"{public}"' in stored
        with pytest.raises(PolicyDenied, match="is confidential, and so is what is nested in it"):
            client.submit(spec(parent, context_path="/data/plain"))
