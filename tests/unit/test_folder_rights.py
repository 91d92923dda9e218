"""What operators name for blobs and for the archive is no other user's to read or to replace."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from cellblock import ArchiveUnavailable, NotConfigured
from cellblock.archive import Archive, open_archive
from cellblock.archive.schema import upgrade
from cellblock.blobs import open_blobs
from cellblock_config.archive import ArchiveSettings
from cellblock_config.blobs import BlobSettings

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs folders of several users")


@pytest.fixture(autouse=True)
def _usual_umask() -> object:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def put(folder: Path) -> str:
    blobs = open_blobs(BlobSettings.model_validate({"url": f"file://{folder}"}))
    assert blobs is not None
    name = blobs.name_of(b"a tenant's code", "job")
    blobs.put(b"a tenant's code", name)
    return name


def archive_of(file: Path) -> Archive:
    archive = open_archive(ArchiveSettings.model_validate({"url": f"sqlite:///{file}"}))
    assert archive is not None
    return archive


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, 0o700),
        (0o755, 0o700),
        (0o750, 0o700),
        (0o2770, 0o2770),
        (0o2775, 0o2770),
    ],
)
def test_blob_folder_is_closed_to_others(tmp_path: Path, before: int | None, after: int) -> None:
    folder = tmp_path / "blobs"
    if before is not None:
        folder.mkdir()
        folder.chmod(before)
    put(folder)
    assert mode(folder) == after


def test_folder_of_other_things_is_refused_and_keeps_its_rights(tmp_path: Path) -> None:
    """As /tmp and /srv would be, which root could close to everybody."""
    folder = tmp_path / "srv"
    folder.mkdir()
    (folder / "somebody").mkdir()
    folder.chmod(0o1777)
    with pytest.raises(NotConfigured, match="every user of this host can reach"):
        put(folder)
    assert mode(folder) == 0o1777


def test_what_a_link_of_another_user_leads_to_keeps_its_rights(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "target").mkdir()
    (tmp_path / "target").chmod(0o755)
    (tmp_path / "open/blobs").symlink_to(tmp_path / "target")
    with pytest.raises(NotConfigured):
        put(tmp_path / "open/blobs")
    assert mode(tmp_path / "target") == 0o755


@pytest.mark.parametrize("before", [None, 0o644, 0o640])
def test_archive_files_are_closed_to_others(tmp_path: Path, before: int | None) -> None:
    file = tmp_path / "jobs.db"
    if before is not None:
        file.touch()
        file.chmod(before)
    with closing(archive_of(file)) as archive:
        upgrade(archive.engine)
        with archive.engine.connect() as connection:
            connection.exec_driver_sql("SELECT count(*) FROM sqlite_master")
            modes = {path.name: mode(path) for path in tmp_path.iterdir()}
    assert modes == {"jobs.db": 0o600, "jobs.db-wal": 0o600, "jobs.db-shm": 0o600}


def test_address_that_only_says_that_there_is_an_archive_is_unusable_and_no_crash() -> None:
    """As workers have it, who never open it."""
    with closing(archive_of(Path("/"))) as archive, pytest.raises(ArchiveUnavailable):
        archive.check()


def test_archive_file_that_a_group_may_write_stays_its(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    file.touch()
    file.chmod(0o664)
    with closing(archive_of(file)) as archive:
        upgrade(archive.engine)
    assert mode(file) == 0o660


@pytest.mark.parametrize("what", ["blobs", "archive"])
def test_store_is_refused_where_others_may_put_another_in_its_place(tmp_path: Path, what: str) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(NotConfigured, match=f"CELLBLOCK_{what.upper()}_URL.*{tmp_path}/open"):
        _use(what, tmp_path / "open" / "store")


@as_root
@pytest.mark.parametrize("what", ["blobs", "archive"])
def test_store_of_another_user_is_refused_while_everybody_can_read_it(what: str) -> None:
    """The file or folder is another user's, who alone could close it."""
    user: dict[str, Any] = {"user": 65_000, "group": 65_000, "extra_groups": []}
    with TemporaryDirectory() as name:  # which that user can enter
        Path(name).chmod(0o755)
        path = Path(name) / "store"
        path.mkdir() if what == "blobs" else path.touch()
        path.chmod(0o777)
        program = (
            f"import sys; sys.path[:0] = {sys.path!r}; from pathlib import Path\n"
            "from unit.test_folder_rights import _use\n"
            f"_use({what!r}, Path({str(path)!r}))"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, **user)
    said = done.stderr.splitlines()[-1]
    assert f"CELLBLOCK_{what.upper()}_URL" in said
    assert f"chmod o-rwx {path}" in said


def _use(what: str, path: Path) -> None:
    if what == "blobs":
        put(path)
        return
    with closing(archive_of(path)) as archive:
        upgrade(archive.engine)
