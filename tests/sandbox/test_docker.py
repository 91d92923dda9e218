"""What the Docker backend keeps on the host for a sandbox goes with it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cellblock_config import load_settings
from cellblock_workers.launcher.backend import Profile
from cellblock_workers.launcher.docker.backend import DockerBackend
from cellblock_workers.launcher.ownership import Ownership
from sandbox.harness import MIB

pytestmark = [pytest.mark.docker, pytest.mark.way("runc-docker")]


def test_a_sandboxs_names_go_with_it(tmp_path: Path) -> None:
    settings = load_settings(launcher={"state": tmp_path})
    backend = DockerBackend("runc", settings, Ownership(f"test-{os.getpid()}-names"))
    sandbox = backend.start(
        Profile(
            level="standard", image=settings.sandbox.default_image, memory_bytes=64 * MIB, cpus=1.0, pids=10
        )
    )
    names = tmp_path / "docker" / "etc"
    try:
        assert [one.name for one in names.iterdir()] == [sandbox.id]
        assert (names / sandbox.id / "etc" / "passwd").is_file()
    finally:
        sandbox.destroy()
    assert list(names.iterdir()) == []


def test_names_that_a_killed_launcher_left_go_with_the_next_sweep(tmp_path: Path) -> None:
    settings = load_settings(launcher={"state": tmp_path})
    backend = DockerBackend("runc", settings, Ownership(f"test-{os.getpid()}-left"))
    sandbox = backend.start(
        Profile(
            level="standard", image=settings.sandbox.default_image, memory_bytes=64 * MIB, cpus=1.0, pids=10
        )
    )
    names = tmp_path / "docker" / "etc"
    try:
        for name in ("left", "just made"):
            (names / name / "etc").mkdir(parents=True)
        for old in ("left", sandbox.id):
            os.utime(names / old, (0, 0))
        backend.sweep()
        assert {one.name for one in names.iterdir()} == {sandbox.id, "just made"}
    finally:
        sandbox.destroy()


def test_a_sandbox_dies_at_full_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(launcher={"state": tmp_path})
    backend = DockerBackend("runc", settings, Ownership(f"test-{os.getpid()}-dies"))
    held = backend.start(
        Profile(
            level="standard", image=settings.sandbox.default_image, memory_bytes=64 * MIB, cpus=0.05, pids=10
        )
    )
    seen: list[str] = []
    discard = backend.discard

    def discarded(sandbox_id: str, container: str) -> None:
        seen.append(_quota_of(container))
        discard(sandbox_id, container)

    monkeypatch.setattr(backend, "discard", discarded)
    try:
        held.hand_over()
        seen.append(_quota_of(held.container))
    finally:
        held.destroy()
    assert seen == ["5000", "100000"]


def _quota_of(container: str) -> str:
    """How many of each 100,000 microseconds the kernel gives it."""
    root = Path("/sys/fs/cgroup")
    found = [
        controller / folder / name
        for controller, name in ((root / "cpu", "cpu.cfs_quota_us"), (root, "cpu.max"))
        for folder in (f"docker/{container}", f"system.slice/docker-{container}.scope")
    ]
    return next(file.read_text().split()[0] for file in found if file.is_file())
