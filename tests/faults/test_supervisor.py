"""`cellblock worker`: one command keeps launcher and worker of a host alive, and apart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cellblock import Client, JobSpec, JobState, Outcome
from parts import wait_until

pytestmark = pytest.mark.docker


@contextmanager
def host(folder: Path, redis_url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A host run by the one command."""
    command = str(Path(sys.executable).with_name("cellblock"))
    with (folder / "host.log").open("wb") as log:
        process = subprocess.Popen(
            [command, "worker"], env={**os.environ, "CELLBLOCK_REDIS_URL": redis_url}, stderr=log, cwd="/"
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(timeout=60)


def child(parent: int, module: str) -> int | None:
    """The pid of the child that runs this module."""
    for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            return int(pid)
    return None


@pytest.mark.timeout(120)
def test_a_killed_launcher_is_restarted_and_its_job_runs_again(tmp_path: Path, redis_url: str) -> None:
    with host(tmp_path, redis_url) as process, Client(redis_url) as client:
        job = client.submit(JobSpec(code="import time; time.sleep(3); print('done')"))
        wait_until(lambda: job.status().state is JobState.RUNNING, 30, "the job running")
        launcher = child(process.pid, "launcher.server")
        assert launcher is not None
        os.kill(launcher, signal.SIGKILL)
        result = job.result(timeout_s=60)
        assert (result.outcome, result.stdout) == (Outcome.OK, "done\n")
        assert result.attempt == 2
        assert job.status().losses == 0
        restarted = child(process.pid, "launcher.server")
        assert restarted is not None
        assert restarted != launcher
        process.terminate()
        assert process.wait(timeout=60) == 0
    assert not Path(f"/proc/{restarted}").exists()


def test_the_worker_is_not_root_although_the_host_command_is(tmp_path: Path, redis_url: str) -> None:
    with host(tmp_path, redis_url) as process:
        worker = wait_until(lambda: child(process.pid, "worker.main"), 30, "the worker")
        status = wait_until(lambda: Path(f"/proc/{worker}/status").read_text(), 5, "its status")
        uid = int(next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1])
        log = (tmp_path / "host.log").read_text()
    # Where nobody cannot read the installation, the command says so instead of pretending.
    assert uid != 0 or "worker_keeps_root" in log


def test_the_worker_cannot_reach_the_docker_socket_or_the_sandboxes_cgroups(
    tmp_path: Path, redis_url: str
) -> None:
    with host(tmp_path, redis_url) as process, Client(redis_url) as client:
        client.submit(JobSpec(code="1")).result(timeout_s=40)
        worker = child(process.pid, "worker.main")
        assert worker is not None
        uid = Path(f"/proc/{worker}").stat().st_uid
        if uid == 0:
            assert "worker_keeps_root" in (tmp_path / "host.log").read_text()
            return
        attempt = "import socket; socket.socket(socket.AF_UNIX).connect('/var/run/docker.sock')"
        done = subprocess.run(
            ["/usr/bin/python3", "-c", attempt], user=uid, extra_groups=[], capture_output=True, check=False
        )
        assert b"PermissionError" in done.stderr
