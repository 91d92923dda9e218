"""Ctrl-C at a terminal, at any moment of a command: 130, one line at most, and nothing left."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from cellblock import Client
from parts import CELLBLOCK, NAMESPACES, RedisServer, descendants, wait_until

#: Through all that a run does before its program waits: 0.7 s on an idle host.
MOMENTS_S = [round(0.08 * step, 2) for step in range(13)]


def catches(pid: int, number: signal.Signals, kind: str = "SigCgt") -> bool:
    """Whether a process has a handler of its own for this signal; of the kind ``SigIgn``: ignores it."""
    found = re.search(rf"^{kind}:\s+(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) & 1 << (number - 1))


@pytest.fixture
def folder() -> Iterator[Path]:
    """For the temporary files of a run; a socket's path must be short."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as made:
        yield Path(made)


@pytest.mark.parametrize("after_s", MOMENTS_S)
def test_ctrl_c_ends_a_run_at_any_moment(after_s: float, folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "waits.py"
    program.write_text("import time; time.sleep(60)")
    process = subprocess.Popen(
        [CELLBLOCK, "run", program],
        stderr=subprocess.PIPE,
        start_new_session=True,  # so that its group is that of a terminal
        env={**os.environ, **NAMESPACES, "TMPDIR": str(folder)},
    )
    assert process.stderr is not None
    with process.stderr:
        # Before that the interpreter itself starts, and Ctrl-C is Python's.
        wait_until(lambda: catches(process.pid, signal.SIGTERM), 20, "the command's first line")
        time.sleep(after_s)
        below = descendants(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(timeout=30)
        printed = process.stderr.read().decode()
    assert code == 130, printed
    assert printed in {"", "cellblock: cancelled; the sandbox is gone\n"}
    assert list(folder.iterdir()) == []
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), 20, "the end of the others")


class SlowAnswers:
    """Injected: a way to Redis on which one answer is held up: that to the first message with ``mark``.

    ``asked`` is set while that answer is held up: the server has done what it was told by then.
    """

    def __init__(self, server: RedisServer, mark: bytes, held_s: float = 0.7) -> None:
        self._to, self._mark, self._held_s = server.port, mark, held_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self.asked = threading.Event()
        self._open = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._to))
            self._open += [client, server]
            threading.Thread(target=self._forward, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._forward, args=(server, client, False), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, asks: bool) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 20):
                if asks and self._mark in piece and not self.asked.is_set():
                    target.sendall(piece)
                    time.sleep(0.1)  # the server does it
                    self.asked.set()
                    continue
                if not asks and self.asked.is_set():
                    time.sleep(self._held_s)
                    self._held_s = 0
                target.sendall(piece)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for opened in self._open:
            opened.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("mark", ["print(6*7)", "cellblock.run", "SUBSCRIBE", "nothing"])
def test_run_on_a_fleet_that_is_stopped_leaves_no_job_going(
    own_redis: RedisServer, tmp_path: Path, mark: str, number: signal.Signals
) -> None:
    """Stopped while the answer to the admission is on its way, that to the wake-up, and later."""
    program = tmp_path / "program.py"
    program.write_text("print(6*7)")
    with (
        closing(SlowAnswers(own_redis, mark.encode())) as slow,
        Client(own_redis.url) as client,
        subprocess.Popen(
            [CELLBLOCK, "run", program],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "CELLBLOCK_REDIS_URL": slow.url},
        ) as process,
    ):
        wait_until(slow.asked.is_set if mark != "nothing" else client.events, 20, "the job being submitted")
        process.send_signal(number)
        _, printed = process.communicate(timeout=30)
        (job_id,) = {event.job_id for event in client.events()}
        assert printed == f"cellblock: cancelled {job_id}\n"
        assert client.status(job_id).state == "cancelled"
    assert process.returncode == 128 + number


def test_run_that_cannot_cancel_its_job_says_that_it_goes_on(own_redis: RedisServer, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("print(6*7)")
    with subprocess.Popen(
        [CELLBLOCK, "run", program],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "CELLBLOCK_REDIS_URL": own_redis.url},
    ) as process:
        with Client(own_redis.url) as client:
            wait_until(client.events, 20, "the job being submitted")
            job_id = client.events()[0].job_id
        own_redis.stop()
        process.send_signal(signal.SIGINT)
        _, printed = process.communicate(timeout=30)
    assert process.returncode == 130, printed
    last = printed.splitlines()[-1]  # before it might come that the wake-up was not sent
    assert last.startswith(f"cellblock: job {job_id} goes on (Redis cannot be reached")
    assert last.endswith(f"): cellblock cancel {job_id}")


@pytest.mark.parametrize("command", ["status", "events", "usage"])
@pytest.mark.parametrize("after_s", [0.0, 0.04, 0.09, 0.2])
def test_ctrl_c_while_a_command_is_imported_is_not_lost(command: str, after_s: float) -> None:
    """The import system drops what its callbacks raise: then the command would go on, here without end."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        with subprocess.Popen(
            [CELLBLOCK, command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "CELLBLOCK_REDIS_URL": url},
        ) as process:
            wait_until(lambda: catches(process.pid, signal.SIGTERM), 20, "the command's first line")
            time.sleep(after_s)
            process.send_signal(signal.SIGINT)
            _, printed = process.communicate(timeout=60)
    assert (process.returncode, printed) == (130, "")


def test_ctrl_c_after_the_result_is_shown_changes_neither_the_exit_code_nor_what_is_taken_down(
    folder: Path, tmp_path: Path
) -> None:
    program = tmp_path / "fails.py"
    program.write_text("print(6*7); raise SystemExit(3)")
    with subprocess.Popen(
        [CELLBLOCK, "run", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **NAMESPACES, "TMPDIR": str(folder)},
    ) as process:
        assert process.stdout is not None
        shown = process.stdout.readline()
        below = descendants(process.pid)
        wait_until(lambda: catches(process.pid, signal.SIGINT, "SigIgn") or process.poll() is not None, 20)
        assert process.returncode is None, (shown, process.stderr and process.stderr.read())
        os.killpg(process.pid, signal.SIGINT)
        _, printed = process.communicate(timeout=30)
    assert shown == "42\n"
    assert process.wait() == 1
    assert printed.startswith("cellblock: exit: ")
    assert len(printed.splitlines()) == 1
    assert list(folder.iterdir()) == []
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), 20, "the end of the others")
