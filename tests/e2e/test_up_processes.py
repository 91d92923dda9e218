"""`cellblock up`: what each of its processes is told, and what its users can read of each other."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from redis import Redis

from parts import CELLBLOCK, NAMESPACES, command_line, descendants, wait_until

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(120),
    pytest.mark.long("a whole fleet starts and ends"),
]

#: By variable, the processes that may see it. The values are looked for in every environment.
TOLD = {
    "AWS_SECRET_ACCESS_KEY": {"worker"},
    "AZURE_STORAGE_ACCOUNT_KEY": {"worker"},
    "GOOGLE_SERVICE_ACCOUNT_KEY": {"worker"},
    "PGPASSWORD": {"archiver"},
    "CELLBLOCK_SIGNING_TRUSTED": {"worker"},
    "CELLBLOCK_EGRESS_SECRETS": {"worker"},
    "CELLBLOCK_POLICY_TOKEN": set(),
    "CELLBLOCK_MONITOR_PASSWORD": {"flower"},
    "CELLBLOCK_WEBHOOKS_SECRET": set(),
    "SENTRY_RELEASE": {"worker"},
    "OPENAI_API_KEY": set(),
    "DATABASE_URL": set(),
    "SSL_CERT_FILE": {"worker", "archiver", "flower"},
    "HTTPS_PROXY": {"worker"},
    "TZ": {"launcher", "worker", "archiver", "flower"},
}
GIVEN = {name: f"sentinel-of-{name.lower()}" for name in TOLD} | {
    "CELLBLOCK_SIGNING_TRUSTED": json.dumps({"one": "hmac:c2VudGluZWwtb2YtdGhlLXNpZ25lci1zZW50aW5lbC1vZi0="}),
    "CELLBLOCK_EGRESS_SECRETS": json.dumps({"one": "sentinel-of-the-filter"}),
    "TZ": "UTC0sentinel",
}
PROGRAMS = {
    "redis": "redis-server",
    "launcher": "launcher.server",
    "worker": "workers.worker.main",
    "archiver": "workers.archiver",
    "flower": "workers.monitor",
}
#: What a process of one of these users would try; prints what it could read.
READ = """
import os, pathlib, sys
for path in sys.argv[1:]:
    try:
        pathlib.Path(path).read_bytes() if not os.path.isdir(path) else os.listdir(path)
    except PermissionError:
        continue
    print(path)
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, str], dict[str, int]]]:
    """A fleet that was started with all of these variables: where it is, and its processes by name."""
    folder = tmp_path_factory.mktemp("fleet")
    environment = {**os.environ, **GIVEN, **NAMESPACES, "CELLBLOCK_MONITOR_PORT": "0"}
    with (folder / "up.log").open("wb") as log:
        up = subprocess.Popen(
            [CELLBLOCK, "up", "--json"], stdout=subprocess.PIPE, stderr=log, env=environment, cwd=folder
        )
    try:
        assert up.stdout is not None
        line = up.stdout.readline()
        assert line, (folder / "up.log").read_text()
        lines = {pid: command_line(pid) for pid in descendants(up.pid)}
        pids = {
            name: next(pid for pid, line in lines.items() if program in line)
            for name, program in PROGRAMS.items()
        }
        yield json.loads(line), pids | {"up": up.pid}
    finally:
        up.send_signal(signal.SIGTERM)
        up.wait(timeout=60)
        up.stdout.close()  # type: ignore[union-attr]


def test_each_process_of_up_is_told_what_it_uses_and_no_more(
    fleet: tuple[dict[str, str], dict[str, int]],
) -> None:
    environments = {
        name: Path(f"/proc/{pid}/environ").read_text() for name, pid in fleet[1].items() if name != "up"
    }
    told = {
        variable: {name for name, environment in environments.items() if GIVEN[variable] in environment}
        for variable in TOLD
    }
    assert told == TOLD


def _is_kept_apart(pid: int) -> bool:
    return Path(f"/proc/{pid}/environ").stat().st_uid == 0


def test_no_process_of_up_reads_what_another_was_told(
    fleet: tuple[dict[str, str], dict[str, int]],
) -> None:
    where, pids = fleet
    uids = {
        name: int(Path(f"/proc/{pid}/status").read_text().partition("Uid:")[2].split()[0])
        for name, pid in pids.items()
    }
    services = ("worker", "archiver", "flower")
    assert len({uids[name] for name in services}) == len(services), uids
    assert 0 not in {uids[name] for name in services}
    # As its owner in /proc has it: not even another process of its user. It says so after its imports.
    for pid in (pids[name] for name in services):
        wait_until(partial(_is_kept_apart, pid), 30, "a process that keeps to itself")
    archive = Path(where["archive_url"].removeprefix("sqlite:///"))
    files = [str(path) for path in (archive.parent, *archive.parent.iterdir())]
    could = {}
    for name in services:
        others = [f"/proc/{pid}/{file}" for pid in pids.values() for file in ("environ", "mem", "fd", "maps")]
        mine = files if name != "archiver" else []
        command = ["/usr/bin/python3", "-I", "-c", READ, *others, *mine]
        done = subprocess.run(
            command, user=uids[name], group=uids[name], extra_groups=[], capture_output=True, text=True
        )
        could[name] = (done.returncode, done.stdout.split())
    assert could == dict.fromkeys(services, (0, []))
    assert files, "there was an archive to reach for"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in archive.parent.iterdir()}
    assert {name: mode for name, mode in modes.items() if mode & 0o077} == {}


def up(folder: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """`cellblock up` until it says that it is up, or ends: what it printed. It is ended then."""
    variables = {**os.environ, **NAMESPACES, "CELLBLOCK_MONITOR_PORT": "0", **environment}
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [CELLBLOCK, "up"], stdout=subprocess.PIPE, stderr=log, env=variables, cwd=folder
        )
    with process:
        assert process.stdout is not None
        said = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
    return subprocess.CompletedProcess([], process.returncode, said, (folder / "up.log").read_bytes())


@pytest.mark.parametrize("store", ["BLOBS", "ARCHIVE"])
def test_up_ends_and_says_in_words_which_store_its_services_cannot_use(tmp_path: Path, store: str) -> None:
    folder = tmp_path / "roots"
    folder.mkdir(mode=0o700)
    url = f"file://{folder}" if store == "BLOBS" else f"sqlite:///{folder}/jobs.db"
    done = up(tmp_path, **{f"CELLBLOCK_{store}_URL": url})
    assert (done.returncode, done.stdout) == (4, b"")
    said = done.stderr.decode().splitlines()[-1]
    assert "cellblock is not up" in said
    assert f"CELLBLOCK_{store}_URL" in said
    assert str(folder) in said


def test_up_makes_a_missing_blob_folder_for_its_worker() -> None:
    with TemporaryDirectory() as name:  # which that user can enter
        Path(name).chmod(0o755)
        folder = Path(name) / "blobs"
        done = up(Path(name), CELLBLOCK_BLOBS_URL=f"file://{folder}")
        assert done.stdout.startswith(b"cellblock is up"), done.stderr
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_up_says_that_it_is_up_when_a_job_has_run(fleet: tuple[dict[str, str], dict[str, int]]) -> None:
    with closing(Redis.from_url(fleet[0]["redis_url"], decode_responses=True)) as redis:
        states = [redis.hget(key, "state") for key in redis.keys("{cellblock}:job:*")]
    assert states == ["succeeded"]
