"""Folders that no other user of this host can change: what lies there is trusted, and removed."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from cellblock.folder_rights import replaceable


def make_private(folder: Path, setting: str) -> None:
    """Makes the folder ours alone, if it can be made. Raises :class:`SystemExit` if it could be another
    user's.

    ``setting``: the setting that names another folder, for the message. A folder that cannot be made stays
    missing: a way of making sandboxes that needs it says so itself.
    """
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    require_out_of_reach(folder.parent, setting)
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise _not_ours(folder, setting)
    folder.chmod(0o700)


def require_out_of_reach(folder: Path, setting: str) -> None:
    """Raises :class:`SystemExit` if other users than root could put another folder in this one's place."""
    if (place := replaceable(folder, {os.geteuid()})) is not None:
        raise _not_ours(place, setting)


def _not_ours(folder: Path, setting: str) -> SystemExit:
    return SystemExit(
        f"{folder} is a link, belongs to another user, or others may write to it; "
        f"set {setting} to another path"
    )
