"""Every command and program of README and of the pages in docs, run as written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cellblock import Client, JobSpec, Outcome
from cellblock.webhooks import SIGNATURE_HEADER, sign
from cellblock_config import load_settings
from cellblock_workers.archiver import Archiver
from ledger.kit import FakeWorker
from parts import REPOSITORY, RedisServer, launcher_process, worker_process
from suite.measured import unmeasured

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
TEXT = "\n".join(page.read_text() for page in PAGES)
AS_WRITTEN = pytest.mark.long("runs a document as it is written; what its commands do has tests of its own")
#: Run by CI and by hand: they are what runs this test, or longer than it.
ELSEWHERE = {"make demo", "make test", "make bench"}


def blocks(kind: str) -> list[str]:
    """The fenced blocks of this exact kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def run(command: list[str], cwd: Path = REPOSITORY, **environment: str) -> subprocess.CompletedProcess[str]:
    """In the repository, with the installed command on the PATH. What it does is measured elsewhere."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        env={**unmeasured(os.environ), "PATH": path, **environment},
        check=False,
    )


@pytest.mark.docker
@pytest.mark.timeout(150)
@pytest.mark.parametrize("block", blocks("bash"))
@AS_WRITTEN
def test_commands_that_need_no_server(block: str) -> None:
    done = run(["bash", "-euo", "pipefail", "-c", block])
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.docker
@AS_WRITTEN
def test_commands_and_program_that_need_a_fleet(
    tmp_path: Path, redis_url: str, launcher_socket: Path
) -> None:
    with worker_process(tmp_path, redis_url, launcher_socket):
        for block in blocks("bash fleet"):
            done = run(["bash", "-euo", "pipefail", "-c", block], CELLBLOCK_REDIS_URL=redis_url)
            assert done.returncode == 0, done.stderr
            assert "agent.run.succeeded" in done.stdout
        for reader in blocks("python fleet"):
            done = run([sys.executable, "-c", reader], CELLBLOCK_REDIS_URL=redis_url)
            assert done.returncode == 0, done.stderr
            assert "agent.run.succeeded" in done.stdout
        (evaluation,) = blocks("python evaluation")
        done = run([sys.executable, "-c", evaluation], CELLBLOCK_REDIS_URL=redis_url)
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == [
            "[1.0, 0.0, 0.0]",
            *("demo/0 failed", "demo/0 passed", "demo/1 failed", "demo/1 passed"),
        ]
        (nested,) = blocks("python nested")
        done = run([sys.executable, "-c", nested], CELLBLOCK_REDIS_URL=redis_url)
        assert (done.returncode, done.stdout) == (0, "for the agent\n\n"), done.stderr
        (first,) = blocks("python quickstart")
        done = run([sys.executable, "-c", first], CELLBLOCK_REDIS_URL=redis_url)
        assert (done.returncode, done.stdout) == (0, "ok 42\n\n"), done.stderr
        (program,) = blocks("python")
        done = run([sys.executable, "-c", program], CELLBLOCK_REDIS_URL=redis_url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ok 42")
    assert sorted(int(line) for line in done.stdout.splitlines() if line.isdigit()) == [
        n**2 for n in range(10)
    ]


@pytest.mark.docker
@AS_WRITTEN
def test_commands_for_dead_letters(tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Injected: an image of that name was never built, so every attempt fails through our fault."""
    images = {"python": "cellblock/python:latest", "ghost": "cellblock/never-built:latest"}
    monkeypatch.setenv("CELLBLOCK_SANDBOX_IMAGES", json.dumps(images))
    monkeypatch.setenv("CELLBLOCK_LEDGER_FAULT_RETRIES", "0")
    monkeypatch.setenv("CELLBLOCK_SANDBOX_ISOLATIONS", '["runc"]')
    with launcher_process(tmp_path) as (socket, _), worker_process(tmp_path, redis_url, socket):
        with Client(redis_url) as client:
            job = client.submit(JobSpec(code="print(1)", image="ghost"))
            assert job.result(timeout_s=30).outcome is Outcome.SANDBOX_ERROR
        (block,) = blocks("bash fleet-dead")
        done = run(["bash", "-euo", "pipefail", "-c", block], CELLBLOCK_REDIS_URL=redis_url, job=job.id)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(job.id) >= 2
    assert "1 will run again" in done.stdout


@AS_WRITTEN
def test_commands_for_plans(redis_url: str) -> None:
    (block,) = blocks("bash fleet-plans")
    done = run(["bash", "-euo", "pipefail", "-c", block], CELLBLOCK_REDIS_URL=redis_url)
    assert done.returncode == 0, done.stderr
    assert "timeout_s: - -> 20" in done.stdout
    assert "cbk_" in done.stdout


@AS_WRITTEN
def test_commands_for_the_archive(tmp_path: Path, redis_url: str) -> None:
    archive_url = f"sqlite:///{tmp_path}/jobs.db"
    settings = load_settings(redis={"url": redis_url}, archive={"url": archive_url})
    with Client(settings=settings) as client, FakeWorker(settings):
        job_id = client.submit(JobSpec(code="1")).result(timeout_s=20).job_id
    archiver = Archiver(settings)
    archiver.prepare()
    while archiver.step():
        pass
    (block,) = blocks("bash fleet-archive")
    done = run(
        ["bash", "-euo", "pipefail", "-c", block],
        CELLBLOCK_ARCHIVE_URL=archive_url,
        CELLBLOCK_REDIS_URL=redis_url,
    )
    assert done.returncode == 0, done.stderr
    assert job_id in done.stdout


@AS_WRITTEN
def test_commands_for_a_backup(tmp_path: Path, redis_url: str) -> None:
    (tmp_path / "empty").mkdir()
    empty = RedisServer(tmp_path / "empty")
    empty.start()
    try:
        with Client(redis_url) as client:
            client.submit(JobSpec(code="1"))
        (block,) = blocks("bash fleet-backup")
        done = run(
            ["bash", "-euo", "pipefail", "-c", block],
            CELLBLOCK_REDIS_URL=redis_url,
            empty_redis=empty.url,
            folder=str(tmp_path / "backup"),
        )
        assert done.returncode == 0, done.stderr
        assert "are back" in done.stdout
    finally:
        empty.stop()


@AS_WRITTEN
def test_commands_for_users_of_the_store(tmp_path: Path) -> None:
    (block,) = blocks("bash store")
    done = run(["bash", "-euo", "pipefail", "-c", block], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "user cellblock-worker" in (tmp_path / "users.acl").read_text()


def test_every_block_is_run_or_shows_what_is_printed() -> None:
    kinds = set(re.findall(r"^```([a-z].*)$", TEXT, re.MULTILINE))
    source = Path(__file__).read_text()
    # tests/e2e/test_compose.py puts the compose files of a page to use.
    assert {kind for kind in kinds if f'blocks("{kind}")' not in source} == {"console", "text", "yaml"}


def test_the_receiver_of_webhooks() -> None:
    (program,) = blocks("python webhook")
    scope: dict[str, Any] = {}
    exec(program, scope)
    header = {SIGNATURE_HEADER: sign(b"{}", "the secret both sides have", time.time())}
    assert [scope["receive"](given, b"{}") for given in (header, {})] == [204, 401]


@pytest.mark.docker
@pytest.mark.timeout(150)
@AS_WRITTEN
def test_the_program_with_tables(tmp_path: Path, redis_url: str, launcher_socket: Path) -> None:
    with worker_process(tmp_path, redis_url, launcher_socket):
        (program,) = blocks("python tables")
        done = run([sys.executable, "-c", program], CELLBLOCK_REDIS_URL=redis_url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["amount", "shop", "a", "14", "b", "20"]


@pytest.mark.docker
@pytest.mark.timeout(150)
@AS_WRITTEN
def test_programs_of_the_page_for_python(tmp_path: Path, redis_url: str, launcher_socket: Path) -> None:
    printed = []
    with worker_process(tmp_path, redis_url, launcher_socket):
        for program in blocks("python client"):
            done = run([sys.executable, "-c", program], CELLBLOCK_REDIS_URL=redis_url)
            assert done.returncode == 0, done.stderr
            printed.append(re.sub(r"\bjob [0-9a-f]{32}\b", "job 6f0d…", done.stdout))
    page = (REPOSITORY / "docs/python.md").read_text()
    assert printed == re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def test_the_make_targets_named_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    named = set(re.findall(r"(?:^|`)(make [a-z-]+)", TEXT, re.MULTILINE))
    assert named >= ELSEWHERE
    for target in named:
        assert re.search(rf"^{target.split()[1]}:", makefile, re.MULTILINE), target


def test_every_setting_named_exists() -> None:
    groups = (REPOSITORY / "config/cellblock_config").glob("*.py")
    settings = "\n".join(path.read_text() for path in groups)
    for name in set(re.findall(r"CELLBLOCK_([A-Z_]+)", TEXT)):
        if name not in {"<GROUP>_<NAME>", ""}:
            field = name.split("_", 1)[1].lower() if "_" in name else name.lower()
            assert not field or re.search(rf"^    {field}:", settings, re.MULTILINE), name
