"""Which limits are written where, for both versions of cgroups."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock_workers.launcher.backend import Profile, StartFailed
from cellblock_workers.launcher.cgroup_tree import CgroupTree

PROFILE = Profile(level="standard", image="python", memory_bytes=256 * 1024 * 1024, cpus=0.5, pids=20)


def limits(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_sandbox_has_its_limits_in_every_hierarchy_of_this_host_and_is_gone_when_removed() -> None:
    tree = CgroupTree()
    assert tree.refusal() is None
    group = tree.create("test-cgroup-tree", PROFILE, 1)
    found: dict[str, str] = {}
    for folder in group.folders:
        for path in folder.iterdir():
            if path.name.endswith((".max", "limit_in_bytes", "quota_us")):
                found[path.name] = path.read_text().strip()
    assert found["pids.max"] == "21"
    assert str(PROFILE.memory_bytes) in {found.get("memory.limit_in_bytes"), found.get("memory.max")}
    assert found.get("cpu.cfs_quota_us", found.get("cpu.max", "").split(" ")[0]) == "50000"
    group.remove()
    group.remove()
    assert not [folder for folder in group.folders if folder.exists()]


def test_all_sandboxes_together_leave_the_host_a_quarter_of_its_process_ids() -> None:
    assert CgroupTree().refusal() is None
    root = Path("/sys/fs/cgroup")
    folder = root / "pids/cellblock" if (root / "memory").is_dir() else root / "cellblock"
    assert (
        int((folder / "pids.max").read_text()) == int(Path("/proc/sys/kernel/pid_max").read_text()) * 3 // 4
    )


def test_where_all_cannot_be_bounded_each_still_is(tmp_path: Path) -> None:
    (tmp_path / "cellblock/pids.max").mkdir(parents=True)  # no file to write to
    tree = CgroupTree(tmp_path)
    assert tree.refusal() is None
    tree.create("one", PROFILE, 1)
    assert limits(tmp_path / "cellblock/one")["pids.max"] == "21"


def test_version_two_is_one_folder_with_memory_swap_processes_and_cpu(tmp_path: Path) -> None:
    (tmp_path / "cellblock").mkdir()
    (tmp_path / "cellblock/memory.swap.max").write_text("max")
    group = CgroupTree(tmp_path).create("one", PROFILE, 1)
    assert limits(tmp_path / "cellblock/one") == {
        "memory.max": str(PROFILE.memory_bytes),
        "memory.swap.max": "0",
        "pids.max": "21",
        "cpu.max": "50000 100000",
    }
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    assert (tmp_path / "cellblock/cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    all_pids = int(Path("/proc/sys/kernel/pid_max").read_text()) * 3 // 4
    assert (tmp_path / "cellblock/pids.max").read_text() == str(all_pids)
    assert (group.folders, group.membership) == ((tmp_path / "cellblock/one",), "cgroup.procs")


def test_controllers_that_are_one_hierarchy_are_one_folder(tmp_path: Path) -> None:
    for name in ("memory", "pids", "cpu,cpuacct"):
        (tmp_path / name).mkdir()
    for name in ("cpu", "cpuacct"):
        (tmp_path / name).symlink_to("cpu,cpuacct")
    assert [folder.parts[-3] for folder in CgroupTree(tmp_path).find("one").folders] == [
        "memory",
        "pids",
        "cpu,cpuacct",
    ]


def test_a_hierarchy_that_cannot_be_written_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/cellblock").write_text("in the way")
    why = CgroupTree(tmp_path).refusal()
    assert why is not None
    assert "memory/cellblock" in why
    assert "run the launcher as root" in why


def test_a_limit_that_cannot_be_set_is_a_failed_start(tmp_path: Path) -> None:
    (tmp_path / "cellblock/one/memory.max").mkdir(parents=True)
    with pytest.raises(StartFailed, match=r"memory\.max cannot be set"):
        CgroupTree(tmp_path).create("one", PROFILE, 1)
