"""The folder of a backup: no other user writes to it, and no link is followed in it.

Stops another user from putting a link where a copy goes, or a copy of theirs where one is restored from:
redis-server would load it as our user, and its jobs would be the fleet's.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedRandom, BufferedReader
from pathlib import Path

from cellblock.errors import NotConfigured

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


@contextmanager
def folder_to_write(folder: Path) -> Iterator[int]:
    """A descriptor of the folder, made if it is missing.

    Raises :class:`NotConfigured` for a folder that is not ours alone, or cannot be used.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(folder, f"cannot be made: {error.strerror}") from None
    with _opened(folder, owners={os.geteuid()}) as opened:
        try:
            yield opened
        except OSError as error:
            raise NotConfigured(f"{folder} cannot be written to: {error.strerror}") from None


@contextmanager
def folder_to_read(folder: Path) -> Iterator[int]:
    """A descriptor of the folder, to which only we and root may write. Raises :class:`NotConfigured`."""
    with _opened(folder, owners={0, os.geteuid()}) as opened:
        yield opened


@contextmanager
def _opened(folder: Path, owners: set[int]) -> Iterator[int]:
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise _unusable(folder, f"cannot be opened: {error.strerror}") from None
    try:
        _check_rights(folder, os.fstat(opened), owners)
        yield opened
    finally:
        os.close(opened)


def new_file(name: str, folder: int) -> BufferedRandom:
    """A file for us alone. Never one that is there, and no link is followed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    return os.fdopen(os.open(name, flags, 0o600, dir_fd=folder), "r+b")


def file_to_read(name: str, folder: int, path: Path) -> BufferedReader:
    """A file of the folder at ``path``, to which only we and root may write.

    Raises :class:`NotConfigured`, FileNotFoundError.
    """
    try:  # non-blocking: a FIFO would wait for somebody who writes
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        why = "a link" if error.errno == errno.ELOOP else error.strerror
        raise NotConfigured(f"{path / name} is no file that can be read: {why}") from None
    try:
        state = os.fstat(opened)
        if not stat.S_ISREG(state.st_mode):
            raise NotConfigured(f"{path / name} is no file")
        _check_rights(path / name, state, {0, os.geteuid()})
        return os.fdopen(opened, "rb")
    except BaseException:
        os.close(opened)
        raise


def _check_rights(path: Path, state: os.stat_result, owners: set[int]) -> None:
    if state.st_uid not in owners or state.st_mode & _WRITABLE_BY_OTHERS:
        is_folder = stat.S_ISDIR(state.st_mode)
        remedy = "name another folder, or make it yours alone" if is_folder else "make it yours alone"
        raise NotConfigured(
            f"{path} belongs to another user, or others may write to it: {remedy} (chown, chmod "
            f"{'700' if is_folder else '600'})"
        )


def _unusable(path: Path, why: str) -> NotConfigured:
    return NotConfigured(f"{path} {'is a link: name the folder itself' if path.is_symlink() else why}")
