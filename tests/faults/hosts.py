"""Several hosts on one machine: network namespaces joined by a bridge in a namespace of its own.

Everything is the test's: names carry its pid, addresses are private, and no interface appears on the host.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from parts import NAMESPACES, command_line, descendants, wait_until

REDIS_PORT = 6379
REDIS_ADDRESS = "10.214.0.1"


def ip(*words: str) -> None:
    """Run ip(8)."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Network:
    """A switch and what hangs on it."""

    def __init__(self) -> None:
        self._prefix = f"cb{os.getpid()}"
        self._switch = f"{self._prefix}-switch"
        self._names: list[str] = []

    def open(self) -> None:
        """Make the switch."""
        ip("netns", "add", self._switch)
        self._names.append(self._switch)
        ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self._switch, "link", "set", "bridge", "up")

    def join(self, name: str, address: str) -> str:
        """A new host on the switch; its namespace."""
        namespace = f"{self._prefix}-{name}"
        ip("netns", "add", namespace)
        self._names.append(namespace)
        switch = ("-n", self._switch, "link")
        ip(*switch, "add", name, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        ip(*switch, "set", name, "master", "bridge", "up")
        ip("-n", namespace, "addr", "add", f"{address}/24", "dev", "eth0")
        ip("-n", namespace, "link", "set", "eth0", "up")
        ip("-n", namespace, "link", "set", "lo", "up")
        return namespace

    def cut(self, name: str) -> None:
        """Nothing passes between this host and the others any more; neither side is told."""
        ip("-n", self._switch, "link", "set", name, "down")

    def heal(self, name: str) -> None:
        """It passes again."""
        ip("-n", self._switch, "link", "set", name, "up")

    def close(self) -> None:
        """Remove everything that was made."""
        for name in reversed(self._names):
            with suppress(subprocess.CalledProcessError):
                ip("netns", "delete", name)


def inside(namespace: str, host: str, *command: str) -> list[str]:
    """The command on that host: its network, its name. (`ip netns exec` would hide /sys/fs/cgroup.)"""
    named = f'hostname {host}; exec "$@"'
    entered = ["nsenter", f"--net=/run/netns/{namespace}", "unshare", "--uts"]
    return [*entered, "sh", "-c", named, "sh", *command]


class RedisHost:
    """The store's host. Its server keeps what it acknowledged, whatever is done to it."""

    def __init__(self, network: Network, folder: Path) -> None:
        self.folder = folder / "redis"
        self.folder.mkdir()
        self._namespace = network.join("redis", REDIS_ADDRESS)
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"redis://{REDIS_ADDRESS}:{REDIS_PORT}/0"

    def start(self) -> None:
        """Start it, and wait until it has read what it kept."""
        binary = shutil.which("redis-server")
        assert binary
        options = ["--bind", REDIS_ADDRESS, "--port", str(REDIS_PORT), "--protected-mode", "no"]
        options += ["--dir", str(self.folder), "--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        with (self.folder / "log").open("ab") as log:
            command = inside(self._namespace, "redis", binary, *options)
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(self.answers, 30, "Redis answering")

    def kill(self) -> None:
        """As a power cut does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def answers(self) -> bool:
        """Whether it serves."""
        with closing(Redis.from_url(self.url, socket_connect_timeout=1, socket_timeout=1)) as redis:
            try:
                return bool(redis.ping())
            except RedisError:
                return False


class WorkerHost:
    """A host with a supervisor, a launcher and a worker, as `cellblock worker` starts them."""

    def __init__(self, network: Network, folder: Path, number: int, url: str, **settings: str) -> None:
        self.name = f"h{number}"
        self.folder = folder / self.name
        self.folder.mkdir(mode=0o755)
        self.network = network
        self._namespace = network.join(self.name, f"10.214.0.{10 + number}")
        #: A file for each of its sandboxes, there before the sandbox is.
        self.records = self.folder / "state" / "namespaces" / "records"
        self.records.mkdir(mode=0o700, parents=True)
        self._settings = {
            "CELLBLOCK_REDIS_URL": url,
            **NAMESPACES,
            "CELLBLOCK_WORKER_CANARIES": "false",
            "CELLBLOCK_WORKER_CONCURRENCY": "4",
            "CELLBLOCK_LAUNCHER_OWNER": f"{namespace_safe(folder.name)}-{self.name}",
            "CELLBLOCK_LAUNCHER_STATE": str(self.folder / "state"),
            **settings,
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; returns at once."""
        command = inside(
            self._namespace, self.name, str(Path(sys.executable).with_name("cellblock")), "worker"
        )
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, env={**os.environ, **self._settings}, stdout=log, stderr=log, start_new_session=True
            )

    def alive(self) -> bool:
        """Whether its supervisor runs."""
        return self.process is not None and self.process.poll() is None

    def pids(self, what: str) -> list[int]:
        """The ids of its processes whose command line names this."""
        assert self.process is not None
        return [pid for pid in descendants(self.process.pid) if what in command_line(pid)]

    def power_off(self) -> None:
        """Every process of it at once, unasked."""
        assert self.process is not None
        for pid in [self.process.pid, *descendants(self.process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """In good order; the exit code."""
        if self.process is None or self.process.poll() is not None:
            return 0
        self.process.terminate()
        try:
            return self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.power_off()
            raise


def swept(host: WorkerHost) -> bool:
    """Whether a launcher is there, and has removed what earlier ones of this host have left."""
    running = host.pids("launcher.server")
    if not running:
        return False
    for record in host.records.glob("*.json"):
        with suppress(FileNotFoundError):  # its sandbox is gone this moment
            maker = json.loads(record.read_text())["labels"]["cellblock.process"]
            if int(maker.split("/")[1]) not in running:
                return False
    return True


def remains(host: WorkerHost) -> list[str]:
    """Processes that were started for this host, and records of its sandboxes."""
    return [
        *(f"process {pid}: {command_line(pid)}" for pid in _processes_naming(str(host.folder))),
        *(str(record) for record in (host.folder / "state").rglob("records/*.json")),
    ]


def cgroups_of(sandboxes: Iterable[str]) -> list[str]:
    """The cgroups of these sandboxes: one that is gone holds no process either."""
    roots = [*Path("/sys/fs/cgroup").glob("*/cellblock"), Path("/sys/fs/cgroup/cellblock")]
    return [str(root / name) for root in roots for name in sandboxes if (root / name).is_dir()]


def _processes_naming(text: str) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended this moment
            said = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
            if text.encode() in said and int(folder.name) != os.getpid():
                yield int(folder.name)


def namespace_safe(name: str) -> str:
    """A name as a setting may be."""
    return "".join(letter if letter.isalnum() else "-" for letter in name)[:40].strip("-") or "test"


@contextmanager
def hosts(
    folder: Path, count: int, **settings: str
) -> Iterator[tuple[Network, RedisHost, Sequence[WorkerHost]]]:
    """A network with a store and worker hosts, started and ready; everything is removed at the end.

    The caller is moved into a host of its own on it: see :func:`visit`.
    """
    network = Network()
    network.open()
    # Its name is short: sockets lie in it. A host without power removes nothing itself.
    scratch = tempfile.TemporaryDirectory(prefix="hosts-")
    Path(scratch.name).chmod(0o755)
    settings = {"TMPDIR": scratch.name, **settings}
    started: list[WorkerHost] = []
    store: RedisHost | None = None
    try:
        with visit(network.join("client", "10.214.0.2")):
            store = RedisHost(network, folder)
            store.start()
            for number in range(count):
                started.append(WorkerHost(network, folder, number, store.url, **settings))
                started[-1].start()
            yield network, store, started
    finally:
        for host in started:
            if host.alive():
                host.power_off()
        if store is not None:
            with suppress(ProcessLookupError, AssertionError):
                store.kill()
        network.close()
        scratch.cleanup()


@contextmanager
def visit(namespace: str) -> Iterator[None]:
    """This thread, and threads it starts meanwhile, are on that host's network."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(path: str) -> None:
        with Path(path).open("rb") as file:
            if libc.setns(file.fileno(), 0x40000000) != 0:  # CLONE_NEWNET
                raise OSError(ctypes.get_errno(), f"setns {path}")

    with Path("/proc/self/ns/net").open("rb") as home:
        enter(f"/run/netns/{namespace}")
        try:
            yield
        finally:
            if libc.setns(home.fileno(), 0x40000000) != 0:
                raise OSError(ctypes.get_errno(), "setns back")
