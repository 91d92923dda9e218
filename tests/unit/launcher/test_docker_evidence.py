"""What ended a sandbox of Docker's, whose cgroup is gone by the time anybody asks."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from cellblock_workers.launcher.backend import Profile
from cellblock_workers.launcher.docker import sandbox as docker_sandbox
from cellblock_workers.launcher.docker.sandbox import DockerSandbox

PROFILE = Profile(level="standard", image="python", memory_bytes=64 << 20, cpus=1.0, pids=20)


class Daemon:
    """Injected in place of the daemon: says how a container ended."""

    def __init__(self, exit_code: int) -> None:
        self._exit_code = exit_code

    def inspect(self, container: str) -> dict[str, Any]:
        return {"Running": False, "ExitCode": self._exit_code, "OOMKilled": False}

    def discard(self, sandbox_id: str, container: str) -> None:
        """It is gone already."""


@pytest.fixture
def stream() -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours


@pytest.mark.parametrize(
    ("isolation", "exit_code", "more_kills", "told"),
    [
        ("gvisor", 137, 1, True),
        ("gvisor", 2, 1, True),  # the sentry panics when the kernel has killed what it cannot do without
        ("gvisor", 2, 0, False),
        ("gvisor", 137, 0, False),
        ("gvisor", 1, 1, False),
        ("runc", 137, 1, True),
        ("runc", 2, 1, False),  # a guest that ends so is no word of the kernel's
    ],
)
def test_a_sudden_end_is_of_memory_where_the_kernel_killed_for_it_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
    stream: socket.socket,
    isolation: str,
    exit_code: int,
    more_kills: int,
    told: bool,
) -> None:
    kills = [7]
    monkeypatch.setattr(docker_sandbox, "host_oom_kills", lambda: kills[0])
    sandbox = DockerSandbox(
        id="id",
        profile=PROFILE,
        isolation=isolation,
        backend="docker",
        stream=stream,
        daemon=Daemon(exit_code),
        container="gone",
        starts_fast=False,
    )
    sandbox.hand_over()
    kills[0] += more_kills
    evidence = sandbox.evidence(ended=True)
    assert bool(evidence.oom_kills) is told
    assert evidence.exit_code == exit_code
