"""Who else on this host reaches a folder or file that holds what tenants gave and said."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_EVERYBODY = "         0          0 4294967295\n"
_OTHERS, _GROUP = stat.S_IRWXO, stat.S_IRWXG


def close_to_others(path: Path, *, is_ours: bool = True) -> str | None:
    """Takes away from a folder or file what other users may do with it. Returns what is wrong if it cannot.

    A group that may write was given that on purpose (producers and workers that are several users), and
    keeps what it may; any other group does not. What others could replace, and (``is_ours``) what holds
    other things than ours, is not changed.
    """
    found = path.stat()
    trusted = {0, os.geteuid(), found.st_uid}
    for parent in {path.parent, path.resolve().parent}:
        if (place := replaceable(parent, trusted)) is not None:
            return (
                f"others can put another one in place of {path}: {place} belongs to another user, or they "
                "may write there"
            )
    taken = _OTHERS if found.st_mode & stat.S_IWGRP else _OTHERS | _GROUP
    if found.st_mode & taken and is_ours:
        with suppress(PermissionError):  # another user's: then it has to be right already
            path.chmod(stat.S_IMODE(found.st_mode) & ~taken)
            found = path.stat()
    if found.st_mode & _OTHERS:
        return f"every user of this host can reach {path}: chmod o-rwx {path}, or name another"
    return None


def replaceable(folder: Path, trusted: Collection[int]) -> Path | None:
    """The first of this folder and those above which users who are not trusted could replace; None without
    one.

    Looks up to the first folder that root owns; what is above belongs to root too, or nothing here is safe.
    """
    for one in (folder.absolute(), *folder.absolute().parents):
        try:
            found = one.lstat()
        except FileNotFoundError:
            continue
        of_root = found.st_uid in _roots()
        if found.st_uid not in trusted and not of_root:
            return one
        if stat.S_ISLNK(found.st_mode):
            if (place := replaceable(one.resolve(), trusted)) is not None:
                return place
        elif _writable_by_others(found):
            return one
        if of_root and os.geteuid() != found.st_uid:
            return None
    return None


def _writable_by_others(found: os.stat_result) -> bool:
    if found.st_mode & stat.S_ISVTX:  # only the owner can remove what is in it, as in /tmp
        return False
    by_group = bool(found.st_mode & stat.S_IWGRP) and found.st_gid not in {0, os.getegid()}
    return by_group or bool(found.st_mode & stat.S_IWOTH)


def _roots() -> set[int]:
    """Root's user id. In a user namespace the host's root has no number, and shows as the overflow id."""
    try:
        if Path("/proc/self/uid_map").read_text() != _EVERYBODY:
            return {0, int(Path("/proc/sys/kernel/overflowuid").read_text())}
    except FileNotFoundError:  # not Linux
        pass
    return {0}
