"""The other end of a launcher's socket, held by hand; and Docker's own word on what the launcher made."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import docker

from parts import wait_until
from sandbox.harness import MIB

PROFILE: dict[str, Any] = {
    "level": "standard",
    "image": "python",
    "memory_bytes": 512 * MIB,
    "cpus": 1.0,
    "pids": 50,
}
ACQUIRE: dict[str, Any] = {"op": "acquire", "job_id": "job-1", "fence": 1, **PROFILE}


class Peer:
    """One connection; says whatever it is told to say."""

    def __init__(self, path: Path, timeout_s: float = 30) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(timeout_s)
        try:
            self.socket.connect(str(path))
        except OSError:
            self.socket.close()
            raise
        self.streams: list[socket.socket] = []

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self.socket.close()
        for stream in self.streams:
            stream.close()

    def say(self, packet: bytes, descriptors: list[int] | None = None) -> dict[str, Any]:
        """Send one packet; the reply, empty when the launcher has hung up."""
        socket.send_fds(self.socket, [packet], descriptors or [])
        reply, passed, _, _ = socket.recv_fds(self.socket, 65_536, 1)
        self.streams += [socket.socket(fileno=fd) for fd in passed]
        return dict(json.loads(reply)) if reply else {}

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send one request as JSON."""
        return self.say(json.dumps(request).encode())

    def acquire(self, **changes: Any) -> dict[str, Any]:
        """Ask for a sandbox."""
        return self.ask(**{**ACQUIRE, **changes})

    def counts(self) -> dict[str, int]:
        """What the launcher says it holds."""
        return dict(self.ask(op="probe")["counts"])

    def guest_waits(self, which: int = -1) -> bool:
        """Whether the guest at the other end of a lent stream is alive and has announced itself."""
        ready, _, _ = select.select([self.streams[which]], [], [], 5)
        return bool(ready) and self.streams[which].recv(13, socket.MSG_PEEK)[8:9] == b"R"


class Containers:
    """The containers of one owner, asked of the daemon."""

    def __init__(self, api: docker.APIClient, owner: str) -> None:
        self._api = api
        self._owner = owner

    def all(self) -> dict[str, str]:
        """Name and state of each sandbox, probes left out."""
        found = self._api.containers(all=True, filters={"label": f"cellblock.owner={self._owner}"})
        named = {str(one["Names"][0]).strip("/"): str(one["State"]) for one in found if one["Names"]}
        return {name: state for name, state in named.items() if not name.startswith("cellblock-probe")}

    def names(self) -> set[str]:
        """The names alone."""
        return set(self.all())


@contextmanager
def docker_api() -> Iterator[docker.APIClient]:
    """A client of the daemon's, closed afterwards."""
    api = docker.APIClient(base_url="unix:///var/run/docker.sock", version="auto", timeout=60)
    api.trust_env = False  # requests would read variables in one thread while pytest sets one in another
    try:
        yield api
    finally:
        api.close()


def descriptors(pid: int) -> int:
    """How many descriptors a process holds."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def until_ready(path: Path) -> None:
    """Until a launcher listens, its first probe is through and its pool is quiet."""
    wait_until(lambda: _listens(path), what="the launcher listening")
    with Peer(path) as peer:
        wait_until(lambda: peer.ask(op="probe").get("isolations"), 60, "an isolation passing its probe")
        wait_until(lambda: peer.counts()["starting"] == 0, 30, "the pool being quiet")


def _listens(path: Path) -> bool:
    try:
        Peer(path).close()
    except OSError:
        return False
    return True
