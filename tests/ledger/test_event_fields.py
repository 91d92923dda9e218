"""What events say of a job: names, and of its output the first line of its error alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from cellblock import JobError, Outcome
from cellblock.admission.sealing import new_pair
from cellblock.ledger import Ledger
from ledger.kit import (
    OPEN,
    STORES,
    admit,
    be_late,
    claim,
    events_of,
    expire_lease,
    lead,
    manifest,
    open_ledger,
    operation,
    result_of,
    settings_of,
)

pytestmark = pytest.mark.no_rerun

Store = tuple[Ledger, Redis]
FAILED = JobError(type="ValueError", message="bad\nsecond line", traceback="File ...")


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Store]:
    with open_ledger(request.param, redis_url) as opened:
        yield opened


def fail(store: Store, outcome: Outcome, error: JobError | None = None) -> None:
    """End the job's attempt. Injected: its pause before the next one is over."""
    ledger, redis = store
    ledger.finish(held := claim(ledger), result_of(held, outcome, error=error), operation())
    redis.zadd(ledger.keys.delayed, {"job": 1}, xx=True)
    ledger.upkeep.wake_delayed()


def test_event_names_plan_and_image_all_along(store: Store) -> None:
    ledger, _ = store
    ledger.admissions.admit("job", manifest(retries=1), gates=OPEN)
    for outcome in (Outcome.EXIT, Outcome.SANDBOX_ERROR):
        fail(store, outcome)
    assert ledger.retry_dead("job", operation()).word == "retried"
    found = [(event.type.rpartition(".")[2], event.plan, event.image) for event in events_of(ledger)]
    words = ("queued", "started", "retried", "started", "failed", "queued")
    assert found == [(word, "open", "python") for word in words]


def test_event_without_a_plan_names_none(store: Store) -> None:
    ledger, _ = store
    admit(ledger)
    assert events_of(ledger)[0].plan is None


def test_event_of_a_failure_has_the_first_line_of_its_error(store: Store) -> None:
    ledger, _ = store
    admit(ledger, retries=1)
    for outcome in (Outcome.EXIT, Outcome.EXIT):
        fail(store, outcome, FAILED)
    messages = {event.type.rpartition(".")[2]: event.message for event in events_of(ledger)}
    assert messages == {
        "queued": None,
        "started": None,
        "retried": "ValueError: bad",
        "failed": "ValueError: bad",
    }


def test_event_of_an_end_without_a_worker_says_why(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    be_late(ledger, redis)
    assert len(list(ledger.upkeep.expire())) == 1
    assert str(events_of(ledger)[-1].message).startswith("Expired: Not started in time")
    admit(ledger, "lost")
    with settings_of(ledger, loss_limit=1):
        claim(ledger, "lost")
        expire_lease(ledger, redis, "lost")
        lead(ledger)
        assert len(list(ledger.upkeep.reap())) == 1
    assert events_of(ledger, "lost")[-1].message == "WorkerLost: Every attempt lost its worker"
    admit(ledger, "cancelled")
    ledger.cancel("cancelled")
    assert events_of(ledger, "cancelled")[-1].message is None


def test_event_of_a_confidential_job_has_no_message(store: Store) -> None:
    ledger, _ = store
    _, public = new_pair()
    ledger.admissions.admit("job", manifest().model_copy(update={"seal_to": public}))
    ledger.finish(held := claim(ledger), result_of(held, Outcome.EXIT, error=FAILED), operation())
    assert events_of(ledger)[-1].message is None


@pytest.mark.parametrize("text", ["x" * 5000, "😀" * 5000, "\x1b[31m\u202e" * 500])
def test_event_message_is_short_and_printable(store: Store, text: str) -> None:
    ledger, redis = store
    admit(ledger)
    error = JobError(type="ValueError", message=text)
    ledger.finish(held := claim(ledger), result_of(held, Outcome.EXIT, error=error), operation())
    message = events_of(ledger)[-1].message
    assert message is not None
    assert 190 <= len(message.encode()) <= 200
    assert message.isprintable()
    plain = 700 + len(str(redis.get(ledger.keys.result("job"))).encode())
    assert int(str(redis.hget(ledger.keys.job("job"), "kept"))) >= plain + 190, "it is counted"


def test_event_before_the_last_ones_is_found(store: Store) -> None:
    ledger, _ = store
    for number in range(5):
        admit(ledger, f"job{number}")
    ids = [event.id for event in ledger.reads.events()]
    assert ledger.reads.event_before_last(3) == ids[1]
    assert [event.id for event in ledger.reads.events(ids[1])] == ids[2:]
    assert [ledger.reads.event_before_last(count) for count in (4, 5, 99)] == [ids[0], "0", "0"]


def test_event_before_more_than_a_page_is_found(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, _ = store
    monkeypatch.setattr("cellblock.ledger.reads._EVENTS_PAGE", 2)
    for number in range(6):
        admit(ledger, f"job{number}")
    ids = [event.id for event in ledger.reads.events()]
    assert [ledger.reads.event_before_last(count) for count in range(7)] == [*reversed(ids), "0"]


def test_event_of_another_version_is_left_out(store: Store) -> None:
    ledger, redis = store
    admit(ledger)
    redis.xadd(ledger.keys.events, {"type": "agent.run.dreamt", "job_id": "job", "at_ms": "1"})
    assert [event.type for event in ledger.reads.events("0")] == ["agent.run.queued"]
    (first,) = ledger.reads.events("0")
    assert ledger.reads.events(first.id, wait_s=0.2) == []
    admit(ledger, "next")
    assert [event.job_id for event in ledger.reads.events(first.id, wait_s=5)] == ["next"]
