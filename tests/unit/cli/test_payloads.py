"""The parts of a job that lie in files: which files of a folder are sent, and which never are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from cellblock import InvalidJob
from cellblock.cli import payloads


def read(folder: Path) -> dict[str, Any]:
    """The files of a job whose program is this folder."""
    fields = payloads.read(
        folder,
        entrypoint=None,
        files=None,
        env=None,
        inputs=None,
        context=None,
        artifacts=None,
        stdin=None,
    )
    files: dict[str, Any] = fields["files"]
    return files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "app"
    (made / "lib").mkdir(parents=True)
    (made / "__main__.py").write_text("main")
    (made / "lib/x.py").write_text("x")
    return made


def test_every_regular_file_of_a_folder_is_sent_but_hidden_and_compiled_ones(folder: Path) -> None:
    (folder / "lib/__pycache__").mkdir()
    (folder / ".git").mkdir()
    for path in ("lib/__pycache__/x.pyc", ".git/config", "lib/.env"):
        (folder / path).write_text("no")
    os.mkfifo(folder / "pipe")  # reading it would wait for ever
    assert read(folder) == {"__main__.py": b"main", "lib/x.py": b"x"}


@pytest.mark.parametrize("name", ["data.txt", "lib/data.txt"])
@pytest.mark.parametrize("target", ["secret", "../secret", "folder", "nowhere", "app/lib/x.py"])
def test_link_in_a_folder_is_refused_by_name_with_the_remedy(
    folder: Path, tmp_path: Path, name: str, target: str
) -> None:
    (tmp_path / "secret").write_text("the caller's key")
    (tmp_path / "folder").mkdir()
    (folder / name).symlink_to(target if target.startswith("..") else tmp_path / target)
    with pytest.raises(InvalidJob, match=rf"^files: {name} is a link.*--file {name}=PATH$"):
        read(folder)


def test_folder_may_itself_be_reached_by_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    assert set(read(tmp_path / "link")) == {"__main__.py", "lib/x.py"}


def test_link_put_in_place_of_a_file_at_the_last_moment_is_not_followed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: between the look and the opening, the file is replaced by a link."""
    (tmp_path / "secret").write_text("the caller's key")
    real = os.lstat

    def lstat(name: str, *, dir_fd: int | None = None) -> os.stat_result:
        seen = real(name, dir_fd=dir_fd)
        if name == "x.py":
            (folder / "lib/x.py").unlink()
            (folder / "lib/x.py").symlink_to(tmp_path / "secret")
        return seen

    monkeypatch.setattr(os, "lstat", lstat)
    with pytest.raises(InvalidJob, match=r"lib/x\.py is a link"):
        read(folder)
