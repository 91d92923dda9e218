"""The launcher's socket: who may speak, what may be asked, and whose sandbox is whose."""

from __future__ import annotations

import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cellblock_workers.launcher.protocol import REQUEST, Acquire
from cellblock_workers.launcher.streams import refuse_descriptors
from parts import launcher_process, wait_until
from sandbox.harness import MIB
from sandbox.peer import ACQUIRE, Containers, Peer, descriptors, docker_api, until_ready

pytestmark = [pytest.mark.docker, pytest.mark.way("runc-docker")]


NOTHING_WARM = {"CELLBLOCK_LAUNCHER_WARM": "0"}


@dataclass(frozen=True)
class Running:
    """One launcher under test."""

    path: Path
    pid: int
    folder: Path
    containers: Containers

    def log(self) -> str:
        return (self.folder / "launcher.log").read_text()


@pytest.fixture(scope="module")
def launcher() -> Iterator[Running]:
    """A launcher that also lets uid 12345 speak; its folder is one that any uid can enter."""
    folder = Path(tempfile.mkdtemp(prefix="cellblock-test-", dir="/tmp"))
    folder.chmod(0o755)
    environment = {
        "CELLBLOCK_SANDBOX_ISOLATIONS": '["runc"]',
        "CELLBLOCK_LAUNCHER_BACKENDS": '["docker"]',
        "CELLBLOCK_LAUNCHER_OWNER": folder.name,
        "CELLBLOCK_LAUNCHER_WARM": "0",
        "CELLBLOCK_LAUNCHER_ALLOWED_UIDS": "[12345]",
    }
    with launcher_process(folder, **environment) as (path, process), docker_api() as api:
        until_ready(path)
        yield Running(path, process.pid, folder, Containers(api, folder.name))
    assert not Containers(api, folder.name).names()
    shutil.rmtree(folder)


_CONNECT_AS = """
import os, socket, sys
os.setgroups([]); os.setresgid(*[int(sys.argv[1])] * 3); os.setresuid(*[int(sys.argv[1])] * 3)
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
    s.connect(sys.argv[2])
    try:
        s.send(b'{"op":"probe"}')
        print(s.recv(4096).decode())
    except (BrokenPipeError, ConnectionResetError):
        print()
"""


def _says_as(uid: int, path: Path) -> str:
    command = [sys.executable, "-c", _CONNECT_AS, str(uid), str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()


def test_another_uid_is_hung_up_on_and_logged_and_an_allowed_one_is_answered(launcher: Running) -> None:
    assert _says_as(65534, launcher.path) == ""
    refused = [json.loads(line) for line in launcher.log().splitlines() if "peer_refused" in line]
    assert refused[-1]["uid"] == 65534
    assert refused[-1]["level"] == "warning"
    assert json.loads(_says_as(12345, launcher.path))["ok"] is True


DENIED: list[tuple[dict[str, Any], str]] = [
    ({"image": "no-such-image"}, "no-such-image"),
    ({"image": "cellblock/python:latest"}, "is not one of"),
    ({"image": "../python"}, "is not one of"),
    ({"memory_bytes": 64 * MIB - 1}, "memory_bytes"),
    ({"memory_bytes": 2048 * MIB + 1}, "memory_bytes"),
    ({"memory_bytes": 0}, "memory_bytes"),
    ({"memory_bytes": -1}, "memory_bytes"),
    ({"cpus": 1.01}, "cpus"),
    ({"cpus": 0.0}, "cpus"),
    ({"cpus": -1.0}, "cpus"),
    ({"pids": 0}, "pids"),
    ({"pids": 257}, "pids"),
    ({"pids": -1}, "pids"),
]


@pytest.mark.parametrize(("changes", "named"), DENIED)
def test_a_request_outside_the_settings_is_denied_by_name_and_logged(
    launcher: Running, changes: dict[str, Any], named: str
) -> None:
    with Peer(launcher.path) as peer:
        reply = peer.acquire(**changes)
        assert (reply["ok"], reply["error"]) == (False, "denied")
        assert named in reply["message"]
        assert peer.streams == []
        assert peer.counts() == {"idle": 0, "starting": 0, "in_use": 0}
    assert "request_denied" in launcher.log().splitlines()[-1]


@pytest.mark.parametrize(
    "path", ["/etc/shadow", "/", "/proc/self/environ", "/var/run/docker.sock", "/a" * 2000]
)
def test_a_context_the_settings_do_not_name_is_refused_and_logged_without_its_path(
    launcher: Running, path: str
) -> None:
    with Peer(launcher.path) as peer:
        reply = peer.acquire(context=path)
        assert (reply["ok"], reply["error"]) == (False, "context")
        assert "CELLBLOCK_LAUNCHER_CONTEXT_ROOTS" in reply["message"]
        assert peer.streams == []
        assert peer.counts() == {"idle": 0, "starting": 0, "in_use": 0}
    said = launcher.log().splitlines()[-1]
    assert "request_denied" in said
    assert path not in said or path == "/"


VALID = json.dumps(ACQUIRE).encode()
INVALID = [
    b"not json",
    b"\0",
    b"{}",
    b"[]",
    b"null",
    b'{"op":"start"}',
    b'{"op":null}',
    b'{"op":"probe","extra":1}',
    b'{"op":"kill"}',
    VALID[:-1] + b',"context":"relative"}',
    VALID[:-1] + b',"context":"/a\\u0000b"}',
    VALID[:-1] + b',"context":["/a"]}',
    b'{"op":"kill","sandbox":' + b'"' + b"x" * 65 + b'"}',
    b'{"op":"report","sandbox":["a"]}',
    VALID[:-1],
    VALID + b"}",
    VALID.replace(b'"job-1"', b'"../etc"'),
    VALID.replace(b'"job-1"', b'"' + b"a" * 65 + b'"'),
    VALID.replace(b'"fence": 1', b'"fence": -1'),
    VALID.replace(b'"cpus": 1.0', b'"cpus": NaN'),
    VALID.replace(b'"cpus": 1.0', b'"cpus": 1e999'),
    VALID.replace(b'"pids": 50', b'"pids": 50, "privileged": true'),
    VALID.replace(b'"pids": 50', b'"pids": 50, "volumes": ["/:/host"]'),
    b"[" * 10_000,
    b"x" * 100_000,
    b'{"op":"probe"}' + b" " * 20_000,
]


@pytest.mark.parametrize("packet", INVALID, ids=range(len(INVALID)))
def test_what_is_not_a_request_is_answered_as_such(launcher: Running, packet: bytes) -> None:
    with Peer(launcher.path) as peer:
        assert peer.say(packet)["error"] == "invalid"
        assert peer.counts()["in_use"] == 0


def test_an_empty_packet_ends_the_conversation_and_only_that(launcher: Running) -> None:
    with Peer(launcher.path) as peer, Peer(launcher.path) as other:
        assert peer.say(b"") == {}
        assert other.counts()["in_use"] == 0


def test_descriptors_do_not_reach_a_launcher_whose_kernel_can_refuse_them(launcher: Running) -> None:
    ours, theirs = socket.socketpair()
    can_refuse = refuse_descriptors(ours)
    ours.close()
    theirs.close()
    expected = pytest.raises(PermissionError) if can_refuse else nullcontext()
    with Peer(launcher.path) as peer, Path("/dev/null").open("rb") as null, expected:
        peer.say(b'{"op":"probe"}', [null.fileno()])


def test_descriptors_nobody_asked_for_are_closed_where_the_kernel_passes_them_on(tmp_path: Path) -> None:
    older_kernel = (
        "from cellblock_workers.launcher import listener, server; "
        "listener.refuse_descriptors = lambda receiver: False; "
        "server.main()"
    )
    with (
        launcher_process(tmp_path, program=("-c", older_kernel), **NOTHING_WARM) as (path, process),
        Peer(path) as peer,
        Path("/dev/null").open("rb") as null,
    ):
        peer.counts()
        before = descriptors(process.pid)
        for count in (1, 2, 16, 253):
            for _ in range(20):
                assert "counts" in peer.say(b'{"op":"probe"}', [null.fileno()] * count)
                assert peer.say(b"nonsense", [null.fileno()] * count)["error"] == "invalid"
        # The launcher's own timers and probes open and close a few; 5,440 were sent.
        wait_until(lambda: descriptors(process.pid) < before + 100, 10, "about as few descriptors as before")


def _mutated(chance: random.Random) -> bytes:
    seeds = [
        VALID,
        b'{"op":"probe"}',
        b'{"op":"kill","sandbox":"ab"}',
        b'{"op":"report","sandbox":"ab","ended":true}',
    ]
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(len(data)) if data else 0
        act = chance.randrange(5)
        if act == 0:
            data[place : place + 1] = bytes([chance.randrange(256)])
        elif act == 1:
            del data[place : place + chance.randint(1, 20)]
        elif act == 2:
            data[place:place] = chance.choice(
                [b"{", b"}", b'"', b",", b"\\u0000", b"9" * 40, b"null", b"-", b"\xff"]
            )
        elif act == 3:
            data += data[:place]
        else:
            data = bytearray(chance.randbytes(chance.randint(1, 300)))
    return bytes(data) or b"x"


def _would_start_a_sandbox(packet: bytes) -> bool:
    try:
        request = REQUEST.validate_json(packet)
    except ValidationError:
        return False
    return isinstance(request, Acquire) and request.image == "python"


def test_ten_thousand_mutated_requests_change_nothing_and_break_nothing(launcher: Running) -> None:
    chance = random.Random(20_240_601)
    packets = [
        packet for packet in (_mutated(chance) for _ in range(15_000)) if not _would_start_a_sandbox(packet)
    ][:10_000]
    assert len(packets) == 10_000
    with Peer(launcher.path) as peer:
        before, open_before = peer.counts(), descriptors(launcher.pid)
        for packet in packets:
            reply = peer.say(packet)
            assert reply.get("error") in {"invalid", "denied", None}, packet
            assert "sandbox" not in reply, packet
        assert peer.counts() == before == {"idle": 0, "starting": 0, "in_use": 0}
        assert descriptors(launcher.pid) <= open_before
    assert "Traceback" not in launcher.log()


def test_a_sandbox_belongs_to_its_connection_alone(launcher: Running) -> None:
    with Peer(launcher.path) as owner, Peer(launcher.path) as thief:
        sandbox = owner.acquire()["sandbox"]
        for request in ({"op": "kill"}, {"op": "report"}, {"op": "report", "ended": True}):
            reply = thief.ask(**request, sandbox=sandbox)
            assert (reply["ok"], reply["error"]) == (False, "denied")
        assert owner.ask(op="report", sandbox=sandbox)["evidence"]["running"] is True
        assert owner.guest_waits()
        assert owner.ask(op="kill", sandbox=sandbox)["ok"] is True
        assert owner.ask(op="kill", sandbox=sandbox)["error"] == "denied"


def test_a_connection_that_closes_takes_its_sandbox_with_it(launcher: Running) -> None:
    with Peer(launcher.path) as other:
        kept = other.acquire()["sandbox"]
        with Peer(launcher.path) as peer:
            lost = peer.acquire()["sandbox"]
            assert {f"cellblock-{kept}", f"cellblock-{lost}"} <= launcher.containers.names()
        wait_until(
            lambda: f"cellblock-{lost}" not in launcher.containers.names(), what="the sandbox being gone"
        )
        assert f"cellblock-{kept}" in launcher.containers.names()
        assert other.guest_waits()
    wait_until(lambda: not launcher.containers.names(), what="the other one being gone")
