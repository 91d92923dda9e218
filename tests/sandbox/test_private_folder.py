"""What lies in the launcher's folder is believed, so no other user of the host may have put it there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cellblock_config import load_settings
from cellblock_workers.launcher.listener import listen
from cellblock_workers.launcher.oci.backend import OciBackend
from cellblock_workers.launcher.ownership import Ownership, Records
from cellblock_workers.launcher.private_folder import make_private
from cellblock_workers.launcher.unisolated.backend import UnisolatedBackend

SETTING = "CELLBLOCK_LAUNCHER_STATE"
STRANGER = 54323
GONE = {"cellblock.process": f"{Path('/proc/self/ns/pid').readlink()}/999999999/1"}


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """Somebody's, and of no sandbox."""
    folder = tmp_path / "home" / "Documents"
    folder.mkdir(parents=True)
    (folder / "thesis").write_text("years of work")
    return folder


def test_a_new_folder_is_ours_alone(tmp_path: Path) -> None:
    folder = tmp_path / "cellblock" / "sandboxes"
    make_private(folder, SETTING)
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)  # of an earlier version
    make_private(folder, SETTING)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_one_that_cannot_be_made_is_left_to_whoever_needs_it() -> None:
    make_private(Path("/proc/cellblock/sandboxes"), SETTING)


@pytest.mark.parametrize("whose", ["the folder", "its parent", "a link", "a link above", "everybody's"])
def test_a_folder_that_a_stranger_has_made_is_refused(tmp_path: Path, whose: str, documents: Path) -> None:
    tmp_path.chmod(0o1777)
    parent = tmp_path / "cellblock"
    folder = parent / "sandboxes"
    (tmp_path / "elsewhere" / "sandboxes").mkdir(parents=True)
    match whose:
        case "a link above":
            parent.symlink_to(tmp_path / "elsewhere")
            os.chown(parent, STRANGER, STRANGER, follow_symlinks=False)
        case "a link":
            parent.mkdir()
            folder.symlink_to(documents)
        case "everybody's":
            folder.mkdir(parents=True)
            folder.chmod(0o777)
        case _:
            folder.mkdir(parents=True)
            os.chown(folder if whose == "the folder" else parent, STRANGER, STRANGER)
    with pytest.raises(SystemExit, match=rf"{tmp_path}.*set {SETTING} to another path"):
        make_private(folder, SETTING)


def test_a_socket_s_folder_is_no_stranger_s(tmp_path: Path) -> None:
    folder = tmp_path / "cellblock"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(SystemExit, match="set CELLBLOCK_LAUNCHER_SOCKET to another path"):
        listen(folder / "launcher.sock", open_to_others=False)


def _plant(records: Path, name: str, **details: str) -> Path:
    records.mkdir(parents=True, exist_ok=True)
    path = records / f"{name}.json"
    path.write_text(json.dumps({"labels": GONE, "details": details}))
    return path


def test_a_record_removes_nothing_but_a_sandbox_of_that_name(
    tmp_path: Path, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CELLBLOCK_LAUNCHER_STATE", str(tmp_path / "state"))
    settings, ownership = load_settings(), Ownership("me")
    oci = OciBackend("runc", settings, ownership)
    process = UnisolatedBackend("process", settings, ownership)
    state = settings.launcher.state
    id_of_one = "00112233aabbccdd"
    planted = [
        _plant(state / "oci" / "records", "Documents", runtime=str(documents.parent)),
        _plant(state / "oci" / "records", id_of_one, runtime=str(documents.parent)),
        _plant(state / process.sweeps / "records", id_of_one, folder=str(documents)),
    ]
    assert (oci.sweep(), process.sweep()) == (0, 0)
    assert (documents / "thesis").read_text() == "years of work"
    assert all(path.exists() for path in planted), "an operator can look at them"


def test_a_record_s_name_is_a_sandbox_s_id(tmp_path: Path) -> None:
    for name in ("..", "x", "00112233AABBCCDD", "00112233aabbccdd0"):
        _plant(tmp_path, name)
    _plant(tmp_path, "00112233aabbccdd")
    _plant(tmp_path, "probe-00112233aabbccdd")
    found: list[str] = []
    Records(tmp_path, Ownership("me")).clear(lambda sandbox_id, _: found.append(sandbox_id))
    assert found == ["00112233aabbccdd", "probe-00112233aabbccdd"]
