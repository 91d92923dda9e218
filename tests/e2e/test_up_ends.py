"""`cellblock up` whose terminal is closed, or that is killed: nothing of its fleet goes on."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from parts import (
    CELLBLOCK,
    NAMESPACES,
    cellblock,
    command_line,
    descendants,
    wait_until,
    worker_process,
)

pytestmark = [pytest.mark.docker, pytest.mark.timeout(180), pytest.mark.long("a whole fleet starts and ends")]


@pytest.fixture
def temporary() -> Iterator[Path]:
    """For the fleet's folder: every user can enter it, and a socket's path must be short."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@contextmanager
def fleet(temporary: Path, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, str]]]:
    """A fleet in a session of its own, as in a terminal: its process, and where it is."""
    variables = {**os.environ, **NAMESPACES, "CELLBLOCK_MONITOR_PORT": "0", "TMPDIR": str(temporary)}
    with (
        (folder / "up.log").open("wb") as log,
        subprocess.Popen(
            [CELLBLOCK, "up", "--json"],
            stdout=subprocess.PIPE,
            stderr=log,
            env=variables,
            cwd=folder,
            start_new_session=True,
        ) as up,
    ):
        assert up.stdout is not None
        try:
            line = up.stdout.readline()
            assert line, (folder / "up.log").read_text()
            yield up, json.loads(line)
        finally:
            up.terminate()


def are_gone(pids: list[int]) -> bool:
    return not any(command_line(pid) for pid in pids)


def test_closed_terminal_stops_the_fleet_of_up_in_good_order(temporary: Path, tmp_path: Path) -> None:
    with fleet(temporary, tmp_path) as (up, _):
        below = descendants(up.pid)
        os.killpg(up.pid, signal.SIGHUP)
        assert up.wait(timeout=60) == 0
        assert are_gone(below)
        assert list(temporary.iterdir()) == []


def test_killed_up_takes_its_fleet_with_it_and_the_next_one_its_folder(
    temporary: Path, tmp_path: Path
) -> None:
    with fleet(temporary, tmp_path) as (up, where):
        below = descendants(up.pid)
        up.kill()
        up.wait(timeout=10)
        wait_until(lambda: are_gone(below), 60, "the end of what it started")
        (left,) = temporary.iterdir()
    said = cellblock("run", "-", stdin="1", CELLBLOCK_REDIS_URL=where["redis_url"]).stderr
    assert "that fleet has ended: unset CELLBLOCK_REDIS_URL" in said
    with fleet(temporary, tmp_path):
        assert not left.exists()


def test_monitor_beside_up_names_the_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = cellblock(
            "monitor",
            CELLBLOCK_REDIS_URL="redis://127.0.0.1:1/0",
            CELLBLOCK_MONITOR_PASSWORD="long enough",
            CELLBLOCK_MONITOR_PORT=str(port),
        )
    assert done.returncode == 4
    assert done.stderr.splitlines()[-1] == (
        f"cellblock: Flower cannot listen on 127.0.0.1:{port}: address already in use; set "
        "CELLBLOCK_MONITOR_PORT to a free port (0 takes one)"
    )
    assert "Traceback" not in done.stderr


def test_up_without_flower_names_its_extra_alone(tmp_path: Path) -> None:
    """Injected: flower is missing, as where the extra `worker` alone is installed."""
    (tmp_path / "flower.py").write_text("raise ModuleNotFoundError('no flower', name='flower')")
    done = cellblock("up", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (4, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("cellblock: this needs the package flower: pip install 'cellblock[monitor]'")


@pytest.mark.parametrize(
    ("command", "started"),
    [("worker", "worker_started"), ("launcher", "launcher_started"), ("archiver", "archiver_started")],
)
def test_closed_terminal_stops_a_service_in_good_order(
    temporary: Path, tmp_path: Path, redis_url: str, command: str, started: str
) -> None:
    variables = {
        **os.environ,
        **NAMESPACES,
        "TMPDIR": str(temporary),
        "CELLBLOCK_REDIS_URL": redis_url,
        "CELLBLOCK_ARCHIVE_URL": f"sqlite:///{tmp_path}/jobs.db",
        "CELLBLOCK_WORKER_CANARIES": "false",
    }
    if command == "launcher":
        variables["CELLBLOCK_LAUNCHER_SOCKET"] = str(temporary / "launcher.sock")
    log = tmp_path / "service.log"
    with (
        log.open("wb") as stderr,
        subprocess.Popen(
            [CELLBLOCK, command], stderr=stderr, env=variables, cwd="/", start_new_session=True
        ) as service,
    ):
        try:
            wait_until(lambda: started in log.read_text(), 60, log.read_text)
            os.killpg(service.pid, signal.SIGHUP)
            assert service.wait(timeout=60) == 0, log.read_text()
        finally:
            service.terminate()
    assert list(temporary.iterdir()) == []


def test_hangup_ends_a_worker_and_does_not_start_it_anew(
    temporary: Path, tmp_path: Path, redis_url: str
) -> None:
    log = tmp_path / "worker.log"
    with worker_process(tmp_path, redis_url, temporary / "launcher.sock") as worker:
        wait_until(lambda: log.exists() and "ready." in log.read_text(), 60, "the worker")
        worker.send_signal(signal.SIGHUP)
        assert worker.wait(timeout=60) == 0, log.read_text()
    assert log.read_text().count("worker_started") == 1
