"""The files of a SQLite archive: no other user of the host reads or replaces them."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from cellblock.errors import NotConfigured
from cellblock.folder_rights import close_to_others

_OWNER, _OWNER_AND_GROUP = 0o600, 0o660


def close_database(database: Path) -> None:
    """Makes the file if it is missing, and closes it and what SQLite keeps beside it to others.

    Raises :class:`NotConfigured`. What SQLite makes beside it later has the rights of the file itself. A file
    that cannot be made stays missing: SQLite says why.
    """
    with suppress(OSError):
        mode = _OWNER_AND_GROUP if _is_a_groups(database.parent) else _OWNER
        os.close(os.open(database, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, mode))
        database.chmod(mode)  # whatever the umask is
    for path in (database, *(Path(f"{database}-{kind}") for kind in ("wal", "shm"))):
        try:
            problem = close_to_others(path) if path.is_file() else None
        except OSError:  # gone since, or in a folder that this user cannot enter
            continue
        if problem is not None:
            raise NotConfigured(f"CELLBLOCK_ARCHIVE_URL: {problem}")


def _is_a_groups(folder: Path) -> bool:
    """Whether a group can write there and others cannot: the folder of several users."""
    return folder.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH) == stat.S_IWGRP
