"""Bytes in the blob store and the archive: counted by tenant, bounded by its plan, and gone in time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from redis import Redis

from cellblock import (
    ArchiveUnavailable,
    BlobsUnavailable,
    CellblockError,
    Client,
    InvalidJob,
    JobSpec,
    Outcome,
    RateLimited,
)
from cellblock.blobs import open_blobs
from cellblock.contract.results import Artifact
from cellblock.ledger import Candidate, Claim, Ledger
from cellblock_config import Settings, load_settings
from cellblock_config.plans import load_plans
from cellblock_workers.archiver import Archiver
from ledger.kit import (
    OPEN,
    STORES,
    be_late,
    claim,
    lead,
    leave,
    manifest,
    open_ledger,
    operation,
    result_of,
    settings_of,
)
from ledger.test_claim_check import kept as checked_in_and_put

pytestmark = pytest.mark.no_rerun

MIB = 1024 * 1024
LONG = "x" * 100_000
BOUNDED = replace(OPEN, plan="bounded", bytes_stored=250_000)


@pytest.fixture
def settings(redis_url: str, tmp_path: Path) -> Settings:
    return load_settings(
        redis={"url": redis_url},
        archive={"url": f"sqlite:///{tmp_path}/archive.db"},
        blobs={"url": f"file://{tmp_path}/blobs"},
        ledger={"fault_retries": 0, "result_least_s": 0},
    )


def blobs_in(folder: Path) -> list[Path]:
    return [path for path in (folder / "blobs").rglob("*") if path.is_file() and path.name != "owner"]


def test_blob_store_gets_nothing_of_submissions_that_are_refused(client: Client, tmp_path: Path) -> None:
    accepted = []
    for number in range(40):
        with suppress(RateLimited):
            spec = JobSpec(code="1", plan="freemium", stdin=f"{number}" + LONG)
            accepted.append(client.submit(spec))
    assert 0 < len(accepted) < 40
    assert len(blobs_in(tmp_path)) == len(accepted)


def test_blob_store_gets_nothing_of_a_batch_that_is_refused(client: Client, tmp_path: Path) -> None:
    specs = [JobSpec(code="1", plan="freemium", stdin=f"{number}" + LONG) for number in range(40)]
    accepted = [answer for answer in client.submit_many(specs) if not isinstance(answer, CellblockError)]
    assert 0 < len(accepted) < 40
    assert len(blobs_in(tmp_path)) == len(accepted)


def test_batch_with_long_parts_is_admitted_in_portions(
    client: Client, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job waits for its own parts, and not for those of a whole batch."""
    blobs, delayed = client._ledger._store.blobs, client._ledger.keys.delayed
    assert blobs is not None
    put, waiting = blobs.put, []

    def counted(data: bytes, name: str) -> None:
        waiting.append(redis.zcard(delayed))
        put(data, name)

    monkeypatch.setattr(blobs, "put", counted)
    specs = [JobSpec(code="1", stdin=f"{number:05}" + "x" * 40_000) for number in range(150)]
    ids = [str(answer) for answer in client.submit_many(specs)]
    assert len(set(ids)) == len(waiting) == 150
    assert max(waiting) == 64, "the jobs that are admitted and not yet stored"
    assert redis.zcard(delayed) == 0


def test_job_with_long_parts_can_be_claimed_once_they_are_stored(client: Client, redis: Redis) -> None:
    job = client.submit(JobSpec(code="1", stdin=LONG))
    assert redis.zcard(client._ledger.keys.delayed) == 0
    assert claim(client._ledger, job.id).manifest.stdin == b"", "it is a blob"


def test_job_whose_parts_cannot_be_stored_is_cancelled_and_its_key_is_free(
    client: Client, archiver: Archiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: a blob store that refuses."""
    blobs = client._ledger._store.blobs
    spec = JobSpec(code="1", stdin=LONG, idempotency_key="once", plan="premium")

    def refuse(data: bytes, name: str | None = None) -> str:
        raise BlobsUnavailable("it is away")

    with monkeypatch.context() as patch:
        patch.setattr(blobs, "put", refuse)
        with pytest.raises(BlobsUnavailable, match="away"):
            client.submit(spec)
    assert client.counts().waiting == 0
    (used,) = client.usage("default")
    assert (used.reserved_micros, used.spent_micros) == (0, 0)
    again = client.submit(spec)
    assert claim(client._ledger, again.id)


def test_job_whose_caller_was_lost_before_it_stored_the_parts_is_not_claimed_at_once(
    store: tuple[Ledger, Redis],
) -> None:
    ledger, redis = store
    whole = manifest(code="1")
    ledger.admissions.admit_many([Candidate("job", whole, uploads={"0" * 8 + "/" + "0" * 64: b"long"})])
    assert redis.zscore(ledger.keys.delayed, "job") is not None
    assert ledger.cancel("job").word == "cancelled"
    assert redis.zcard(ledger.keys.delayed) == 0


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, redis_url: str, tmp_path: Path) -> Iterator[tuple[Ledger, Redis]]:
    opened = open_blobs(load_settings(blobs={"url": f"file://{tmp_path}/blobs"}).blobs)
    with open_ledger(request.param, redis_url) as (ledger, redis):
        ledger._store.blobs = opened
        yield ledger, redis


def admitted(ledger: Ledger, job_id: str, **fields: Any) -> None:
    blobs = ledger._store.blobs
    assert blobs is not None
    stored = checked_in_and_put(manifest(**{"stdin": job_id + LONG, **fields}), blobs, job_id)
    ledger.admissions.admit(job_id, stored, gates=BOUNDED)


def stored_bytes(ledger: Ledger, redis: Redis) -> int:
    return int(redis.hget(ledger.keys.account("default"), "blob_bytes") or 0)


def test_blob_bytes_of_a_tenant_are_bounded_by_its_plan_and_free_when_its_jobs_end(
    store: tuple[Ledger, Redis],
) -> None:
    ledger, redis = store
    admitted(ledger, "one")
    admitted(ledger, "two")
    with pytest.raises(RateLimited, match="bytes_stored") as refused:
        admitted(ledger, "three")
    assert refused.value.limit == "bytes_stored"
    assert refused.value.allowed == 250_000
    assert refused.value.used == stored_bytes(ledger, redis) == 200_006
    ledger.cancel("one")
    assert stored_bytes(ledger, redis) == 100_003
    redis.hdel(ledger.keys.account("default"), "freed_blob_bytes")  # Injected: they were removed
    admitted(ledger, "three")
    with pytest.raises(InvalidJob, match="never"):
        admitted(ledger, "four", stdin="x" * 250_001)


def test_blob_bytes_are_given_back_on_every_way_a_job_ends(store: tuple[Ledger, Redis]) -> None:
    ledger, redis = store
    admitted(ledger, "late")
    be_late(ledger, redis, "late")
    list(ledger.upkeep.expire())
    assert stored_bytes(ledger, redis) == 0
    leave(ledger, redis, "late")
    admitted(ledger, "job")
    held = claim(ledger, "job")
    ledger.finish(held, result_of(held, Outcome.SANDBOX_ERROR), operation())
    assert stored_bytes(ledger, redis) == 100_003, "a dead letter keeps its payload"
    ledger.retry_dead("job", operation())
    held = claim(ledger, "job")
    ledger.finish(held, result_of(held, stdout=LONG), operation(), long_bytes=1024)
    result_bytes = stored_bytes(ledger, redis)
    assert 100_000 < result_bytes < 100_100, "its result, and no payload"
    leave(ledger, redis)
    assert stored_bytes(ledger, redis) == 0


def test_blob_bytes_of_results_beyond_the_limit_leave_oldest_first(store: tuple[Ledger, Redis]) -> None:
    ledger, redis = store
    ledger._store.settings = ledger._store.settings.model_copy(update={"result_least_s": 0})
    for number in range(5):
        job_id = f"job-{number}"
        ledger.admissions.admit(job_id, manifest(), gates=BOUNDED)
        held = claim(ledger, job_id)
        ledger.finish(held, result_of(held, stdout=LONG + str(number)), operation(), long_bytes=1024)
    assert stored_bytes(ledger, redis) > BOUNDED.bytes_stored
    ledger.retention.make_room(lead(ledger))
    assert 0 < stored_bytes(ledger, redis) <= BOUNDED.bytes_stored
    assert redis.exists(ledger.keys.job("job-4"))
    assert not redis.exists(ledger.keys.job("job-0"))


def test_results_without_blobs_stay_when_blobs_have_to_leave(
    store: tuple[Ledger, Redis],
) -> None:
    ledger, redis = store
    for number in range(5):
        ledger.admissions.admit(f"small{number}", manifest(), gates=BOUNDED)
        held = claim(ledger, f"small{number}")
        ledger.finish(held, result_of(held), operation())
    for job_id in ("one", "two"):
        admitted(ledger, job_id)
    with pytest.raises(RateLimited, match="bytes_stored"):
        admitted(ledger, "three")
    with settings_of(ledger, result_least_s=0):
        ledger.retention.make_room(lead(ledger))
    assert redis.exists(*(ledger.keys.job(f"small{number}") for number in range(5))) == 5


def test_blob_bytes_of_results_leave_for_a_job_that_needs_their_room(
    store: tuple[Ledger, Redis], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take four fifths of the limit, and the job half of it. Injected: blobs are removed at once."""
    ledger, redis = store
    for number in range(2):
        ledger.admissions.admit(f"job-{number}", manifest(), gates=BOUNDED)
        held = claim(ledger, f"job-{number}")
        ledger.finish(held, result_of(held, stdout=LONG[:-200] + str(number)), operation(), long_bytes=1024)
    assert 190_000 < stored_bytes(ledger, redis) < 200_000
    with pytest.raises(RateLimited, match="bytes_stored"):
        admitted(ledger, "next", stdin="x" * 125_000)
    with settings_of(ledger, result_least_s=0):
        ledger.retention.make_room(lead(ledger))
    monkeypatch.setattr("cellblock.ledger.freed_blobs._STAY_MS", -1)
    ledger.freed_blobs.removed(ledger.freed_blobs.due(10))
    admitted(ledger, "next", stdin="x" * 125_000)
    assert redis.exists(ledger.keys.job("job-1")) == 1, "the oldest left, and no more"


def failed(client: Client, size_bytes: int, plan: str = "freemium") -> str:
    """A job of a plan that has failed, with a file of this size."""
    ledger = client._ledger
    job = client.submit(JobSpec(code="1", plan=plan))
    held = ledger.claims.claim_next(message=job.id, worker="w", operation=operation())
    assert isinstance(held, Claim)
    files = (Artifact(path="file", data=b"x" * size_bytes),)
    ledger.finish(held, result_of(held, Outcome.EXIT, artifacts=files), operation())
    return job.id


def archived_bytes(archiver: Archiver) -> int:
    return archiver.retention._stored_bytes("default")


def write(archiver: Archiver) -> None:
    while archiver.step():
        pass


def test_archive_removes_outputs_when_the_time_of_their_plan_is_over(
    client: Client, archiver: Archiver
) -> None:
    failed(client, MIB)
    write(archiver)
    now_ms = round(1000 * time.time())
    assert archiver.retention.expire_outputs(now_ms + 1000 * 3500) == []
    assert archiver.retention.expire_outputs(now_ms + 1000 * 3700) == [""], (
        "freemium keeps results for an hour"
    )
    assert len(client.jobs().jobs) == 1, "its record stays"


def test_archive_keeps_of_a_tenant_what_its_plan_lets_it_the_newest(
    client: Client, redis: Redis, archiver: Archiver
) -> None:
    plan_bytes = load_plans().plans["freemium"].bytes_stored
    assert plan_bytes is not None
    ids = []
    for _ in range(2 + plan_bytes // (27 * MIB)):  # as JSON, a file of 20 MiB takes 27
        ids += [failed(client, 20 * MIB)]
        write(archiver)
        leave(client._ledger, redis, ids[-1])
    assert archived_bytes(archiver) <= plan_bytes
    assert archiver.archive.job(ids[0]).output is None  # type: ignore[union-attr]
    assert archiver.archive.job(ids[-1]).output is not None  # type: ignore[union-attr]


def test_archive_of_a_tenant_without_a_plan_is_not_bounded(client: Client, archiver: Archiver) -> None:
    job = client.submit(JobSpec(code="1"))
    held = client._ledger.claims.claim_next(message=job.id, worker="w", operation=operation())
    assert isinstance(held, Claim)
    client._ledger.finish(held, result_of(held, stdout=LONG), operation())
    write(archiver)
    assert archiver.retention.expire_outputs(round(1000 * time.time()) + 86_400_000) == []


#: An archiver that takes all there is. With an argument, it is killed over that job's row.
_ARCHIVER = """
import os, sys
from cellblock_config import load_settings
from cellblock_workers import archiver as module
opened = module.Archiver(load_settings())
opened.prepare()
row_of = module.row_of
def dying(job_id, record, result, size):
    if job_id in sys.argv[1:] and result is not None:
        os.kill(os.getpid(), 9)
    return row_of(job_id, record, result, size)
module.row_of = dying
while opened.step():
    pass
print("\\n", open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
"""


def archiving(settings: Settings, *dies_of: str) -> subprocess.CompletedProcess[str]:
    """An archiver in a process of its own."""
    assert settings.redis.url is not None
    assert settings.archive.url is not None
    return subprocess.run(
        [sys.executable, "-c", _ARCHIVER, *dies_of],
        env={
            "CELLBLOCK_REDIS_URL": settings.redis.url.get_secret_value(),
            "CELLBLOCK_ARCHIVE_URL": settings.archive.url.get_secret_value(),
        },
        text=True,
        capture_output=True,
        timeout=60,
    )


def ended(client: Client, stdout: str) -> str:
    job = client.submit(JobSpec(code="1"))
    held = client._ledger.claims.claim_next(message=job.id, worker="w", operation=operation())
    assert isinstance(held, Claim)
    client._ledger.finish(held, result_of(held, stdout=stdout), operation())
    return job.id


def test_archiver_holds_an_emoji_in_a_long_result_at_its_own_size(client: Client, settings: Settings) -> None:
    """As text, one character beyond U+FFFF makes four bytes of each."""
    ended(client, "x" * 22 * MIB)
    plain_kib = int(archiving(settings).stdout.split()[-1])
    ended(client, "x" * 22 * MIB + "\N{GRINNING FACE}")
    emoji_kib = int(archiving(settings).stdout.split()[-1])
    assert emoji_kib < plain_kib + 10 * 1024
    assert emoji_kib < 250 * 1024


def test_job_that_archivers_ended_over_is_archived_without_its_output_and_named(
    client: Client, redis: Redis, archiver: Archiver, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: archivers are killed when they write this job; events come again at once."""
    monkeypatch.setattr("cellblock_workers.archiver._REDELIVER_S", 0.0)
    before = ended(client, "before")
    poison = ended(client, "p" * 2 * MIB)
    after = ended(client, "after")
    for _ in range(2):
        assert archiving(settings, poison).returncode == -9
    assert poison not in (client._ledger.archiving.problem() or "")
    write(archiver)
    assert {job.job_id for job in client.jobs().jobs} == {before, poison, after}
    assert archiver.archive.job(poison).output is None  # type: ignore[union-attr]
    assert archiver.archive.job(after).output is not None  # type: ignore[union-attr]
    assert poison in (client._ledger.archiving.problem() or "")
    assert not [name for name in redis.hkeys(client._ledger.keys.upkeep) if "tries" in str(name)]


def test_small_job_that_archivers_ended_over_is_set_aside_as_well(
    client: Client, archiver: Archiver, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected as above: its batch is delivered again, and then each of its jobs is tried alone."""
    monkeypatch.setattr("cellblock_workers.archiver._REDELIVER_S", 0.0)
    write(archiver)  # it has looked at all jobs: from here on events alone tell it
    others = [ended(client, "small") for _ in range(3)]
    poison = ended(client, "poison")
    redeliver = _ARCHIVER.replace("opened = ", "module._REDELIVER_S = 0.0\nopened = ")
    monkeypatch.setattr("ledger.test_stored_bytes._ARCHIVER", redeliver)
    for _ in range(3):
        assert archiving(settings, poison).returncode == -9
    write(archiver)
    assert {job.job_id for job in client.jobs().jobs} == {*others, poison}
    assert poison in (client._ledger.archiving.problem() or "")


def test_archiver_that_lives_through_an_outage_keeps_a_long_output(
    client: Client, archiver: Archiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: a database whose disk is full for four rounds."""
    job_id = ended(client, "x" * 2 * MIB)
    with monkeypatch.context() as patch:
        patch.setattr(archiver.archive, "write", Mock(side_effect=ArchiveUnavailable("its disk is full")))
        for _ in range(4):
            with pytest.raises(ArchiveUnavailable):
                archiver.step()
    write(archiver)
    assert archiver.archive.job(job_id).output is not None  # type: ignore[union-attr]
    assert job_id not in (client._ledger.archiving.problem() or "")


def test_archiver_whose_database_was_away_writes_what_it_had_read_first(
    client: Client, archiver: Archiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: the database refuses once. It must not wait for the events to be delivered again."""
    write(archiver)
    job_id = ended(client, "said")
    with monkeypatch.context() as patch:
        patch.setattr(archiver.archive, "write", Mock(side_effect=ArchiveUnavailable("away")))
        with pytest.raises(ArchiveUnavailable):
            archiver.step()
    archiver.step()
    assert [job.job_id for job in client.jobs().jobs] == [job_id]
