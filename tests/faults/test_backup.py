"""The drill: a fleet's store is lost, and an empty one is filled from a backup."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis import Redis

from cellblock import Client, JobSpec, NotConfigured, Outcome, SchemaMismatch, StoreUnavailable
from cellblock.ledger import Claim
from cellblock.ledger.connection import store_errors
from cellblock.store_backup import back_up, restore
from cellblock_config import Settings, load_settings
from ledger.kit import OPEN, FakeWorker, expire_lease, lead, manifest, operation, result_of
from parts import RedisServer, cellblock, wait_until

pytestmark = pytest.mark.no_rerun

PRICED = replace(OPEN, reserve_micros=100)
JOBS = 60


def server_in(folder: Path) -> RedisServer:
    folder.mkdir()
    server = RedisServer(folder)
    server.start()
    return server


@pytest.fixture
def lost(tmp_path: Path) -> Iterator[RedisServer]:
    server = server_in(tmp_path / "lost")
    yield server
    server.stop()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[RedisServer]:
    server = server_in(tmp_path / "fresh")
    yield server
    server.stop()


def settings_of(server: RedisServer, url: str = "") -> Settings:
    return load_settings(redis={"url": url or server.url}, ledger={"loss_backoff_s": (0.0,)})


def admitted(client: Client, number: int) -> str:
    """A job that costs at most a hundred micros."""
    job_id = f"{number:032x}"
    client._ledger.admissions.admit(job_id, manifest(code=f"print({number})"), gates=PRICED)
    return job_id


def claimed(client: Client) -> Claim:
    held = client._ledger.claims.claim_next(message="-", worker="w", operation=operation())
    assert isinstance(held, Claim)
    return held


def test_jobs_acknowledged_before_the_backup_end_once_after_it_and_are_paid_once(
    lost: RedisServer, fresh: RedisServer, tmp_path: Path
) -> None:
    with Client(settings=settings_of(lost)) as client:
        ids = [admitted(client, number) for number in range(JOBS)]
        for _ in range(20):  # these have ended when the copy is made
            held = claimed(client)
            client._ledger.finish(held, result_of(held, cost_micros=70, stdout="before\n"), operation())
        running = [claimed(client) for _ in range(10)]
        back_up(settings_of(lost), tmp_path / "backup")
        for held in running:  # what happens later did not happen
            client._ledger.finish(held, result_of(held, cost_micros=70), operation())
        admitted(client, 1000)
    lost.stop()

    settings = settings_of(fresh)
    assert restore(settings, tmp_path / "backup")[1] > JOBS
    with Client(settings=settings) as client, closing(Redis.from_url(fresh.url)) as redis:
        (used,) = client.usage()
        assert (used.runs, used.spent_micros, used.reserved_micros) == (JOBS, 20 * 70, 40 * 100)
        for held in running:
            expire_lease(client._ledger, redis, held.job_id)
        lead(client._ledger)
        assert {done.word for done in client._ledger.upkeep.reap()} == {"requeued"}
        while isinstance(
            next_one := client._ledger.claims.claim_next(message="-", worker="w", operation=operation()),
            Claim,
        ):
            result = result_of(next_one, cost_micros=70, stdout="after\n")
            client._ledger.finish(next_one, result, operation())
        for job_id in ids:
            assert client.result(job_id, timeout_s=5).outcome is Outcome.OK
        said = Counter(client.result(job_id, timeout_s=5).stdout for job_id in ids)
        assert said == {"before\n": 20, "after\n": 40}
        ends = Counter(event.job_id for event in client.events(limit=1000) if event.terminal)
        assert ends == Counter(ids), "each once"
        (used,) = client.usage()
        assert (used.runs, used.spent_micros, used.reserved_micros) == (JOBS, JOBS * 70, 0)


def test_the_drill_as_an_operator_does_it(lost: RedisServer, fresh: RedisServer, tmp_path: Path) -> None:
    folder = str(tmp_path / "backup")
    with Client(settings=settings_of(lost)) as client:
        jobs = [client.submit(JobSpec(code=f"print({number})")) for number in range(10)]
        made = cellblock("store", "backup", folder, CELLBLOCK_REDIS_URL=lost.url)
        assert (made.returncode, made.stderr) == (0, "")
        again = cellblock("store", "backup", folder, CELLBLOCK_REDIS_URL=lost.url)
        assert (again.returncode, "holds a backup already" in again.stderr) == (4, True)
    lost.stop()
    back = cellblock("store", "restore", folder, CELLBLOCK_REDIS_URL=fresh.url)
    assert back.returncode == 0, back.stderr
    twice = cellblock("store", "restore", folder, CELLBLOCK_REDIS_URL=fresh.url)
    assert (twice.returncode, "holds keys" in twice.stderr) == (4, True)
    settings = settings_of(fresh)
    with Client(settings=settings) as client, FakeWorker(settings):
        for number, job in enumerate(jobs):
            assert client.result(job.id, timeout_s=20).stdout == f"print({number})"


def test_a_copy_is_of_one_moment_while_jobs_come_and_go(
    lost: RedisServer, fresh: RedisServer, tmp_path: Path
) -> None:
    settings = settings_of(lost)
    with Client(settings=settings) as client, FakeWorker(settings):
        jobs = [client.submit(JobSpec(code=str(number))) for number in range(50)]
        back_up(settings, tmp_path / "backup")
        for job in jobs:
            job.result(timeout_s=20)
    restored = settings_of(fresh)
    restore(restored, tmp_path / "backup")
    with Client(settings=restored) as client, FakeWorker(restored):
        wait_until(lambda: client.counts().waiting == 0, 20, "what waited having run")
        time.sleep(0.2)
        known = [event.job_id for event in client.events(limit=1000) if event.type == "agent.run.queued"]
        for job_id in known:
            assert client.status(job_id).state in {"succeeded", "running"}


def test_what_is_no_backup_is_refused(lost: RedisServer, fresh: RedisServer, tmp_path: Path) -> None:
    settings = settings_of(fresh)
    with pytest.raises(SchemaMismatch, match="has no schema"):
        back_up(settings, tmp_path / "nothing")
    with pytest.raises(NotConfigured, match="holds no backup"):
        restore(settings, tmp_path)
    with Client(settings=settings_of(lost)) as client:
        client.submit(JobSpec(code="1"))
    back_up(settings_of(lost), tmp_path / "backup")
    copy = tmp_path / "backup" / "store.rdb"
    assert copy.stat().st_mode & 0o077 == 0
    with copy.open("r+b") as opened:
        opened.seek(40)
        opened.write(b"x")
    with pytest.raises(NotConfigured, match="SHA-256"):
        restore(settings, tmp_path / "backup")


def test_who_may_not_restore_is_told_what_it_needs_and_shown_no_payload(
    lost: RedisServer, fresh: RedisServer, tmp_path: Path
) -> None:
    marker = "print('of somebody')"
    with Client(settings=settings_of(lost)) as client:
        client.submit(JobSpec(code=marker))
    back_up(settings_of(lost), tmp_path / "backup")
    with closing(Redis.from_url(fresh.url)) as redis:
        redis.execute_command("ACL SETUSER ops on >pw ~* &* +@all -restore")  # type: ignore[no-untyped-call]
    port = urlsplit(fresh.url).port
    settings = settings_of(fresh, f"redis://ops:pw@127.0.0.1:{port}/0")
    with pytest.raises(StoreUnavailable, match=r"needs \+restore") as refused:
        restore(settings, tmp_path / "backup")
    assert "somebody" not in "".join(traceback.format_exception(refused.value))


def test_a_pipeline_that_is_refused_does_not_say_what_was_in_it(fresh: RedisServer) -> None:
    redis, given = Redis.from_url(fresh.url), "of somebody) of pipeline caused error: x\n"
    refuses = pytest.raises(StoreUnavailable, match="wrong kind of value")
    with closing(redis), refuses as refused, store_errors("trying"):
        pipe = redis.pipeline(transaction=False)
        pipe.set("text", given)
        pipe.lpush("text", given)
        pipe.execute()
    assert given.partition(")")[0] not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize("folder", ["/proc/x", "file/backup"])
def test_a_folder_that_cannot_be_made_is_named(lost: RedisServer, tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("no folder")
    with Client(settings=settings_of(lost)) as client:
        client.submit(JobSpec(code="1"))
    with pytest.raises(NotConfigured, match=f"{folder} cannot be made: "):
        back_up(settings_of(lost), tmp_path / folder)


def reaches_in(folder: Path, name: str, precious: Path) -> None:
    """What another user can do in a folder that others may write to."""
    (folder / name).symlink_to(precious)


@pytest.mark.parametrize("name", ["store.rdb", "store.rdb.part", "backup.json"])
def test_backup_writes_through_no_link_in_its_folder(lost: RedisServer, tmp_path: Path, name: str) -> None:
    with Client(settings=settings_of(lost)) as client:
        client.submit(JobSpec(code="1"))
    precious, folder = tmp_path / "precious", tmp_path / "backup"
    precious.write_text("the operator's")
    precious.chmod(0o644)
    folder.mkdir(mode=0o700)
    reaches_in(folder, name, precious)
    with suppress(NotConfigured):
        back_up(settings_of(lost), folder)
    assert precious.read_text() == "the operator's"
    assert precious.stat().st_mode & 0o777 == 0o644


def test_backup_file_is_the_one_that_was_opened_also_if_its_name_is_taken(
    lost: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: a link takes the name while redis-cli starts."""
    with Client(settings=settings_of(lost)) as client:
        client.submit(JobSpec(code="1"))
    precious, folder = tmp_path / "precious", tmp_path / "backup"
    precious.write_text("the operator's")
    real = subprocess.run

    def run(*arguments: Any, **options: Any) -> Any:
        (folder / "store.rdb.part").unlink()
        reaches_in(folder, "store.rdb.part", precious)
        return real(*arguments, **options)

    monkeypatch.setattr(subprocess, "run", run)
    back_up(settings_of(lost), folder)
    assert precious.read_text() == "the operator's"


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_backup_refuses_a_folder_that_others_may_write_to(
    lost: RedisServer, tmp_path: Path, mode: int
) -> None:
    with Client(settings=settings_of(lost)) as client:
        client.submit(JobSpec(code="1"))
    folder = tmp_path / "backup"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(NotConfigured, match=r"others may write to it: name another folder.*chmod 700"):
        back_up(settings_of(lost), folder)
    assert list(folder.iterdir()) == []
    folder.chmod(0o755)
    back_up(settings_of(lost), folder)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_backup_refuses_a_folder_of_another_user_and_a_link(lost: RedisServer, tmp_path: Path) -> None:
    with Client(settings=settings_of(lost)) as client:
        client.submit(JobSpec(code="1"))
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)
    with pytest.raises(NotConfigured, match="belongs to another user"):
        back_up(settings_of(lost), folder)
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(NotConfigured, match="is a link"):
        back_up(settings_of(lost), tmp_path / "link")


@pytest.fixture
def backup(lost: RedisServer, tmp_path: Path) -> Path:
    """The folder of a backup, closed to others."""
    with Client(settings=settings_of(lost)) as client:
        client.submit(JobSpec(code="1"))
    back_up(settings_of(lost), tmp_path / "backup")
    return tmp_path / "backup"


def holds_nothing(server: RedisServer) -> bool:
    with closing(Redis.from_url(server.url)) as redis:
        return redis.dbsize() == 0


@pytest.mark.parametrize("name", [".", "store.rdb", "backup.json"])
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_restore_refuses_what_others_may_write_to(
    backup: Path, fresh: RedisServer, name: str, mode: int
) -> None:
    (backup / name).chmod(mode)
    with pytest.raises(NotConfigured, match=r"others may write to it.*chmod") as refused:
        restore(settings_of(fresh), backup)
    assert str((backup / name).resolve()) in str(refused.value)
    assert holds_nothing(fresh)
    (backup / name).chmod(0o755 if name == "." else 0o644)
    assert restore(settings_of(fresh), backup)[1] > 0


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
@pytest.mark.parametrize("name", [".", "store.rdb", "backup.json"])
def test_restore_refuses_what_belongs_to_another_user(backup: Path, fresh: RedisServer, name: str) -> None:
    os.chown(backup / name, 65534, 65534)
    with pytest.raises(NotConfigured, match=r"belongs to another user.*chown"):
        restore(settings_of(fresh), backup)
    assert holds_nothing(fresh)


@pytest.mark.parametrize("name", ["store.rdb", "backup.json"])
@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_restore_follows_no_link_and_waits_for_no_fifo(
    backup: Path, fresh: RedisServer, tmp_path: Path, name: str, kind: str
) -> None:
    (backup / name).rename(tmp_path / "moved")
    if kind == "link":
        (backup / name).symlink_to(tmp_path / "moved")
    elif kind == "fifo":
        os.mkfifo(backup / name, mode=0o600)
    else:
        (backup / name).mkdir(mode=0o700)
    with pytest.raises(NotConfigured, match=f"{backup / name} is no file"):
        restore(settings_of(fresh), backup)
    assert holds_nothing(fresh)


def test_restore_follows_no_link_to_a_folder(backup: Path, fresh: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(backup)
    with pytest.raises(NotConfigured, match="is a link"):
        restore(settings_of(fresh), tmp_path / "link")
    with pytest.raises(NotConfigured, match="nobody cannot be opened: No such file"):
        restore(settings_of(fresh), tmp_path / "nobody")
    assert not (tmp_path / "nobody").exists()


def test_restore_loads_the_bytes_that_it_has_checked(
    backup: Path, fresh: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: the copy is exchanged once its digest is known, before redis-server reads it."""
    real = hashlib.file_digest

    def file_digest(*arguments: Any) -> Any:
        digest = real(*arguments)
        (backup / "store.rdb").write_bytes(b"of somebody")
        return digest

    monkeypatch.setattr(hashlib, "file_digest", file_digest)
    assert restore(settings_of(fresh), backup)[1] > 0


def test_an_interrupted_restore_is_no_store_until_it_is_run_again(
    lost: RedisServer, fresh: RedisServer, tmp_path: Path
) -> None:
    with Client(settings=settings_of(lost)) as client:
        jobs = client.submit_many(JobSpec(code=str(number)) for number in range(600))
        back_up(settings_of(lost), tmp_path / "backup")
        back_up(settings_of(lost), tmp_path / "later")

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    settings = settings_of(fresh)
    with pytest.raises(KeyboardInterrupt):
        restore(settings, tmp_path / "backup", interrupt)
    with Client(settings=settings) as client, pytest.raises(SchemaMismatch, match="cellblock store restore"):
        client.submit(JobSpec(code="1"))
    with pytest.raises(NotConfigured, match="restore into an empty Redis"):
        restore(settings, tmp_path / "later")  # what the first one brought is not in this one, perhaps
    restore(settings, tmp_path / "backup")
    with Client(settings=settings) as client:
        assert client.counts().waiting == len(jobs)
        client.submit(JobSpec(code="1"))
