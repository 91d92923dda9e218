"""Flower's memory holds one task for each job, in the state that the ledger's events lead to."""

from __future__ import annotations

from typing import Any, cast

import pytest
from flower.events import EventsState

from cellblock import Event, Outcome
from cellblock.contract.events import GAP, EventType
from cellblock_workers.monitor.jobs import JobsState

HERE = "cellblock@w1"


def event(kind: str, job_id: str = "job", **fields: Any) -> Event:
    """An event of a job; ``at`` grows with the attempt unless it is given."""
    given = {"id": "1-0", "tenant": "acme", "at": 100.0, "attempt": 1, "trace_id": "t", **fields}
    return Event(type=cast(EventType, f"agent.run.{kind}"), job_id=job_id, **given)


def state_after(*events: Event, most: int = 100) -> JobsState:
    """A new memory that has taken these events over."""
    state = JobsState(max_tasks_in_memory=most)
    state.take(events)
    return state


def found(state: JobsState, query: str) -> list[str]:
    """The ids of the jobs that Flower's search finds."""
    return cast(list[str], state.search_engine.search(state.tasks, query).task_ids)


def heartbeat(**fields: object) -> dict[str, object]:
    """A worker's, as Celery sends it."""
    return {
        "type": "worker-heartbeat",
        "hostname": HERE,
        "timestamp": 1.0,
        "local_received": 1.0,
        "active": 7,
        "freq": 10.0,
        "clock": 1,
        **fields,
    }


FLOWER = {"succeeded": "succeeded", "failed": "failed", "cancelled": "revoked", "rejected": "rejected"}
ENDS = {
    "succeeded": (Outcome.OK, None, "SUCCESS"),
    "failed": (Outcome.EXIT, "ZeroDivisionError: division by zero", "FAILURE"),
    "cancelled": (Outcome.CANCELLED, None, "REVOKED"),
    "rejected": (Outcome.REJECTED, "Expired: not started in time", "REJECTED"),
}


@pytest.mark.parametrize("kind", ENDS)
def test_flower_task_has_the_end_of_its_job(kind: str) -> None:
    outcome, message, expected = ENDS[kind]
    state = state_after(
        event("queued", plan="free", image="python", attempt=0),
        event("started", plan="free", image="python", worker="w1", at=101.0),
        event(kind, plan="free", image="python", worker="w1", outcome=outcome, message=message, at=103.5),
    )
    task = state.tasks["job"]
    assert (task.state, task.result, task.runtime) == (expected, outcome, 2.5)
    assert (task.sent, task.received, task.started) == (100.0, 101.0, 101.0)
    assert task.kwargs == "{'tenant': 'acme', 'plan': 'free', 'image': 'python'}"
    assert task.exception == (f"{outcome}: {message}" if message else None)
    assert task.worker.hostname == HERE
    assert (state.counter[HERE]["task-received"], state.counter[HERE][f"task-{FLOWER[kind]}"]) == (1, 1)


def test_flower_task_that_waits_again_has_no_runtime_and_names_its_retry() -> None:
    begun = (event("queued", attempt=0), event("started", worker="w1"))
    lost = event("retried", worker="w1", outcome=Outcome.WORKER_LOST)
    state = state_after(*begun, lost)
    task = state.tasks["job"]
    assert (task.state, task.exception) == ("RETRY", "worker_lost")
    state.take([event("started", worker="w2", attempt=2, at=110.0)])
    assert (task.state, task.retries, task.worker.hostname) == ("STARTED", 1, "cellblock@w2")
    assert task.exception is None
    state.take([event("cancelled", worker="w2", attempt=2, outcome=Outcome.CANCELLED, at=111.0)])
    assert (task.state, task.runtime) == ("REVOKED", 1.0)


def test_flower_task_of_a_dead_letter_that_is_retried_is_pending_again() -> None:
    failed = event("failed", worker="w1", outcome=Outcome.SANDBOX_ERROR, message="SandboxError: x")
    state = state_after(event("started", worker="w1"), failed, event("queued"))
    assert state.tasks["job"].state == "PENDING"
    state.take([event("started", worker="w1", attempt=2), event("failed", attempt=2, outcome=Outcome.EXIT)])
    assert state.tasks["job"].state == "FAILURE"


def test_flower_makes_no_worker_of_a_job_that_had_none() -> None:
    state = state_after(event("queued"), event("cancelled", outcome=Outcome.CANCELLED))
    assert list(state.workers) == []
    assert state.tasks["job"].worker is None
    state.take([event("started", "other", worker="gone")])
    assert list(state.workers) == [], "a worker is who sends heartbeats"


def test_flower_counts_the_jobs_that_run_on_a_worker() -> None:
    state = state_after(event("started", "a", worker="w1"), event("started", "b", worker="w1"))
    state.event(heartbeat())
    assert state.workers[HERE].active == 2, "not Celery's messages"
    state.take([event("succeeded", "a", worker="w1", outcome=Outcome.OK)])
    assert state.workers[HERE].active == 1
    state.event(heartbeat())
    assert state.workers[HERE].active == 1


def test_flower_drops_events_about_tasks_from_the_broker() -> None:
    forged = {"type": "task-succeeded", "uuid": "forged", "hostname": HERE, "timestamp": 1.0}
    state = state_after()
    state.event({**forged, "local_received": 1.0, "clock": 1})
    assert list(state.tasks) == []
    plain = EventsState()
    plain.event({**forged, "local_received": 1.0, "clock": 1})
    assert list(plain.tasks) == ["forged"], "which Flower itself takes"


def test_flower_forgets_unfinished_jobs_behind_a_gap() -> None:
    gap = Event(id="9-0", type=GAP, job_id="", tenant="", at=1.0, attempt=0, trace_id="")
    ended = event("succeeded", "ended", worker="w1", outcome=Outcome.OK)
    rejected = event("rejected", "late", outcome=Outcome.REJECTED)
    state = state_after(
        event("started", "ended", worker="w1"), ended, rejected, event("started", worker="w1")
    )
    state.event(heartbeat())
    state.take([gap])
    assert sorted(state.tasks) == ["ended", "late"], "the other may have ended meanwhile"
    assert sorted(found(state, "acme")) == ["ended", "late"]
    state.event(heartbeat())
    assert state.workers[HERE].active == 0


def test_flower_keeps_the_jobs_that_changed_last() -> None:
    state = state_after(*(event("queued", f"job{number}") for number in range(5)), most=3)
    assert list(state.tasks) == ["job2", "job3", "job4"]
    assert sorted(found(state, "acme")) == ["job2", "job3", "job4"]
    state.take([event("succeeded", "job0", worker="w1", outcome=Outcome.OK, image="python")])
    assert state.tasks["job0"].kwargs == "{'tenant': 'acme', 'image': 'python'}"


def test_flower_finds_jobs_by_id_tenant_and_outcome() -> None:
    state = state_after(event("failed", "a1b2", outcome=Outcome.WALL_TIMEOUT, worker="w1", plan="free"))
    for query in ("a1b2", "kwargs:tenant=acme", "kwargs:plan=free", "result:wall_timeout", "state:FAILURE"):
        assert found(state, query) == ["a1b2"], query
    state.take([event("succeeded", "a1b2", outcome=Outcome.OK, worker="w1")])
    assert found(state, "state:FAILURE") == []
    assert found(state, "state:SUCCESS") == ["a1b2"]
