"""A store whose archive's address now leads to another database than the one its jobs were written to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from redis import Redis

from cellblock import ArchiveUnavailable, Client, JobSpec
from cellblock.archive import Archive
from cellblock.archive.schema import upgrade
from cellblock.archive.tables import IDENTITY
from cellblock_config import Settings, load_settings
from cellblock_workers.archiver import Archiver
from cellblock_workers.doctor.stores import store_checks
from ledger.test_archive import HOT_S, end, forget, write
from parts import cellblock, wait_until

pytestmark = pytest.mark.no_rerun

SAYS = "the database of CELLBLOCK_ARCHIVE_URL is not the archive that this store's jobs were written to"


@pytest.fixture(params=["sqlite", "postgresql"])
def addresses(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Those of the archive that is written first, and of another database; both are empty."""
    first, other = f"sqlite:///{tmp_path}/first.db", f"sqlite:///{tmp_path}/other.db"
    if request.param == "postgresql":
        postgres = request.getfixturevalue("postgres")
        first, other = (postgres.new_database() for _ in range(2))
    return first, other


def _settings(redis_url: str, tmp_path: Path, archive_url: str) -> Settings:
    return load_settings(
        redis={"url": redis_url},
        archive={"url": archive_url, "hot_s": HOT_S},
        blobs={"url": f"file://{tmp_path}/blobs"},
        ledger={"fault_retries": 0, "result_least_s": 0},
    )


@pytest.fixture
def settings(redis_url: str, tmp_path: Path, addresses: tuple[str, str]) -> Settings:
    return _settings(redis_url, tmp_path, addresses[0])


@pytest.fixture
def changed(redis_url: str, tmp_path: Path, addresses: tuple[str, str]) -> Settings:
    """The same with the other database."""
    return _settings(redis_url, tmp_path, addresses[1])


@pytest.fixture
def archived_id(client: Client, redis: Redis, archiver: Archiver) -> str:
    """A job that only the first archive has."""
    job_id = end(client, idempotency_key="once")
    write(archiver)
    forget(client, redis, job_id, ago_s=HOT_S + 60)
    assert client.result(job_id, timeout_s=5).ok
    return job_id


@pytest.fixture
def late(changed: Settings) -> Iterator[Archiver]:
    """An archiver that was started with the other database."""
    opened = Archiver(changed)
    yield opened
    opened.archive.close()


def prepared(archive: Archive) -> None:
    """Injected: the other database has its schema already, as one that has served another store."""
    upgrade(archive.engine)


@pytest.mark.parametrize("is_prepared", [False, True], ids=["empty", "with-a-schema"])
def test_archiver_writes_nothing_into_another_archive(
    client: Client, archived_id: str, late: Archiver, is_prepared: bool
) -> None:
    if is_prepared:
        prepared(late.archive)
    with pytest.raises(ArchiveUnavailable, match=SAYS) as refused:
        late.prepare()
    said = str(refused.value)
    assert "cellblock archive accept" in said
    assert "postgresql" not in said
    assert ".db" not in said
    assert client.counts().archive_problem == said, "an operator reads it there"


def test_archiver_that_runs_waits_when_its_database_is_exchanged(
    client: Client, archived_id: str, late: Archiver
) -> None:
    """Injected: as after a failover to another server, which was away for a moment."""
    prepared(late.archive)
    late._away = (0.0, "")
    runs = threading.Thread(target=late.run)
    runs.start()
    try:
        job_id = end(client)
        wait_until(lambda: SAYS in (client.counts().archive_problem or ""), 20, "the reason")
        assert late.archive.job(job_id) is None
    finally:
        late.stop()
        runs.join()


def test_readers_of_another_archive_are_told_so_in_place_of_unknown(
    archived_id: str, late: Archiver, changed: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    prepared(late.archive)
    with Client(settings=changed) as client:
        for ask in (
            lambda: client.status(archived_id),
            lambda: client.result(archived_id, timeout_s=5),
            client.jobs,
        ):
            with pytest.raises(ArchiveUnavailable, match=SAYS):
                ask()
        assert SAYS in (client.counts().archive_problem or "")
        assert client.submit(JobSpec(code="1", idempotency_key="once")).id, "jobs go on"
    assert SAYS in caplog.text


@pytest.mark.parametrize("addresses", ["postgresql"], indirect=True)  # a file is tried as another user
def test_doctor_names_another_archive(archived_id: str, late: Archiver, changed: Settings) -> None:
    prepared(late.archive)
    (check,) = (check for check in store_checks(changed) if check.name == "archive")
    assert (check.status, check.value) == ("problem", "CELLBLOCK_ARCHIVE_URL is another archive's")
    assert "cellblock archive accept" in check.remedy


def test_accepted_archive_is_written_from_then_on_and_gets_what_the_store_still_has(
    client: Client, archiver: Archiver, archived_id: str, late: Archiver, changed: Settings
) -> None:
    kept = end(client)
    write(archiver)
    url = changed.archive.url
    assert url is not None
    stores = {
        "CELLBLOCK_REDIS_URL": changed.redis.url.get_secret_value() if changed.redis.url else "",
        "CELLBLOCK_ARCHIVE_URL": url.get_secret_value(),
    }
    accepted = cellblock("archive", "accept", **stores)
    assert accepted.returncode == 0, accepted.stderr
    late.prepare()
    write(late)
    with Client(settings=changed) as reader:
        assert [job.job_id for job in reader.jobs().jobs] == [kept]
        assert reader.counts().archive_problem is None
    with pytest.raises(ArchiveUnavailable, match=SAYS):
        archiver.step()
    again = cellblock("archive", "accept", **stores)
    assert (again.returncode, "nothing to accept" in again.stdout) == (0, True)


def test_archive_that_is_restored_elsewhere_is_the_same(
    client: Client, archived_id: str, changed: Settings, settings: Settings
) -> None:
    """Moved with its rows: it is asked for what it holds, not for where it is."""
    first, other = (Archiver(one) for one in (settings, changed))
    with closing(first.archive), closing(other.archive):
        upgrade(other.archive.engine)
        with other.archive.engine.begin() as connection:
            connection.execute(IDENTITY.update().values(archive_id=first.archive.identity()))
        other.prepare()


def test_detached_store_takes_any_archive(client: Client, archived_id: str, late: Archiver) -> None:
    assert client._ledger.archiving.detach()
    late.prepare()
    write(late)
    assert client._ledger.archiving.written_to() == late.archive.identity()
