"""The folder of a host or fleet that one command runs, and what killed ones have left of theirs."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cellblock_workers.log import get_logger

_log = get_logger(__name__)
_PREFIX = "cellblock-host-"
#: Its lock is held for as long as the command lives; the kernel takes it away from one that was killed.
_LOCK = "lock"


@contextmanager
def own_folder() -> Iterator[Path]:
    """A folder that every user can enter, removed at the end; those of killed commands are removed first."""
    _remove_orphans()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        folder = Path(name)
        new = folder / f"{_LOCK}.new"  # under its name only once it is held: before, it would look dead
        lock = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDONLY, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            new.rename(folder / _LOCK)
            folder.chmod(0o755)
            yield folder
        finally:
            os.close(lock)


def _remove_orphans() -> None:
    """Removes the folders of this user whose commands were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(FileNotFoundError):  # it is being made or removed at this moment
            found = folder.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
                _remove_if_dead(folder)


def _remove_if_dead(folder: Path) -> None:
    lock = os.open(folder / _LOCK, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
        _log.info("folder_of_killed_host_removed", folder=str(folder))
    except BlockingIOError:  # its command lives
        return
    except OSError as error:
        _log.warning("folder_of_killed_host_stays", folder=str(folder), reason=str(error))
    finally:
        os.close(lock)
