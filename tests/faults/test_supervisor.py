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
from parts import command_line, wait_until

pytestmark = pytest.mark.docker

WORKER = 299_999


@contextmanager
def host(folder: Path, redis_url: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A host run by the one command."""
    command = str(Path(sys.executable).with_name("cellblock"))
    with (folder / "host.log").open("wb") as log:
        process = subprocess.Popen(
            [command, "worker"],
            env={**os.environ, "CELLBLOCK_REDIS_URL": redis_url, **environment},
            stderr=log,
            cwd="/",
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
        if module in command_line(pid):
            return int(pid)
    return None


@pytest.mark.timeout(120)
@pytest.mark.long("starts a host twice")
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
    with host(tmp_path, redis_url) as process, Client(redis_url) as client:
        worker = wait_until(lambda: child(process.pid, "worker.main"), 30, "the worker")
        wait_until(client._ledger.figures.workers, 30, "the worker being heard of")
        status = wait_until(lambda: Path(f"/proc/{worker}/status").read_text(), 5, "its status")
        uid = int(next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1])
        log = (tmp_path / "host.log").read_text()
    # Where no other user can read the installation, the command says so instead of pretending.
    assert uid != 0 or "worker_keeps_root" in log
    assert "superuser" not in log, "nor does Celery call it root, which it is not"


@pytest.mark.parametrize(
    ("user", "said"), [("nobody", "gVisor's sandboxes are nobody's"), ("nosuchuser", "no such user")]
)
def test_a_user_that_will_not_do_is_refused(tmp_path: Path, user: str, said: str) -> None:
    with host(tmp_path, "redis://127.0.0.1:1", CELLBLOCK_WORKER_USER=user) as process:
        assert process.wait(timeout=30) == 4
    assert f"CELLBLOCK_WORKER_USER={user}" in (log := (tmp_path / "host.log").read_text())
    assert said in log


#: What a worker that was taken over would try; says what it could do.
REACH = """
import errno, os, pathlib, socket, sys
def attempt(name, act, *may_be_gone):  # sandboxes of others come and go
    try: act()
    except (PermissionError, *may_be_gone): return
    except OSError as error:  # a folder that is no control group, left by who was killed
        if error.errno == errno.EROFS: return
        raise
    print(name)
GONE = (FileNotFoundError, ProcessLookupError, NotADirectoryError)
def pids_in(folder):
    try: return (folder / 'cgroup.procs').read_text().split()
    except OSError: return []
attempt('docker', lambda: socket.socket(socket.AF_UNIX).connect('/var/run/docker.sock'))
for path, _, names in os.walk('/sys/fs/cgroup'):
    folder = pathlib.Path(path)
    if folder.parent.name != 'cellblock':
        continue
    for name in names:
        if name in ('cgroup.procs', 'tasks') or name.startswith('memory') and name.endswith('limit_in_bytes'):
            attempt(folder / name, lambda: open(folder / name, 'w').write('0'), *GONE)
    attempt(folder, lambda: (folder / 'mine').mkdir(), *GONE)
    for pid in pids_in(folder):
        attempt(('kill', pid), lambda: os.kill(int(pid), 0), *GONE)
        for name in ('mem', 'environ', 'fd', 'root/etc'):
            path = f'/proc/{pid}/{name}'
            look = os.listdir if name in ('fd', 'root/etc') else lambda path: open(path, 'rb').read(1)
            attempt(path, lambda: look(path), *GONE)
        print('tried', pid)
attempt('state', lambda: os.listdir(sys.argv[1]))
"""


@pytest.mark.whole_host
@pytest.mark.long("starts a host, and looks at every process of it")
def test_the_workers_uid_reaches_no_docker_socket_no_cgroup_and_no_process_of_a_job(
    tmp_path: Path, redis_url: str
) -> None:
    state = tmp_path / "state"
    environment = {"CELLBLOCK_LAUNCHER_STATE": str(state)}
    with host(tmp_path, redis_url, **environment) as process, Client(redis_url) as client:
        job = client.submit(JobSpec(code="import time; time.sleep(20)"))
        wait_until(lambda: job.status().state == "running", 40, "the job")
        worker = child(process.pid, "worker.main")
        assert worker is not None
        uid = Path(f"/proc/{worker}").stat().st_uid
        if uid == 0:  # it cannot read this installation as anybody else; what it could do then is the same
            assert "worker_keeps_root" in (tmp_path / "host.log").read_text()
            uid = WORKER
        command = ["/usr/bin/python3", "-I", "-c", REACH, str(state)]
        done = subprocess.run(command, user=uid, group=uid, extra_groups=[], capture_output=True, text=True)
        could = [line for line in done.stdout.splitlines() if not line.startswith("tried ")]
        assert (done.returncode, could) == (0, []), done
        assert "tried " in done.stdout, "there were processes of jobs to reach for"
        job.cancel()
