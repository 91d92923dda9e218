"""The real parts tests are made of: started here, private to the run, stopped by pid."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from cellblock_workers.private_redis import port_of, reserve_port
from suite.measured import unmeasured
from suite.warm import CELLBLOCK as CELLBLOCK
from suite.warm import WarmPopen

REPOSITORY = Path(__file__).resolve().parent.parent
#: The quickest isolation, as variables.
NAMESPACES = {"CELLBLOCK_SANDBOX_ISOLATIONS": '["namespaces"]'}
#: A launcher, as arguments of the interpreter.
LAUNCHER = ("-m", "cellblock_workers.launcher.server")
#: A worker, likewise.
WORKER = ("-m", "cellblock_workers.worker.main")


def wait_until(
    condition: Callable[[], Any], timeout_s: float = 15.0, what: str | Callable[[], str] = "the condition"
) -> Any:
    """Poll until the condition is true; its value. Tests wait this way, they never sleep for luck."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what() if callable(what) else what} was not true within {timeout_s:g} s")
        time.sleep(0.02)


def descendants(pid: int) -> list[int]:
    """Every process below this one now."""
    found: list[int] = []
    with suppress(OSError):  # a thread or a process that ends this moment
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def command_line(pid: int | str) -> str:
    """The arguments of a process, joined by blanks; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


_RESERVED: list[socket.socket] = []


def free_port() -> int:
    """A loopback port that is nobody else's while this process lives, also between two lives of a server."""
    _RESERVED.append(reserve_port())
    return port_of(_RESERVED[-1])


class RedisServer:
    """A redis-server of the tests' own; can be killed and started again on the same port."""

    def __init__(self, folder: Path, *, fsync: str = "always", memory: str = "0") -> None:
        """``memory``: as redis.conf writes maxmemory; 0 is no bound."""
        self.folder = folder
        self.fsync = fsync
        self.memory = memory
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start and wait until it answers."""
        binary = shutil.which("redis-server")
        assert binary, "redis-server is missing; run the tests with: make test"
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        options += ["--maxmemory", self.memory, "--maxmemory-policy", "noeviction"]
        options += ["--save", "", "--appendonly", "yes", "--appendfsync", self.fsync, "--loglevel", "warning"]
        self.process = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL)
        wait_until(self._answers, what="redis-server answering")

    def stop(self) -> None:
        """Stop it and wait."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _answers(self) -> bool:
        with closing(Redis.from_url(self.url)) as redis:
            try:
                return bool(redis.ping())
            except RedisError:
                return False


def cellblock(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end. coverage.py does not measure the launcher that it may start."""
    variables, pipe = {**unmeasured(os.environ), **environment}, subprocess.PIPE
    command = [CELLBLOCK, *arguments]
    with WarmPopen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=variables) as process:
        try:
            said, complained = process.communicate(stdin.encode(), timeout=150)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, said.decode(), complained.decode())


@contextmanager
def launcher_process(
    folder: Path,
    *,
    program: Sequence[str] = LAUNCHER,
    **environment: str,
) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A launcher of one's own, or another program in its place: its socket and its process."""
    path = folder / "launcher.sock"
    log = folder / "launcher.log"
    defaults = {
        "CELLBLOCK_LAUNCHER_SOCKET": str(path),
        "CELLBLOCK_LAUNCHER_OWNER": f"test-{os.getpid()}-{folder.name}"[:60],
    }
    with log.open("ab") as stderr:
        process = WarmPopen(
            [sys.executable, *program],
            env={**os.environ, **defaults, **environment},
            stderr=stderr,
        )
    try:
        wait_until(lambda: path.is_socket() or process.poll() is not None, what="the launcher's socket")
        yield path, process
    finally:
        process.terminate()
        process.wait(timeout=60)


@contextmanager
def worker_process(
    folder: Path,
    redis_url: str,
    launcher: Path,
    *,
    program: Sequence[str] = WORKER,
    **environment: str,
) -> Iterator[subprocess.Popen[bytes]]:
    """A Celery worker process without canaries, unless asked for; its log is ``worker.log`` in the folder."""
    variables = {
        **os.environ,
        "CELLBLOCK_WORKER_CANARIES": "false",
        "CELLBLOCK_REDIS_URL": redis_url,
        "CELLBLOCK_LAUNCHER_SOCKET": str(launcher),
        **environment,
    }
    with (folder / "worker.log").open("ab") as stderr:
        process = WarmPopen(
            [sys.executable, *program],
            env=variables,
            stdout=stderr,
            stderr=stderr,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(timeout=60)
