"""Every group of attacks is able to fail: with one control taken away, one of its attacks gets out.

The containers here are made with the daemon directly, with no network, from the same image. All controls
of a runc sandbox are on but the one named; with that one on as well the same attack is held.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import docker
import pytest

from attacks.conftest import TracesOf
from attacks.table import ATTACKS
from cellblock_workers.worker.frames import FrameReader
from sandbox.harness import MIB
from sandbox.peer import docker_api

pytestmark = [pytest.mark.docker, pytest.mark.way("runc-docker"), pytest.mark.no_rerun]

SECCOMP = (resources.files("cellblock_config") / "data" / "seccomp-strict.json").read_text()

#: A guardian that is PID 1 and runs the attack in a child, under the uid given to it.
GUARDED = """
import os, sys
child = os.fork()
if child == 0:
    if sys.argv[1] != 'same': os.setresuid(65534, 65534, 65534)
    exec(compile(sys.argv[2], 'attack', 'exec'), {'__name__': '__main__'})
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
"""
#: Somebody else's listener in the attacker's own network: what a shared loopback would look like.
LISTENING = """
import socket, sys
listener = socket.create_server(('127.0.0.1', 6379))
exec(compile(sys.argv[1], 'attack', 'exec'), {'__name__': '__main__'})
"""
#: One sandbox for two jobs, one after the other.
TWICE = """
import os, sys
for code in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        exec(compile(code, 'job', 'exec'), {'__name__': '__main__'})
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
"""
BEFORE = {attack.name: attack.before for attack in ATTACKS}


@dataclass(frozen=True)
class Removal:
    """One attack, and the sandbox with and without the control that holds it."""

    attack: str
    command: list[str] = field(default_factory=list)
    without: dict[str, Any] = field(default_factory=dict)
    command_without: list[str] = field(default_factory=list)


REMOVALS = {
    "exhaustion: no limit on processes": Removal(
        "more processes than the limit", without={"pids_limit": 200}
    ),
    "files: a root that can be written": Removal(
        "writing outside of tmp", without={"read_only": False, "user": "0:0"}
    ),
    "kernel: no seccomp profile": Removal(
        "the doors a strict filter shuts",
        without={"security_opt": ["no-new-privileges", "seccomp=unconfined"]},
    ),
    "lifetime: a guardian of the job's own uid": Removal(
        "the guardian's memory, stream and life",
        command=["-c", GUARDED, "other"],
        command_without=["-c", GUARDED, "same"],
        without={"user": "65534:65534"},
    ),
    "leakage: a sandbox that is used twice": Removal(
        "files left by the job before",
        command_without=["-c", TWICE, BEFORE["files left by the job before"]],
    ),
    "network: a loopback shared with somebody": Removal(
        "a listener on the loopback of the host", command_without=["-c", LISTENING]
    ),
}


@pytest.fixture(scope="module")
def api() -> Iterator[docker.APIClient]:
    with docker_api() as client:
        yield client


def said(api: docker.APIClient, command: list[str], *, user: str = "65534:65534", **controls: Any) -> bytes:
    """What a container with these controls prints."""
    settings = {
        "network_mode": "none",
        "ipc_mode": "none",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges", f"seccomp={SECCOMP}"],
        "read_only": True,
        "tmpfs": {"/tmp": "rw,nosuid,nodev,noexec,size=64m"},
        "mem_limit": "512m",
        "memswap_limit": "512m",
        "pids_limit": 50,
        **controls,
    }
    container = api.create_container(
        "cellblock/python:latest",
        ["python3", "-I", *command],
        user=user,
        host_config=api.create_host_config(**settings),
    )
    try:
        api.start(container)
        api.wait(container, timeout=30)
        return bytes(api.logs(container))
    finally:
        api.remove_container(container, force=True)


def code_of(name: str) -> str:
    return next(attack.code for attack in ATTACKS if attack.name == name)


@pytest.mark.parametrize("name", REMOVALS)
def test_an_attack_gets_out_only_where_its_control_is_missing(api: docker.APIClient, name: str) -> None:
    removal = REMOVALS[name]
    code = code_of(removal.attack)
    guarded = bool(removal.command)
    user, caps = ("0:0", ["SETUID", "SETGID"]) if guarded else ("65534:65534", [])
    held = said(api, [*(removal.command or ["-c"]), code], user=user, cap_add=caps).decode()
    assert "HELD" in held
    assert "ESCAPED" not in held
    out = said(api, [*(removal.command_without or ["-c"]), code], **removal.without).decode()
    assert "ESCAPED" in out


def test_forged_frames_are_believed_where_a_job_shares_the_guardians_stdout(api: docker.APIClient) -> None:
    """The control is the pipe between a job's stdout and the frames; here the job's stdout is the stream."""
    printed = said(api, ["-c", code_of("frames on stdout")])
    kinds = [kind for kind, _ in FrameReader("raw").feed(printed)]
    assert kinds[:3] == [b"R", b"T", b"X"]


def test_a_flood_gets_out_whole_where_its_limit_is_too_far_away(traces: TracesOf) -> None:
    host = traces("runc-docker").host
    code = code_of("a flood that hides its last word")
    assert "ESCAPED" in host.run(code, limits={"output_bytes": 64 * MIB}).stdout
    assert "ESCAPED" not in host.run(code, limits={"output_bytes": MIB}).stdout
