"""A caller that is lost between a job's admission and its upload leaves no dead letter, and its key free."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis import Redis

from cellblock import BlobsUnavailable, Client, Job, JobSpec, JobState, Outcome, PolicyDenied
from cellblock.admission.claim_check import fetched
from cellblock.admission.intake import Intake
from cellblock.ledger import Claim
from cellblock.ledger.admissions import Admissions
from cellblock_config import Settings, load_settings
from ledger.kit import be_late, operation, result_of, story

pytestmark = pytest.mark.no_rerun

LONG = "x" * 100_000
SPEC = JobSpec(code="1", stdin=LONG, idempotency_key="once", plan="premium")


@pytest.fixture
def settings(redis_url: str, tmp_path: Path) -> Settings:
    return load_settings(redis={"url": redis_url}, blobs={"url": f"file://{tmp_path}/blobs"})


def lose_caller(client: Client, spec: JobSpec = SPEC) -> Job:
    """Injected: the caller of this job ends before it has stored its parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Admissions, "upload", lambda self, candidate: ())
        return client.submit(spec)


def end_upload_time(client: Client, redis: Redis, job: Job) -> list[str]:
    """Injected: the time for its upload is over; and what the leader does then."""
    redis.zadd(client._ledger.keys.delayed, {job.id: 1}, xx=True)
    list(client._ledger.upkeep.expire())
    return client._ledger.upkeep.wake_delayed()


def test_job_whose_caller_was_lost_is_cancelled_in_time_and_frees_key_and_money(
    client: Client, redis: Redis
) -> None:
    job = lose_caller(client)
    assert end_upload_time(client, redis, job) == []
    result = job.result(timeout_s=5)
    assert (result.outcome, result.error and result.error.type) == (Outcome.CANCELLED, "NotUploaded")
    assert story(client._ledger, job.id) == ["queued", "cancelled"]
    assert client._ledger.reads.dead() == []
    (used,) = client.usage("default")
    assert (used.reserved_micros, used.spent_micros) == (0, 0)
    again = client.submit(SPEC)
    assert again.id != job.id
    assert claimed(client, again.id)


def test_job_that_was_not_uploaded_before_its_deadline_frees_its_key_too(
    client: Client, redis: Redis
) -> None:
    job = lose_caller(client, SPEC.model_copy(update={"expires_s": 60.0}))
    due_ms = redis.zscore(client._ledger.keys.delayed, job.id)
    assert due_ms == redis.zscore(client._ledger.keys.deadlines, job.id)
    be_late(client._ledger, redis, job.id)
    end_upload_time(client, redis, job)
    assert job.result(timeout_s=5).outcome is Outcome.CANCELLED
    assert client.submit(SPEC).id != job.id


def test_job_that_is_uploaded_as_its_time_ends_runs(client: Client, redis: Redis) -> None:
    """Injected: its record was read a moment before."""
    job = lose_caller(client)
    record = client._ledger.reads.record(job.id)
    client.submit(SPEC)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client._ledger.reads, "record", lambda job_id: record)
        redis.zadd(client._ledger.keys.delayed, {job.id: 1})
        client._ledger.upkeep.wake_delayed()
    assert job.status().state is JobState.QUEUED
    assert claimed(client, job.id)


def claimed(client: Client, job_id: str) -> Claim:
    """The job, claimed."""
    held = client._ledger.claims.claim_next(message=job_id, worker="w", operation=operation())
    assert isinstance(held, Claim), held
    assert held.job_id == job_id
    return held


def test_second_submission_under_the_key_stores_the_parts_of_a_lost_caller(
    client: Client, redis: Redis
) -> None:
    job = lose_caller(client)
    assert client.submit(SPEC).id == job.id
    held = claimed(client, job.id)
    assert fetched(held.manifest, client._ledger._store.blobs).stdin == LONG.encode()
    assert redis.zcard(client._ledger.keys.delayed) == 0
    assert client.submit(SPEC).id == job.id, "it is known, and nothing is stored again"


def test_second_submission_in_another_period_uses_the_names_that_were_signed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: the second caller's clock is a period further."""
    job = lose_caller(client)
    blobs = client._ledger._store.blobs
    monkeypatch.setattr(blobs, "_now", lambda: 10**9)
    assert client.submit(SPEC).id == job.id
    assert fetched(claimed(client, job.id).manifest, blobs).stdin == LONG.encode()


def test_second_submission_that_is_refused_by_now_leaves_the_job_as_it_is(
    client: Client, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = lose_caller(client)

    def refuse(*_: object) -> None:
        raise PolicyDenied("run", "no more")

    with monkeypatch.context() as patch:
        patch.setattr(Intake, "prepare", refuse)
        assert client.submit(SPEC).id == job.id
    end_upload_time(client, redis, job)
    assert job.result(timeout_s=5).outcome is Outcome.CANCELLED


def test_second_submission_that_cannot_store_the_parts_says_so_and_cancels_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first caller may be at it."""
    job = lose_caller(client)

    def refuse(data: bytes, name: str) -> None:
        raise BlobsUnavailable("it is away")

    with monkeypatch.context() as patch:
        patch.setattr(client._ledger._store.blobs, "put", refuse)
        with pytest.raises(BlobsUnavailable, match="away"):
            client.submit(SPEC)
    assert job.status().state is JobState.QUEUED
    assert client.submit(SPEC).id == job.id
    assert claimed(client, job.id)


def test_word_of_an_upload_that_comes_twice_ends_no_pause(client: Client, redis: Redis) -> None:
    """Two callers under one key may both store the parts; meanwhile the job can have failed, and wait."""
    spec = SPEC.model_copy(update={"retries": 1})
    job = lose_caller(client, spec)
    client.submit(spec)
    held = claimed(client, job.id)
    assert client._ledger.finish(held, result_of(held, Outcome.EXIT), operation()).word == "retried"
    client._ledger.admissions._make_ready(job.id, held.manifest)
    assert redis.zscore(client._ledger.keys.delayed, job.id) is not None
