"""Folders that no other user of this host can change: what lies there is trusted, and removed."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

_EVERYBODY = "         0          0 4294967295\n"


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
    """Raises :class:`SystemExit` if other users than root could put another folder in this one's place.

    Looks up to the first folder that root owns; what is above belongs to root too, or nothing here is safe.
    """
    for one in (folder.absolute(), *folder.absolute().parents):
        try:
            found = one.lstat()
        except FileNotFoundError:
            continue
        ours = found.st_uid == os.geteuid()
        if not ours and found.st_uid not in _roots():
            raise _not_ours(one, setting)
        if stat.S_ISLNK(found.st_mode):
            require_out_of_reach(one.resolve(), setting)
        elif _writable_by_others(found):
            raise _not_ours(one, setting)
        if not ours:
            return


def _writable_by_others(found: os.stat_result) -> bool:
    if found.st_mode & stat.S_ISVTX:  # only the owner can remove what is in it, as in /tmp
        return False
    by_group = bool(found.st_mode & stat.S_IWGRP) and found.st_gid not in {0, os.getegid()}
    return by_group or bool(found.st_mode & stat.S_IWOTH)


def _roots() -> set[int]:
    """Root's user id. In a user namespace the host's root has no number, and shows as the overflow id."""
    if Path("/proc/self/uid_map").read_text() == _EVERYBODY:
        return {0}
    return {0, int(Path("/proc/sys/kernel/overflowuid").read_text())}


def _not_ours(folder: Path, setting: str) -> SystemExit:
    return SystemExit(
        f"{folder} is a link, belongs to another user, or others may write to it; "
        f"set {setting} to another path"
    )
