"""Warm pools stay within their bounds, sandboxes are used once, and nothing outlives its launcher."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest

from cellblock_workers.launcher.ownership import Ownership
from parts import launcher_process, wait_until
from sandbox.peer import Containers, Peer, docker_api, until_ready

pytestmark = [pytest.mark.docker, pytest.mark.way("runc-docker")]


@contextmanager
def launcher_with(
    folder: Path, owner: str, **variables: str
) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A runc launcher of this owner's, past its first probe, small on purpose."""
    environment = {
        "CELLBLOCK_SANDBOX_ISOLATIONS": '["runc"]',
        "CELLBLOCK_LAUNCHER_BACKENDS": '["docker"]',
        "CELLBLOCK_LAUNCHER_OWNER": owner,
        "CELLBLOCK_LAUNCHER_WARM": "1",
        "CELLBLOCK_LAUNCHER_WARM_TOTAL": "2",
        **{f"CELLBLOCK_{name}": value for name, value in variables.items()},
    }
    with launcher_process(folder, **environment) as (path, process):
        until_ready(path)
        yield path, process


@pytest.fixture
def api() -> Iterator[docker.APIClient]:
    with docker_api() as client:
        yield client


@pytest.fixture
def owner() -> str:
    return f"test-{os.getpid()}-{secrets.token_hex(4)}"


def test_a_sandbox_is_handed_out_once_and_warm_ones_within_their_bound(
    tmp_path: Path, owner: str, api: docker.APIClient
) -> None:
    containers = Containers(api, owner)
    seen: set[str] = set()
    with launcher_with(tmp_path, owner) as (path, _), Peer(path) as peer:
        for pids in (50, 50, 49, 49, 48, 47, 49, 50):
            wait_until(lambda: peer.counts()["starting"] == 0, what="the pool being quiet")
            reply = peer.acquire(pids=pids)
            assert reply["sandbox"] not in seen
            seen.add(reply["sandbox"])
            assert peer.guest_waits()
            assert peer.ask(op="kill", sandbox=reply["sandbox"])["ok"]
            assert peer.counts()["idle"] <= 2
        wait_until(lambda: peer.counts() == {"idle": 2, "starting": 0, "in_use": 0}, what="two warm ones")
        wait_until(lambda: len(containers.names()) == 2, what="the used ones being gone")
        assert not containers.names() & {f"cellblock-{one}" for one in seen}
    assert not containers.names()


def test_never_more_sandboxes_than_the_bound_and_a_freed_place_is_taken(
    tmp_path: Path, owner: str, api: docker.APIClient
) -> None:
    containers = Containers(api, owner)
    most, done = [0], threading.Event()

    def watch() -> None:
        with docker_api() as own:
            while not done.is_set():
                most[0] = max(most[0], len(Containers(own, owner).names()))

    # A container takes seconds to go and to come where others do so too.
    bounds = {"LAUNCHER_SANDBOXES_MAX": "2", "SANDBOX_START_TIMEOUT_S": "15"}
    with launcher_with(tmp_path, owner, **bounds) as (path, _), Peer(path) as peer, Peer(path) as waiting:
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            first, second = peer.acquire(), peer.acquire(pids=49)
            assert first["ok"]
            assert second["ok"]
            full = waiting.acquire()
            assert (full["error"], "within 15 s" in full["message"]) == ("unavailable", True)
            peer.ask(op="kill", sandbox=first["sandbox"])
            assert waiting.acquire()["ok"]
        finally:
            done.set()
            watcher.join()
    assert most[0] == 2
    assert not containers.names()


def test_a_warm_sandbox_that_died_is_not_handed_out(
    tmp_path: Path, owner: str, api: docker.APIClient
) -> None:
    containers = Containers(api, owner)
    with launcher_with(tmp_path, owner) as (path, _), Peer(path) as peer:
        for _ in range(3):
            wait_until(lambda: peer.counts() == {"idle": 1, "starting": 0, "in_use": 0}, what="a warm one")
            wait_until(lambda: len(containers.names()) == 1, what="the one before being gone")
            (warm,) = containers.names()
            api.kill(warm)
            api.wait(warm, timeout=20)
            reply = peer.acquire()
            assert f"cellblock-{reply['sandbox']}" != warm
            assert peer.guest_waits()
            peer.ask(op="kill", sandbox=reply["sandbox"])
    assert not containers.names()


def _orphan(api: docker.APIClient, labels: dict[str, str]) -> str:
    """A container that nobody reads from or waits for, as a killed launcher might leave one."""
    created = api.create_container(
        "cellblock/python:latest",
        ["python3", "-c", "import time; time.sleep(300)"],
        labels=labels,
        host_config=api.create_host_config(network_mode="none"),
    )
    api.start(created["Id"])
    return str(created["Id"])


def _labels(owner: str, process: str) -> dict[str, str]:
    return {
        Ownership.LABEL_SANDBOX: secrets.token_hex(8),
        Ownership.LABEL_OWNER: owner,
        Ownership.LABEL_BOOT: secrets.token_hex(8),
        Ownership.LABEL_PROCESS: process,
    }


def test_a_killed_launchers_sandboxes_are_swept_by_the_next_and_the_livings_left_alone(
    tmp_path: Path, owner: str, api: docker.APIClient
) -> None:
    gone, other = tmp_path / "gone", tmp_path / "other"
    gone.mkdir()
    other.mkdir()
    neighbour = Ownership(f"{owner}-neighbour").labels(secrets.token_hex(8))  # this very process: alive
    dead_process = neighbour[Ownership.LABEL_PROCESS].replace(f"/{os.getpid()}/", f"/{os.getpid()}/1")
    made = {
        "earlier life": _orphan(api, _labels(owner, "")),
        "dead process": _orphan(api, _labels(f"{owner}-dead", dead_process)),
        "unknown": _orphan(api, _labels(f"{owner}-elsewhere", "pid:[1]/1/1")),
        "neighbour": _orphan(api, neighbour),
    }
    try:
        with launcher_with(other, f"{owner}-other") as (other_path, _), Peer(other_path) as peer:
            lent = peer.acquire()["sandbox"]
            with launcher_with(gone, owner) as (path, process), Peer(path) as doomed:
                left = doomed.acquire()["sandbox"]
                process.kill()
                process.wait(timeout=10)
            assert f"cellblock-{left}" in Containers(api, owner).names()
            with launcher_with(gone, owner) as (path, _):
                wait_until(
                    lambda: f"cellblock-{left}" not in Containers(api, owner).names(), what="the sweep"
                )
            alive = {one["Id"] for one in api.containers(all=True)}
            assert {name for name, one in made.items() if one in alive} == {"unknown", "neighbour"}
            assert peer.ask(op="report", sandbox=lent)["evidence"]["running"] is True
            assert peer.guest_waits()
            assert peer.counts()["idle"] == 1
    finally:
        for one in made.values():
            if api.containers(all=True, filters={"id": one}):
                api.remove_container(one, force=True)


def test_a_launcher_told_to_stop_leaves_nothing(tmp_path: Path, owner: str, api: docker.APIClient) -> None:
    with launcher_with(tmp_path, owner) as (path, process), Peer(path) as peer:
        peer.acquire()
        process.terminate()
        assert process.wait(timeout=30) == 0
        assert not path.exists()
        assert not Containers(api, owner).names()


_WITHOUT_GVISOR = """
from cellblock_workers.launcher import server
from cellblock_workers.launcher.docker import backend
backend.RUNTIMES["gvisor"] = "no-such-runtime"
server.main()
"""


@pytest.mark.parametrize(("isolations", "chosen"), [(["gvisor", "runc"], "runc"), (["gvisor"], None)])
def test_without_runsc_it_falls_back_loudly_or_not_at_all(
    tmp_path: Path, owner: str, isolations: list[str], chosen: str | None
) -> None:
    """Fault injection: the real launcher, told that gVisor's runtime has a name the daemon does not list."""
    path, log = tmp_path / "launcher.sock", tmp_path / "launcher.log"
    environment = {
        **os.environ,
        "CELLBLOCK_LAUNCHER_SOCKET": str(path),
        "CELLBLOCK_LAUNCHER_OWNER": owner,
        "CELLBLOCK_LAUNCHER_WARM": "0",
        "CELLBLOCK_SANDBOX_ISOLATIONS": json.dumps(isolations),
        "CELLBLOCK_LAUNCHER_BACKENDS": '["docker"]',
        "CELLBLOCK_SANDBOX_START_TIMEOUT_S": "4",
    }
    with log.open("wb") as stderr:
        process = subprocess.Popen([sys.executable, "-c", _WITHOUT_GVISOR], env=environment, stderr=stderr)
    try:
        wait_until(path.is_socket, what="the launcher's socket")
        with Peer(path) as peer:
            reply = wait_until(
                lambda: (said := peer.ask(op="probe")).get("reasons") and said, 30, "the probe"
            )
            assert set(reply["isolations"].values()) == ({chosen} if chosen else set())
            assert "does not list the runtime no-such-runtime" in reply["reasons"]["gvisor/docker"]
            acquired = peer.acquire()
            assert acquired.get("isolation") == chosen
            assert acquired.get("error") == (None if chosen else "refused")
    finally:
        process.terminate()
        process.wait(timeout=30)
    warned = "gVisor (runsc) not detected, falling back to strict seccomp isolation" in log.read_text()
    assert warned is (chosen is not None)
