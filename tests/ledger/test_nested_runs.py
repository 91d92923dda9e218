"""A job that a running job asks for: in its slot, within its limits, for its money."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cellblock import Client, Job, JobSpec, JobState, Limits, Outcome, PolicyDenied
from cellblock.ledger import Claim, Dropped
from cellblock.nesting import Parent
from cellblock_config import Settings, load_settings
from ledger.kit import claim, expire_lease, operation, result_of


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
    return today.runs, today.held_micros, today.spent_micros


def test_it_runs_in_the_slot_of_its_parent(client: Client) -> None:
    """A plan of one job at once: a parent that waits for its nested run would wait for ever."""
    parent = client.submit(spec())
    start(client, parent)
    other = client.submit(spec())
    assert client.status(other.id).state is JobState.PARKED
    child = client.submit(spec(parent))
    held = start(client, child)
    second = client.submit(spec(parent))
    assert client._ledger.claim(second.id, "w", operation()) == Dropped("parked"), "one at a time"
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
    reserved = []
    for _ in range(3):
        child = client.submit(spec(parent))
        manifest = client._ledger.parent(parent.id, "default")
        reserved.append(1000 - manifest.left_micros)
        client.cancel(child.id)
    assert reserved == [500, 500, 500], "what was not spent comes back"
    client.submit(spec(parent, max_cost_micros=900))
    with pytest.raises(PolicyDenied, match=r"half of what its parent has left: .* at least 0.0001"):
        client.submit(spec(parent))
    with pytest.raises(PolicyDenied, match=r"max_cost_micros: 1001 micros is asked; its parent has 100 left"):
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
    assert [done.word for done in client._ledger.reap()] == ["requeued"]
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
        with pytest.raises(PolicyDenied, match="half of what its parent has left: 0 credits"):
            client.submit(spec(parent))
        end(client, again, cost=2000)
        assert money(client) == (2, 0, 0)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"limits": Limits(timeout_s=6)}, "limits.timeout_s: 6 is asked; its parent has"),
        ({"limits": Limits(memory_bytes=2**27 + 1)}, "limits.memory_bytes"),
        ({"limits": Limits(cpus=0.2)}, "limits.cpus: 0.2 is asked; its parent has 0.1"),
        ({"limits": Limits(pids=11)}, "limits.pids: 11 is asked; its parent has 10"),
        ({"limits": Limits(output_bytes=2000)}, "limits.output_bytes: 2000 is asked; its parent has 1000"),
        ({"limits": Limits(cpu_s=4)}, "limits.cpu_s: 4 is asked; its parent has 3"),
        ({"level": "permissive"}, "level: 'permissive' is asked; its parent runs at 'standard'"),
        ({"plan": "premium"}, "plan: 'premium' is asked; its parent runs on 'freemium'"),
        ({"tenant": "other"}, "parent: no job"),
    ],
)
def test_it_gets_no_more_than_its_parent_has(client: Client, asked: dict[str, Any], field: str) -> None:
    limits = Limits(timeout_s=5, cpu_s=3, memory_bytes=2**27, cpus=0.1, pids=10, output_bytes=1000)
    parent = client.submit(spec(limits=limits))
    start(client, parent)
    with pytest.raises(PolicyDenied, match=field):
        client.submit(spec(parent, **asked))
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
    with pytest.raises(PolicyDenied, match="parent: it has 200 micros left"):
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
    (done,) = client._ledger.reap()
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
        assert client._ledger.claim(waits.id, "w", operation()) == Dropped("parked")
        assert client._ledger.look_at_parked() == []
        end(client, one)
    assert client._ledger.look_at_parked() == [waits.id]
    start(client, waits)


def test_what_waits_to_run_in_a_job_that_has_ended_does_not_run(client: Client) -> None:
    parent = client.submit(spec())
    held = start(client, parent)
    running = client.submit(spec(parent))
    other = start(client, running)
    waits = client.submit(spec(parent))
    end(client, held)
    end(client, other)
    assert client._ledger.claim(waits.id, "w", operation()) == Dropped("terminal")
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
