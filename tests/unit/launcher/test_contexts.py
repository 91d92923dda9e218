"""Which files may be contexts, and that a sandbox with one in it is never kept for another job."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest
from pydantic import ValidationError

from cellblock_config import LauncherSettings
from cellblock_workers.launcher.backend import BackendUnavailable, Framing, Profile
from cellblock_workers.launcher.contexts import ContextRefused, open_context, resolve_context
from cellblock_workers.launcher.evidence import Evidence
from cellblock_workers.launcher.pool import Pool, PooledSandbox
from cellblock_workers.launcher.protocol import Acquire, Reply, receive, send
from cellblock_workers.launcher.shelves import ASKED_OFTEN
from parts import wait_until


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with one file in a folder."""
    folder = tmp_path / "root"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/file").write_text("x")
    return folder


def test_a_file_below_a_root_is_resolved(root: Path) -> None:
    (root / "link").symlink_to("sub/file")
    for name in ("sub/file", "link", "sub/../sub/file", "./sub//file"):
        assert resolve_context(f"{root}/{name}", [Path("/nowhere"), root]) == os.path.realpath(
            root / "sub/file"
        )


def test_a_root_may_be_a_link_itself(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    assert resolve_context(str(root / "sub/file"), [tmp_path / "alias"])


def test_everything_else_is_refused_with_the_remedy(root: Path, tmp_path: Path) -> None:
    (tmp_path / "root-not").mkdir()
    (tmp_path / "root-not/file").write_text("x")
    (root / "out").symlink_to(tmp_path / "root-not/file")
    (root / "up").symlink_to(tmp_path)
    (root / "private").write_text("x")
    (root / "private").chmod(0o640)
    for name, said in {
        "../root-not/file": "in none of",
        "out": "in none of",
        "up/root-not/file": "in none of",
        "missing": "cannot be read",
        "sub": "not a regular file",
        ".": "not a regular file",
        "sub/file/x": "cannot be read",
        "private": "chmod o[+]r",
        "n" * 300: "cannot be read",
    }.items():
        with pytest.raises(ContextRefused, match=said):
            resolve_context(f"{root}/{name}", [root])
    with pytest.raises(ContextRefused, match="CELLBLOCK_LAUNCHER_CONTEXT_ROOTS"):
        resolve_context(f"{root}/sub/file", [])


@pytest.mark.parametrize("context", ["", "relative", "/a\0b", "/" + "a" * 4096, 5])
def test_a_request_with_a_path_that_is_none_is_no_request(context: object) -> None:
    fields = {
        "job_id": "j",
        "fence": 1,
        "level": "standard",
        "image": "python",
        "memory_bytes": 1,
        "cpus": 1,
        "pids": 1,
    }
    assert Acquire.model_validate({**fields, "context": "/a"}).context == "/a"
    with pytest.raises(ValidationError):
        Acquire.model_validate({**fields, "context": context})


class Standing:
    """A sandbox that is nothing but there."""

    isolation, backend, series = "runc", "stand-in", 0
    framing: Framing = "raw"

    def __init__(self, profile: Profile) -> None:
        self.id = "s"
        self.profile = profile
        self.stream, self.guest = socket.socketpair()
        self.destroyed = False

    def hand_over(self) -> int:
        """Nothing to count."""
        return 0

    def pids_most(self) -> None:
        pass

    def limit_pids(self, most: int) -> None:
        pass

    def give_way(self, after_cpu_ms: int) -> bool:
        """It has no weight."""
        return True

    def evidence(self, *, ended: bool) -> Evidence:
        """Nothing to tell."""
        return Evidence(not ended)

    def destroy(self) -> None:
        """Close both ends."""
        self.stream.close()
        self.guest.close()
        self.destroyed = True


def test_a_sandbox_with_a_context_is_started_for_its_job_and_never_ahead() -> None:
    started: list[Standing] = []

    def start(profile: Profile) -> Standing:
        started.append(Standing(profile))
        return started[-1]

    pool = Pool(start, LauncherSettings(warm=2, warm_total=4))
    with_context = Profile(level="standard", image="python", memory_bytes=1, cpus=1.0, pids=1, context="/a")
    for _ in range(2 * ASKED_OFTEN):
        taken = pool.acquire(with_context, 10)
        assert (taken.warm, taken.to_order) == (False, True)
        assert started[-1].profile.context == "/a"
        pool.discard(taken.sandbox)
    plain = pool.acquire(
        Profile(level="standard", image="python", memory_bytes=1, cpus=1.0, pids=1), 10
    ).sandbox
    pool.warm(Profile(level="standard", image="python", memory_bytes=1, cpus=1.0, pids=1))
    wait_until(lambda: pool.counts()["idle"] == 2 and pool.counts()["starting"] == 0, what="a full pool")
    assert [one.profile.context for one in started].count("/a") == 2 * ASKED_OFTEN
    pool.discard(plain)
    pool.close()
    assert all(one.destroyed for one in started)


def test_no_more_is_started_with_a_context_than_jobs_wait_for_it() -> None:
    started: list[Standing] = []
    begun = threading.Semaphore(0)
    go = threading.Event()

    def start(profile: Profile) -> Standing:
        begun.release()
        assert go.wait(10)
        started.append(Standing(profile))
        return started[-1]

    pool = Pool(start, LauncherSettings(warm=9, warm_total=9, starters=8))
    with_context = Profile(level="standard", image="python", memory_bytes=1, cpus=1.0, pids=1, context="/a")
    taken: list[PooledSandbox] = []
    jobs = [threading.Thread(target=lambda: taken.append(pool.acquire(with_context, 10))) for _ in range(4)]
    for job in jobs:
        job.start()
    for _ in jobs:
        assert begun.acquire(timeout=10)
    assert not begun.acquire(timeout=0.5), "a fifth, for nobody"
    go.set()
    for job in jobs:
        job.join(10)
    assert len(started) == 4
    assert all(one.to_order for one in taken), "each job pays for its own"
    for sandbox in started:
        pool.discard(sandbox)
    pool.close()


def test_a_sandbox_whose_job_gave_up_waiting_is_destroyed_with_its_context() -> None:
    started: list[Standing] = []
    go = socket.socketpair()

    def start(profile: Profile) -> Standing:
        go[0].recv(1)
        started.append(Standing(profile))
        return started[-1]

    pool = Pool(start, LauncherSettings(warm=0, warm_total=4))
    with pytest.raises(BackendUnavailable):
        pool.acquire(
            Profile(level="standard", image="python", memory_bytes=1, cpus=1.0, pids=1, context="/a"), 0.05
        )
    go[1].send(b"1")
    wait_until(lambda: started and started[0].destroyed, what="the sandbox being destroyed")
    assert pool.counts() == {"idle": 0, "starting": 0, "in_use": 0}
    pool.close()
    for end in go:
        end.close()


def test_the_descriptor_of_a_context_only_reads_and_is_inherited_by_nobody(root: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    opened = open_context(str(root / "sub/file"))
    send(ours, Reply(), opened)
    _, (received,) = receive(theirs)
    try:
        assert os.pread(received, 10, 0) == b"x"
        assert not os.get_inheritable(received)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(received, b"y")
    finally:
        for descriptor in (opened, received):
            os.close(descriptor)
        ours.close()
        theirs.close()


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "secret", "gone"])
def test_what_has_taken_a_contexts_place_meanwhile_is_not_handed_over(root: Path, kind: str) -> None:
    path = root / kind
    if kind == "link":
        path.symlink_to(root / "sub/file")
    elif kind == "fifo":
        os.mkfifo(path, 0o644)
    elif kind == "folder":
        path.mkdir()
    elif kind == "secret":
        path.write_text("x")
        path.chmod(0o600)
    with pytest.raises(ContextRefused):
        open_context(str(path))


def test_a_refusal_names_no_folder_of_the_host(tmp_path: Path) -> None:
    with pytest.raises(ContextRefused) as refused:
        resolve_context("/etc/hosts", [tmp_path])
    assert str(tmp_path) not in str(refused.value)
