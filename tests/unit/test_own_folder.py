"""The folder of a host: removed at its end, and by the next one where that was killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cellblock_workers.own_folder import own_folder

KILLED = """
import os, signal
from cellblock_workers.own_folder import own_folder
with own_folder() as folder:
    (folder / "redis").mkdir(mode=0o700)
    (folder / "redis" / "appendonly.aof").write_text("a job's code")
    print(folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def killed() -> Path:
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=60)
    return Path(done.stdout.strip())


def test_own_folder_is_gone_at_the_end(temporary: Path) -> None:
    with own_folder() as folder:
        assert folder.parent == temporary
        assert folder.stat().st_mode & 0o777 == 0o755
    assert list(temporary.iterdir()) == []


def test_next_host_removes_the_folder_of_a_killed_one_and_no_other(temporary: Path) -> None:
    left = killed()
    assert (left / "redis" / "appendonly.aof").exists()
    with own_folder() as living, own_folder() as next_one:
        assert sorted(temporary.iterdir()) == sorted([living, next_one])


def test_next_host_leaves_folders_of_other_users_and_links_alone(temporary: Path) -> None:
    if os.geteuid() != 0:
        pytest.fail("this test gives a folder to another user: run it as root")
    others, target = killed(), temporary / "target"
    os.chown(others, 12_345, 12_345)
    target.mkdir()
    (target / "lock").touch()
    (temporary / "cellblock-host-link").symlink_to(target)
    with own_folder():
        assert (others / "redis" / "appendonly.aof").exists()
        assert (target / "lock").exists()
