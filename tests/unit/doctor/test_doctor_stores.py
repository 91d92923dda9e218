"""`cellblock doctor` on the stores of a fleet's jobs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cellblock.archive import open_archive
from cellblock.archive.encryption import unencrypted_host
from cellblock.archive.schema import upgrade
from cellblock.ledger import connect
from cellblock.ledger.archiving import Archiving
from cellblock.ledger.store import Store
from cellblock_config import load_settings
from cellblock_config.archive import ArchiveSettings
from cellblock_workers.doctor.stores import store_checks


@pytest.mark.parametrize(
    ("url", "mode", "host"),
    [
        ("postgresql://u:p@db.internal/jobs", "", "db.internal"),
        ("postgresql://u:p@10.0.0.7/jobs?sslmode=prefer", "", "10.0.0.7"),
        ("postgresql://u:p@db.internal/jobs", "disable", "db.internal"),
        ("postgresql://u:p@/jobs?host=db.internal", "", "db.internal"),
        ("postgresql://u:p@db.internal/jobs?sslmode=verify-full", "", None),
        ("postgresql://u:p@db.internal/jobs", "require", None),
        ("postgresql://u:p@127.0.0.1/jobs", "", None),
        ("postgresql://u:p@[::1]/jobs", "", None),
        ("postgresql://u:p@/jobs?host=/run/postgresql", "", None),
        ("sqlite:////var/lib/cellblock/jobs.db", "", None),
    ],
)
def test_archive_on_another_machine_without_tls_is_named(
    monkeypatch: pytest.MonkeyPatch, url: str, mode: str, host: str | None
) -> None:
    monkeypatch.setenv("PGSSLMODE", mode)
    assert unencrypted_host(ArchiveSettings.model_validate({"url": url})) == host


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of root's that every user can enter."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="services have users of their own where root starts them")
@pytest.mark.parametrize(("store", "name"), [("blobs", "blob store"), ("archive", "archive")])
def test_store_is_tried_as_the_user_of_the_service_that_uses_it(
    redis_url: str, folder: Path, store: str, name: str
) -> None:
    """Root can write to what it owns, and its services cannot."""
    own = folder / "own"
    own.mkdir(mode=0o700)
    url = f"file://{own}" if store == "blobs" else f"sqlite:///{own}/jobs.db"
    settings = load_settings(redis={"url": redis_url}, **{store: {"url": url}})
    (check,) = (check for check in store_checks(settings) if check.name == name)
    assert check.status == "problem"
    assert f"CELLBLOCK_{store.upper()}_URL" in check.value
    assert str(own) in check.remedy
    assert "tried as user" in check.remedy


@pytest.mark.parametrize("name", ["blob store", "archive"])
def test_stores_that_are_not_configured_are_a_warning_with_their_setting(redis_url: str, name: str) -> None:
    checks = store_checks(load_settings(redis={"url": redis_url}))
    (check,) = (check for check in checks if check.name == name)
    assert check.status == "warning"
    assert "CELLBLOCK_" in check.remedy


def test_archive_that_nobody_writes_is_a_warning(redis_url: str, folder: Path) -> None:
    folder.chmod(0o777)
    own = folder / "archive"
    own.mkdir()
    if os.geteuid() == 0:
        os.chown(own, 299_998, 299_998)
    folder.chmod(0o755)
    settings = load_settings(redis={"url": redis_url}, archive={"url": f"sqlite:///{own}/jobs.db"})
    before = {check.name: check for check in store_checks(settings)}["archive"]
    assert before.status == "problem", "it has no schema yet"
    archive = open_archive(settings.archive)
    assert archive is not None
    upgrade(archive.engine)
    archive.close()
    after = {check.name: check for check in store_checks(settings)}["archive"]
    assert (after.status, after.value) == ("warning", "no archiver has ever run")


@pytest.mark.parametrize("url", ["sqlite:////", "postgresql:////"])
def test_archive_of_a_worker_is_judged_by_what_its_archiver_says(redis_url: str, url: str) -> None:
    """A worker is told that there is an archive, and never opens it."""
    settings = load_settings(redis={"url": redis_url}, archive={"url": url})

    def archive() -> tuple[str, str]:
        (check,) = (check for check in store_checks(settings) if check.name == "archive")
        return check.status, check.value

    assert archive() == ("warning", "no archiver has ever run")
    with closing(connect(settings)) as redis:
        Archiving(Store.of(redis, settings)).report(behind_s=0)
    assert archive() == ("ok", "an archiver writes it")
    with closing(connect(settings)) as redis:
        Archiving(Store.of(redis, settings)).report(behind_s=7, error="its disk is full")
    assert archive() == ("warning", "7 s behind")
