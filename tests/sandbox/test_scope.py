"""What a scope must have in force before anything runs in it, where cgroups are version two."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from cellblock_workers.launcher.backend import Profile, StartFailed
from cellblock_workers.launcher.systemd import manager, scope
from cellblock_workers.launcher.systemd.scope import ScopeTree

pytestmark = pytest.mark.no_rerun

PROFILE = Profile(level="standard", image="python", memory_bytes=256 * 1024 * 1024, cpus=0.5, pids=20)
LIMITS = {
    "memory.max": str(PROFILE.memory_bytes),
    "memory.swap.max": "0",
    "pids.max": "22",  # with the guest and the one that holds the scope open
    "cpu.max": "50000 100000",
}
PLACE = Path("top/some.slice/some-slice.slice/cellblock-one.scope")


class StandIn:
    """Does what systemd would: makes the cgroup, writes these limits, moves the process."""

    def __init__(self, root: Path, proc: Path, limits: dict[str, str]) -> None:
        self.root, self.proc, self.limits = root, proc, limits
        self.asked: dict[str, tuple[str, ...]] = {}
        (proc / "1").mkdir(parents=True)
        (proc / "1/cgroup").write_text("0::/top/init.scope\n")
        root.mkdir()

    def start_scope(self, name: str, properties: Sequence[tuple[str, ...]]) -> None:
        self.asked = {one[0]: one[2:] for one in properties}
        folder = self.root / PLACE
        assert folder.name == name
        folder.mkdir(parents=True)
        for file, value in self.limits.items():
            (folder / file).write_text(value)
        (folder / "cgroup.procs").touch()
        pid = self.asked["PIDs"][1]
        (self.proc / pid).mkdir()
        (self.proc / pid / "cgroup").write_text(f"0::/{PLACE}\n")


def tree_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, str]
) -> tuple[ScopeTree, StandIn]:
    root, proc = tmp_path / "cgroup", tmp_path / "proc"
    systemd = StandIn(root, proc, limits)
    monkeypatch.setattr(manager, "start_scope", systemd.start_scope)
    monkeypatch.setattr(scope, "_WAIT_S", 0.05)
    return ScopeTree("some-slice.slice", root, proc), systemd


def test_limits_are_asked_for_and_the_one_file_to_join_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, systemd = tree_on(tmp_path, monkeypatch, LIMITS)
    made = tree.create("one", PROFILE, 1)
    assert made.relative == PLACE
    (membership,) = made.open_membership()
    assert Path(f"/proc/self/fd/{membership}").readlink().name == "cgroup.procs"
    os.close(membership)
    asked = ("Slice", "MemoryMax", "MemorySwapMax", "TasksMax", "CPUQuotaPerSecUSec")
    assert [systemd.asked[name] for name in asked] == [
        ("some-slice.slice",),
        (str(PROFILE.memory_bytes),),
        ("0",),
        ("22",),
        ("500000",),
    ]
    with pytest.raises(StartFailed, match=r"cellblock-one\.scope is still there"):
        made.remove()  # the stand-in does not see that it is empty


@pytest.mark.parametrize(
    ("file", "value", "missing"),
    [
        ("memory.max", "max", "MemoryMax"),
        ("memory.max", str(PROFILE.memory_bytes * 2), "MemoryMax"),
        ("memory.swap.max", "max", "MemorySwapMax"),
        ("pids.max", "max", "TasksMax"),
        ("cpu.max", "max 100000", "CPUQuota"),
    ],
)
def test_a_limit_that_is_not_in_force_is_named_and_no_sandbox_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, value: str, missing: str
) -> None:
    tree, _ = tree_on(tmp_path, monkeypatch, {**LIMITS, file: value})
    with pytest.raises(StartFailed, match=f"systemd: {missing} of cellblock-one.scope is not in force"):
        tree.create("one", PROFILE, 1)


def test_a_controller_that_is_not_delegated_is_a_missing_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {name: value for name, value in LIMITS.items() if not name.startswith("cpu")}
    tree, _ = tree_on(tmp_path, monkeypatch, limits)
    with pytest.raises(StartFailed, match=r"systemd: .*cpu.max"):
        tree.create("one", PROFILE, 1)
