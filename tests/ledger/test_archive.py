"""The archive: what leaves Redis is found there, by the same calls as before, for as long as set."""

from __future__ import annotations

import base64
import json
import threading
import time
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from redis import Redis
from sqlalchemy import text

from cellblock import ArchiveUnavailable, Client, InvalidJob, JobSpec, NotConfigured, Outcome, UnknownJob
from cellblock.archive import open_archive, schema
from cellblock.archive.retention import ArchiveRetention
from cellblock.archive.schema import check_version, upgrade, version_of
from cellblock.archive.tables import HEAD, JOBS, METADATA
from cellblock.errors import SchemaMismatch
from cellblock.ledger.pressure import ADMITS_BELOW, LEAVE_ABOVE
from cellblock_config import Settings, load_settings
from cellblock_config.settings import SettingsError
from cellblock_workers.archiver import Archiver
from ledger.kit import OPEN, lead, manifest, operation, result_of, settings_of
from ledger.test_full_store import fill_to
from parts import wait_until

pytestmark = pytest.mark.no_rerun

HOT_S = 600


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request: pytest.FixtureRequest, redis_url: str, tmp_path: Path) -> Settings:
    url = f"sqlite:///{tmp_path}/archive.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").url
    loaded = load_settings(
        redis={"url": redis_url},
        archive={"url": url, "hot_s": HOT_S},
        blobs={"url": f"file://{tmp_path}/blobs"},
        ledger={"fault_retries": 0, "result_least_s": 0},
    )
    with closing(Archiver(loaded).archive) as archive, archive.engine.begin() as connection:
        METADATA.drop_all(connection)
        connection.execute(text("DROP TABLE IF EXISTS cellblock_archive_version"))
    return loaded


def end(client: Client, outcome: Outcome = Outcome.OK, said: str = "said\n", **spec: Any) -> str:
    """A job that has ended."""
    job = client.submit(JobSpec(**{"code": "1", **spec}))
    held = client._ledger.claims.claim_next(message=job.id, worker="w", operation=operation())
    assert not isinstance(held, type(None))
    done = client._ledger.finish(held, result_of(held, outcome, stdout=said), operation(), long_bytes=32768)  # type: ignore[arg-type]
    assert done.word == "finished"
    return job.id


def write(archiver: Archiver) -> None:
    """All that has ended."""
    while archiver.step():
        pass


def forget(client: Client, redis: Redis, job_id: str, ago_s: float) -> None:
    """Injected: it ended so long ago, and so did its event; then a round of upkeep."""
    ledger = client._ledger
    at_ms = round(1000 * (time.time() - ago_s))
    redis.hset(ledger.keys.job(job_id), "finished_ms", at_ms)
    for keeper in redis.zrange(ledger.keys.keepers, 0, -1):
        redis.zadd(ledger.keys.keepers, {str(keeper): 1})
    ledger.retention.make_room(lead(ledger))


def test_what_has_left_redis_is_found_without_the_caller_noticing(
    client: Client, redis: Redis, archiver: Archiver
) -> None:
    job_id = end(client)
    before = client.result(job_id, timeout_s=5), client.status(job_id)
    write(archiver)
    forget(client, redis, job_id, ago_s=HOT_S - 60)
    assert redis.exists(client._ledger.keys.job(job_id)), "it is hot"
    forget(client, redis, job_id, ago_s=HOT_S + 60)
    assert not redis.exists(client._ledger.keys.job(job_id))
    assert (client.result(job_id, timeout_s=5), client.status(job_id)) == before
    assert client.result(job_id, tenant="default", timeout_s=5) == before[0]
    with pytest.raises(UnknownJob):
        client.status(job_id, tenant="somebody")
    with pytest.raises(UnknownJob):
        client.result("0" * 32, timeout_s=5)


def test_what_the_archive_does_not_have_stays(client: Client, redis: Redis, archiver: Archiver) -> None:
    """Injected: no archiver runs."""
    job_id = end(client)
    forget(client, redis, job_id, ago_s=2 * 86_400 - 3600)
    assert redis.exists(client._ledger.keys.job(job_id))
    forget(client, redis, job_id, ago_s=2 * 86_400 + 3600)
    assert not redis.exists(client._ledger.keys.job(job_id)), "a day beyond its time it leaves all the same"


def test_where_memory_is_short_archived_jobs_leave_first_and_the_others_late(
    client: Client, redis: Redis, archiver: Archiver
) -> None:
    ledger = client._ledger
    archived = [end(client, said="x" * 20_000) for _ in range(30)]
    time.sleep(1.2)  # the margin between an end and its event
    end(client)
    write(archiver)
    others = [end(client, said="y" * 20_000) for _ in range(30)]

    def left(ids: list[str]) -> int:
        return sum(redis.exists(ledger.keys.job(job_id)) for job_id in ids)

    fill_to(ledger, redis, LEAVE_ABOVE + 15 - 7)
    ledger.retention.make_room(lead(ledger))
    assert left(archived) < 30
    assert left(others) == 30
    for _ in range(5):
        fill_to(ledger, redis, ADMITS_BELOW - 2)
        ledger.retention.make_room(lead(ledger))
    assert (left(archived), left(others)) == (0, 30)
    fill_to(ledger, redis, ADMITS_BELOW + 2)
    ledger.retention.make_room(lead(ledger))
    assert left(others) < 30, "or nothing would be admitted any more"


def test_a_job_is_written_once_whatever_is_read_twice(client: Client, archiver: Archiver) -> None:
    ids = {end(client) for _ in range(3)}
    write(archiver)
    archiver._groups.rewind("archive", "0")
    write(archiver)
    assert {job.job_id for job in client.jobs().jobs} == ids
    assert len(client.jobs().jobs) == 3


def test_a_dead_letter_that_runs_again_has_its_last_end_there(
    client: Client, archiver: Archiver, redis: Redis
) -> None:
    job_id = end(client, Outcome.SANDBOX_ERROR)
    write(archiver)
    assert client.jobs().jobs[0].outcome is Outcome.SANDBOX_ERROR
    forget(client, redis, job_id, ago_s=HOT_S + 60)
    assert redis.exists(client._ledger.keys.job(job_id)), "an operator may let it run again"
    client.retry_dead(job_id)
    held = client._ledger.claims.claim_next(message=job_id, worker="w", operation=operation())
    client._ledger.finish(held, result_of(held), operation())  # type: ignore[arg-type]
    write(archiver)
    assert [job.outcome for job in client.jobs().jobs] == [Outcome.OK]


def test_jobs_are_listed_by_what_is_asked_page_by_page(client: Client, archiver: Archiver) -> None:
    mine = [end(client, tenant="mine") for _ in range(5)]
    failed = end(client, Outcome.MEMORY, tenant="mine")
    end(client, tenant="other")
    write(archiver)
    assert len(client.jobs().jobs) == 7
    assert {job.tenant for job in client.jobs("mine").jobs} == {"mine"}
    assert [job.job_id for job in client.jobs("mine", outcome="memory").jobs] == [failed]
    page = client.jobs("mine", limit=4)
    rest = client.jobs("mine", limit=4, cursor=page.cursor)
    assert [job.job_id for job in [*page.jobs, *rest.jobs]] == [
        job.job_id for job in client.jobs("mine").jobs
    ], "each once, the last to end first"
    assert {job.job_id for job in [*page.jobs, *rest.jobs]} == {*mine, failed}
    assert rest.cursor is None
    now = datetime.now(UTC)
    assert client.jobs(since=now + timedelta(minutes=1)).jobs == []
    assert client.jobs(before=now - timedelta(minutes=1)).jobs == []
    assert len(client.jobs(since=now - timedelta(minutes=1), before=now + timedelta(minutes=1)).jobs) == 7
    huge = base64.urlsafe_b64encode(b'[1e999, "x"]').decode()
    cursors: list[Any] = [{"cursor": cursor} for cursor in ("x'; DROP TABLE", huge, "W" * 9999)]
    for wrong in (*cursors, {"limit": 0}, {"outcome": "bananas"}, {"tenant": "a b"}):
        with pytest.raises(InvalidJob):
            client.jobs(**wrong)
    with pytest.raises(InvalidJob, match="is not a tenant's name"):
        client.jobs("'; DROP TABLE cellblock_jobs; --")


def test_an_idempotency_key_holds_after_its_job_has_left(
    client: Client, redis: Redis, archiver: Archiver
) -> None:
    job_id = end(client, idempotency_key="once")
    write(archiver)
    forget(client, redis, job_id, ago_s=HOT_S + 60)
    assert redis.keys(f"{client._ledger.keys.prefix}:idempotency:*") == []
    assert client.submit(JobSpec(code="1", idempotency_key="once")).id == job_id
    with pytest.raises(InvalidJob, match="was used for another job"):
        client.submit(JobSpec(code="2", idempotency_key="once"))
    assert client.submit(JobSpec(code="1", idempotency_key="once", tenant="other")).id != job_id


def test_what_was_said_and_that_it_was_are_forgotten_each_in_its_time(
    client: Client, archiver: Archiver, redis: Redis
) -> None:
    well, failed = end(client, said="x" * 50_000), end(client, Outcome.MEMORY)
    write(archiver)
    blob = str(redis.hget(client._ledger.keys.job(well), "result_blob"))
    for job_id in (well, failed):
        forget(client, redis, job_id, ago_s=HOT_S + 60)
    assert client._ledger.reads.named_blobs([blob]) == {blob}, "the archive names it now"
    assert client.result(well, timeout_s=5).stdout == "x" * 50_000

    def prune_in(days: float) -> None:
        """Injected: the clock is this many days ahead."""
        with pytest.MonkeyPatch.context() as patch:
            now = time.time()
            patch.setattr("cellblock_workers.archiver.time.time", lambda: now + 86_400 * days)
            archiver.prune()

    prune_in(4)
    with pytest.raises(UnknownJob, match="CELLBLOCK_ARCHIVE_OUTPUT_TTL_S"):
        client.result(well, timeout_s=5)
    assert client._ledger.reads.named_blobs([blob]) == set()
    assert client.result(failed, timeout_s=5).outcome is Outcome.MEMORY
    prune_in(15)
    with pytest.raises(UnknownJob):
        client.result(failed, timeout_s=5)
    assert len(client.jobs().jobs) == 2
    prune_in(401)
    assert client.jobs().jobs == []


def test_two_archivers_that_forget_at_once_let_each_job_go_of_its_blob_once(
    client: Client, archiver: Archiver, settings: Settings
) -> None:
    """Counted down twice, a blob would be gone while another job still names it."""
    count = 400
    for number in range(count):
        end(client, said=f"{number}")
    write(archiver)
    with archiver.archive.engine.begin() as connection:  # Injected: all of them name one blob
        connection.execute(JOBS.update().values(result_blob="one"))
    now_ms = round(1000 * (time.time() + 86_400 * 4))
    start = threading.Barrier(4)
    found: list[str] = []

    def forget_all() -> None:
        with closing(open_archive(settings.archive)) as own:  # type: ignore[type-var]
            retention = ArchiveRetention(own)  # type: ignore[arg-type]
            start.wait()
            while blobs := retention.expire_outputs(now_ms):
                found.extend(blobs)

    threads = [threading.Thread(target=forget_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["one"] * count


def test_an_archiver_that_ends_does_not_forget_everything_first(
    client: Client, archiver: Archiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: there is always more to forget."""
    monkeypatch.setattr(archiver.retention, "expire_outputs", lambda *_: [""])
    monkeypatch.setattr(archiver.retention, "expire_records", lambda *_: 1)
    thread = threading.Thread(target=archiver.run, daemon=True)
    thread.start()
    job_id = end(client)
    wait_until(lambda: [job.job_id for job in client.jobs().jobs] == [job_id], 15, "the job, meanwhile")
    archiver.stop()
    thread.join(timeout=10)
    assert not thread.is_alive()


def test_usage_reaches_back_over_months(client: Client, archiver: Archiver) -> None:
    long_ago = date.today() - timedelta(days=100)
    at_ms = round(datetime(long_ago.year, long_ago.month, long_ago.day, 12, tzinfo=UTC).timestamp() * 1000)
    job_id = "f" * 32
    client._ledger.admissions.admit(job_id, manifest(tenant="acme"), gates=OPEN)
    held = client._ledger.claims.claim_next(message=job_id, worker="w", operation=operation())
    client._ledger.finish(held, result_of(held, cost_micros=0), operation())  # type: ignore[arg-type]
    write(archiver)
    with archiver.archive.engine.begin() as connection:  # Injected: it was admitted then
        connection.execute(JOBS.update().values(admitted_ms=at_ms, cost_micros=1234))
    old, recent = client.usage("acme")
    assert (old.day, old.runs, old.spent_micros) == (long_ago, 1, 1234)
    assert recent.runs == 1
    assert client.usage("acme", since=long_ago + timedelta(days=1)) == [recent]
    assert client.usage("acme", day=long_ago) == [old]


def test_events_dropped_before_they_were_read_cost_no_job(client: Client, archiver: Archiver) -> None:
    write(archiver)
    first = end(client)
    write(archiver)
    ids = {end(client) for _ in range(3)}
    with settings_of(client._ledger, events_ttl_s=-10):
        client._ledger.upkeep.trim_events(lead(client._ledger))
    write(archiver)
    assert {job.job_id for job in client.jobs().jobs} == {first, *ids}


def test_jobs_of_a_gap_are_written_also_if_the_database_was_away_when_it_was_found(
    client: Client, archiver: Archiver, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(archiver)
    ids = {end(client) for _ in range(5)}
    with settings_of(client._ledger, events_ttl_s=-10):
        client._ledger.upkeep.trim_events(lead(client._ledger))
    with monkeypatch.context() as patch:  # Injected: the database is away
        patch.setattr(archiver.archive, "write", Mock(side_effect=ArchiveUnavailable("away")))
        for _ in range(3):
            with pytest.raises(ArchiveUnavailable):
                archiver.step()
    for job_id in ids:
        forget(client, redis, job_id, ago_s=HOT_S + 60)
    assert all(redis.exists(client._ledger.keys.job(job_id)) for job_id in ids), "they are not there yet"
    write(archiver)
    assert {job.job_id for job in client.jobs().jobs} == ids


def test_an_archive_that_comes_later_has_the_jobs_that_are_still_there(
    client: Client, settings: Settings
) -> None:
    ids = {end(client) for _ in range(3)}
    with settings_of(client._ledger, events_ttl_s=-10):
        client._ledger.upkeep.trim_events(lead(client._ledger))
    late = Archiver(settings)
    late.prepare()
    write(late)
    assert {job.job_id for job in client.jobs().jobs} == ids
    late.archive.close()


def test_an_archive_that_is_older_than_the_store_has_the_jobs_that_are_still_there(
    client: Client, archiver: Archiver, settings: Settings
) -> None:
    """A database that served another store before, or whose group was removed: it has its schema already."""
    ids = {end(client) for _ in range(3)}
    with settings_of(client._ledger, events_ttl_s=-10):
        client._ledger.upkeep.trim_events(lead(client._ledger))
    client._redis.hdel(client._ledger.keys.upkeep, "archive_owes")  # Injected: workers knew of no archive
    late = Archiver(settings)
    late.prepare()
    write(late)
    assert {job.job_id for job in client.jobs().jobs} == ids
    late.archive.close()


def test_a_record_that_is_not_whole_does_not_stop_the_others(
    client: Client, archiver: Archiver, redis: Redis
) -> None:
    broken, well = end(client), end(client)
    redis.hdel(client._ledger.keys.job(broken), "submitted")
    write(archiver)
    assert [job.job_id for job in client.jobs().jobs] == [well]


def test_jobs_go_on_while_the_archive_is_away(client: Client, archiver: Archiver, redis: Redis) -> None:
    """Injected: its database answers nothing."""
    archiver.archive.close()
    with archiver.archive.engine.begin() as connection:
        METADATA.drop_all(connection)
    job = client.submit(JobSpec(code="1", idempotency_key="new"))
    assert client.submit(JobSpec(code="1", idempotency_key="new")).id == job.id
    held = client._ledger.claims.claim_next(message=job.id, worker="w", operation=operation())
    client._ledger.finish(held, result_of(held), operation())  # type: ignore[arg-type]
    assert job.result(timeout_s=5).ok
    ids = [end(client, said="x" * 20_000) for _ in range(60)]
    fill_to(client._ledger, redis, ADMITS_BELOW + 3)
    client._ledger.retention.make_room(lead(client._ledger))
    assert sum(redis.exists(client._ledger.keys.job(job_id)) for job_id in ids) < 60, "or nothing is admitted"


def test_an_archive_of_another_schema_is_refused_with_both_versions(archiver: Archiver) -> None:
    with archiver.archive.engine.begin() as connection:
        connection.execute(text("UPDATE cellblock_archive_version SET version_num = '0000'"))
    with pytest.raises(SchemaMismatch, match=rf"schema 0000, .*speaks {HEAD}: run cellblock archive upgrade"):
        archiver.prepare()
    with archiver.archive.engine.begin() as connection:
        connection.execute(text("UPDATE cellblock_archive_version SET version_num = '9999'"))
    for refuses in (archiver.prepare, lambda: upgrade(archiver.archive.engine)):
        with pytest.raises(SchemaMismatch, match=rf"schema 9999, .*{HEAD}: run the version that"):
            refuses()


def test_readers_refuse_an_archive_of_another_schema_too(
    client: Client, archiver: Archiver, redis: Redis
) -> None:
    job_id = end(client)
    write(archiver)
    forget(client, redis, job_id, ago_s=HOT_S + 60)
    with archiver.archive.engine.begin() as connection:
        connection.execute(text("UPDATE cellblock_archive_version SET version_num = '9999'"))
    for ask in (client.jobs, client.usage, lambda: client.status(job_id)):
        with pytest.raises(SchemaMismatch, match=rf"schema 9999, .*speaks {HEAD}"):
            ask()
    assert client.submit(JobSpec(code="1", idempotency_key="new")).id, "jobs go on"


def test_the_migrations_make_what_the_tables_say(archiver: Archiver) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with archiver.archive.engine.connect() as connection:
        check_version(connection)
        assert version_of(connection) == HEAD
        options = {"version_table": "cellblock_archive_version", "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, METADATA) == []


def test_upgrade_keeps_outputs_that_an_earlier_version_wrote_as_text(
    client: Client, archiver: Archiver
) -> None:
    from alembic import command
    from alembic.config import Config

    engine = archiver.archive.engine
    client._redis.hdel(client._ledger.keys.upkeep, "archive_id")  # as that version, which noted none
    with engine.begin() as connection:
        METADATA.drop_all(connection)
        connection.execute(text("DROP TABLE cellblock_archive_version"))
        config = Config()
        config.set_main_option("script_location", str(Path(schema.__file__).parent / "migrations"))
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.execute(
            text(
                "INSERT INTO cellblock_jobs (job_id, tenant, level, state, outcome, attempt, losses, "
                "trace_id, submitted, admitted_ms, started_ms, finished_ms, result) VALUES ('old', "
                "'default', 'standard', 'succeeded', 'ok', 1, 0, 't', 1.0, 1, 1, 2, "
                '\'{"stdout":"sch\u00f6n"}\')'
            )
        )
    assert upgrade(engine) == ("0001", HEAD)
    assert client.result("old", timeout_s=5).stdout == "sch\u00f6n"
    with engine.begin() as connection:
        assert connection.execute(text("SELECT output_bytes FROM cellblock_jobs")).scalar_one() == 19


def test_without_an_archive_a_listing_says_what_it_needs(redis_url: str) -> None:
    with Client(redis_url) as client, pytest.raises(NotConfigured, match="CELLBLOCK_ARCHIVE_URL"):
        client.jobs()


@pytest.mark.parametrize(
    ("url", "says"), [("mysql://x", "must start with"), ("sqlite:///relative.db", "no absolute path")]
)
def test_a_wrong_address_is_named_and_not_shown(url: str, says: str) -> None:
    with pytest.raises(SettingsError, match=rf"CELLBLOCK_ARCHIVE_URL\): .*{says}"):
        load_settings(archive={"url": url})


def test_a_secret_in_the_address_is_never_said(redis_url: str) -> None:
    url = "postgresql://cellblock:hunter2@127.0.0.1:1/db"
    loaded = load_settings(redis={"url": redis_url}, archive={"url": url})
    with Client(settings=loaded) as client, pytest.raises(Exception, match="CELLBLOCK_ARCHIVE_URL") as away:
        client.jobs()
    assert "hunter2" not in json.dumps([str(away.value), repr(away.value.__cause__)])
