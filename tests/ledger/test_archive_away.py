"""An archive that is away, that no longer has what was said, or that a worker was not told of."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from datetime import date, timedelta
from pathlib import Path

import pytest
from redis import Redis
from sqlalchemy import text

from cellblock import (
    AcceptanceUnknown,
    ArchiveUnavailable,
    Client,
    InvalidJob,
    JobSpec,
    NotConfigured,
    StoreUnavailable,
)
from cellblock.archive import open_archive
from cellblock.archive.tables import JOBS
from cellblock.ledger import Ledger
from cellblock_config import Settings, load_settings
from cellblock_workers.archiver import Archiver
from faults.postgres import Postgres
from ledger.kit import lead
from ledger.test_archive import HOT_S, end, forget, write
from parts import free_port, wait_until

pytestmark = pytest.mark.no_rerun


@pytest.fixture
def settings(redis_url: str, tmp_path: Path) -> Settings:
    return load_settings(
        redis={"url": redis_url},
        archive={"url": f"sqlite:///{tmp_path}/archive.db", "hot_s": HOT_S},
        blobs={"url": f"file://{tmp_path}/blobs"},
        ledger={"fault_retries": 0, "result_least_s": 0},
    )


@pytest.fixture
def away(redis_url: str) -> Settings:
    """A database that nobody answers for."""
    return load_settings(
        redis={"url": redis_url}, archive={"url": f"postgresql://u:p@127.0.0.1:{free_port()}/jobs"}
    )


def test_a_leader_that_was_not_told_of_the_archive_waits_for_it_all_the_same(
    client: Client, redis: Redis, archiver: Archiver, redis_url: str
) -> None:
    write(archiver)
    said = "x" * 50_000
    job_id = end(client, said=said)
    blob = str(redis.hget(client._ledger.keys.job(job_id), "result_blob"))
    leader = Ledger(redis, load_settings(redis={"url": redis_url}, ledger={"result_least_s": 0}))
    redis.hset(leader.keys.job(job_id), "finished_ms", round(1000 * (time.time() - 90_000)))
    redis.zadd(leader.keys.keepers, {str(redis.zrange(leader.keys.keepers, 0, 0)[0]): 1})
    leader.retention.make_room(lead(leader))
    assert redis.exists(leader.keys.job(job_id)), "it is not in the archive"
    write(archiver)
    forget(client, redis, job_id, ago_s=HOT_S + 60)
    assert client._ledger.reads.named_blobs([blob]) == {blob}
    assert client.result(job_id, timeout_s=5).stdout == said


def test_a_store_without_an_archive_any_more_is_told_so(
    client: Client, redis: Redis, archiver: Archiver, redis_url: str
) -> None:
    write(archiver)
    job_id = end(client)
    leader = Ledger(redis, load_settings(redis={"url": redis_url}, ledger={"result_least_s": 0}))
    leader.retention.make_room(lead(leader))  # it has heard of the archive
    assert client._ledger.archiving.detach()
    assert not client._ledger.archiving.detach()
    redis.hset(leader.keys.job(job_id), "finished_ms", 1)
    redis.zadd(leader.keys.keepers, {str(redis.zrange(leader.keys.keepers, 0, 0)[0]): 1})
    leader.retention.make_room(lead(leader))
    assert not redis.exists(leader.keys.job(job_id))
    assert leader.figures.counts().archive_problem is None


def test_a_result_that_leaves_before_it_is_archived_lets_go_of_its_blob(
    client: Client, redis: Redis, archiver: Archiver
) -> None:
    """Injected: it is a day beyond its time."""
    job_id = end(client, said="x" * 50_000)
    blob = str(redis.hget(client._ledger.keys.job(job_id), "result_blob"))
    forget(client, redis, job_id, ago_s=2 * 86_400 + 3600)
    assert not redis.exists(client._ledger.keys.job(job_id))
    assert client._ledger.reads.named_blobs([blob]) == set()


def test_while_the_database_is_away_that_is_said_again_and_again(away: Settings) -> None:
    archiver = Archiver(away)
    runs = threading.Thread(target=archiver.run)
    runs.start()
    try:
        with Client(settings=away) as client:

            def problem() -> str:
                return client._ledger.archiving.problem() or ""

            archiver._away = (time.monotonic(), "")  # as after a step that wrote
            wait_until(lambda: "is it running" in problem(), 20, "the first word")
            ends = time.monotonic() + 6
            while time.monotonic() < ends:
                assert "is it running" in problem()
                time.sleep(0.3)
    finally:
        archiver.stop()
        runs.join()
        archiver.archive.close()


def test_a_database_that_comes_back_is_said_to_be_there(client: Client, archiver: Archiver) -> None:
    """Injected: what the archiver says while it waits."""
    archiver._wait_for("the archive is away")
    assert client.counts().archive_problem == "the archive is away"
    runs = threading.Thread(target=archiver.run)
    runs.start()
    try:
        wait_until(lambda: client.counts().archive_problem is None, 20, "all being well")
    finally:
        archiver.stop()
        runs.join()


def test_an_archive_that_no_archiver_writes_is_a_problem(client: Client) -> None:
    assert client.counts().archive_problem == "no archiver has ever run: run cellblock archiver"


def test_usage_of_the_last_forty_days_does_not_need_the_archive(away: Settings) -> None:
    with Client(settings=away) as client:
        client.submit(JobSpec(code="1", plan="premium", tenant="acme"))
        assert [one.tenant for one in client.usage(day=date.today())] == ["acme"]
        assert [one.tenant for one in client.usage("acme")] == ["acme"]
        assert [one.tenant for one in client.usage(since=date.today() - timedelta(days=2))] == ["acme"]
        with pytest.raises(ArchiveUnavailable):
            client.usage(since=date.today() - timedelta(days=100))


def test_whoever_submits_waits_for_an_archive_that_is_away_only_now_and_then(
    away: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Injected: asking it takes half a second."""
    with Client(settings=away) as client:
        asked: list[str] = []
        archive = client._ledger._store.archive
        assert archive is not None

        def slow(_: str, key: str) -> None:
            asked.append(key)
            time.sleep(0.5)
            raise ArchiveUnavailable("it is away")

        monkeypatch.setattr(archive, "accepted", slow)
        for number in range(5):
            client.submit(JobSpec(code="1", idempotency_key=f"{number}"))
        assert asked == ["0"]
        client._ledger.reads._archive_asked_at = 0.0  # injected: a second later
        client.submit(JobSpec(code="1", idempotency_key="later"))
        assert asked == ["0", "later"]
    assert caplog.text.count("it is away") == 1


def test_key_outlives_an_output_that_left_early_and_is_free_after_its_time(
    client: Client, redis: Redis, archiver: Archiver
) -> None:
    job_id = end(client, idempotency_key="once")
    write(archiver)
    forget(client, redis, job_id, ago_s=HOT_S + 60)
    assert client.submit(JobSpec(code="1", idempotency_key="once")).id == job_id
    with archiver.archive.engine.begin() as connection:  # injected: there was no room for its output
        connection.execute(JOBS.update().values(output=None))
    assert client.submit(JobSpec(code="1", idempotency_key="once")).id == job_id, "it would run twice"
    with archiver.archive.engine.begin() as connection:  # injected: its time there is over
        connection.execute(JOBS.update().values(finished_ms=JOBS.c.finished_ms - 4 * 86_400_000))
    assert client.submit(JobSpec(code="1", idempotency_key="once")).id != job_id


def test_pruning_that_fails_does_not_come_before_jobs_that_end(
    client: Client, archiver: Archiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: what expires cannot be found."""
    tries = []

    def fails(*_: object) -> list[str]:
        tries.append(1)
        raise ArchiveUnavailable("it takes too long")

    monkeypatch.setattr(archiver.retention, "expire_outputs", fails)
    ids = {end(client) for _ in range(3)}
    with pytest.raises(ArchiveUnavailable):
        archiver.step()
    for _ in range(5):
        archiver.step()
    assert len(tries) == 1
    assert {job.job_id for job in client.jobs().jobs} == ids


def test_what_is_forgotten_already_is_not_looked_at_again(archiver: Archiver) -> None:
    explain = (
        "EXPLAIN QUERY PLAN SELECT job_id FROM cellblock_jobs WHERE output IS NOT NULL AND "
        "finished_ms < 5 AND (state = 'succeeded' OR finished_ms < 3) LIMIT 1000"
    )
    with archiver.archive.engine.connect() as connection:
        plan = " ".join(str(row) for row in connection.execute(text(explain)))
    assert "cellblock_jobs_with_output" in plan


@pytest.mark.parametrize("place", ["host:port", "h1:5432,h2:5432"])
def test_an_address_that_is_none_is_named_and_not_shown(redis_url: str, place: str) -> None:
    loaded = load_settings(redis={"url": redis_url}, archive={"url": f"postgresql://u:s3cret@{place}/db"})
    with pytest.raises(NotConfigured, match="CELLBLOCK_ARCHIVE_URL is not the address") as refused:
        open_archive(loaded.archive)
    assert "s3cret" not in repr((refused.value, refused.value.__cause__))


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("none/jobs.db", "its folder does not exist; if it is of a fleet that has ended, unset the variable"),
        ("folder", "it is a folder, and has to be a file"),
        ("words", "it is not a SQLite database"),
    ],
)
def test_a_file_that_is_no_archive_is_named_with_the_cause(tmp_path: Path, file: str, why: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "words").write_text("These are words, and not a database. " * 100)
    opened = open_archive(load_settings(archive={"url": f"sqlite:///{tmp_path}/{file}"}).archive)
    assert opened is not None
    with (
        closing(opened),
        pytest.raises(ArchiveUnavailable, match=rf"{tmp_path}/{file}: {why} .CELLBLOCK_ARC"),
    ):
        opened.check()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("cellblock:a-password-of-tests", "cellblock:s3cret"), "the login was refused"),
        (("/postgres", "/nobodys"), "there is no such database"),
        (("127.0.0.1", "nobody.invalid"), "there is no such host"),
        ((":{port}/", ":1/"), "nothing listens there"),
    ],
    ids=["password", "database", "host", "port"],
)
def test_a_server_that_refuses_is_named_with_the_cause(
    postgres: Postgres, change: tuple[str, str], why: str
) -> None:
    before, after = (part.format(port=postgres.port) for part in change)
    opened = open_archive(load_settings(archive={"url": postgres.url.replace(before, after)}).archive)
    assert opened is not None
    with closing(opened), pytest.raises(ArchiveUnavailable, match=why) as refused:
        opened.check()
    assert "s3cret" not in repr((refused.value, refused.value.__cause__))
    assert f"/{'nobodys' if 'nobodys' in after else 'postgres'}: " in str(refused.value)


def test_usage_that_only_an_archive_has_needs_one(redis_url: str) -> None:
    with Client(redis_url) as client:
        assert client.usage(since=date.today() - timedelta(days=10)) == []
        with pytest.raises(NotConfigured, match="there is none: set CELLBLOCK_ARCHIVE_URL"):
            client.usage(since=date.today() - timedelta(days=100))
        with pytest.raises(InvalidJob, match="give one of them"):
            client.usage(day=date.today(), since=date.today())


def test_what_is_no_time_is_refused_by_name(client: Client) -> None:
    with pytest.raises(InvalidJob, match="'2026-01-01' is not a datetime"):
        client.jobs(since="2026-01-01")  # type: ignore[arg-type]


def test_without_a_store_each_job_of_a_call_says_so() -> None:
    with Client(f"redis://127.0.0.1:{free_port()}/0") as client:
        found = client.submit_many([JobSpec(code="1"), JobSpec(code="2")])
    assert [isinstance(one, StoreUnavailable) for one in found] == [True, True]
    assert not any(isinstance(one, AcceptanceUnknown) for one in found), "none was sent"
