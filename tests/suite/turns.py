"""Suites that run at once on one host take turns. A pytest plugin that is always on.

Time limits of cases, and of what they start, hold on a host where one suite is at work. So all suites of a
host together have no more cases at once than one suite has processes; the others wait, before their time
limit begins to run.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

#: Each byte of it is a turn. A lock on it belongs to one process, whatever that forks, and ends with it.
_FILE = Path(tempfile.gettempdir(), "cellblock-suite-turns")
#: Set while this process has one: a suite that a case runs has its case's turn.
_HAS_TURN = "SUITE_HAS_TURN"
_PAUSE_S = 0.05
#: Beyond any turn.
_EVERY = 1 << 20
_TOLD_S = 30.0


def processes() -> int:
    """How many processes a suite has: two more than cores, since cases also wait."""
    return len(os.sched_getaffinity(0)) + 2


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Each case has a turn, its fixtures included."""
    with turn(_FILE, processes()):
        return (yield)


@contextmanager
def turn(file: Path, count: int) -> Iterator[None]:
    """Have one of ``count`` turns while the block runs; wait for it if need be."""
    if _HAS_TURN in os.environ:
        yield
        return
    descriptor = _open(file)
    try:
        while not any(_is_taken(descriptor, number) for number in range(count)):
            time.sleep(_PAUSE_S)
        os.environ[_HAS_TURN] = "1"
        yield
    finally:
        os.environ.pop(_HAS_TURN, None)
        os.close(descriptor)  # and with it the lock


@contextmanager
def every_turn(file: Path = _FILE, count: int | None = None) -> Iterator[None]:
    """Have all turns while the block runs, so that no case of any suite runs beside it; wait for them.

    What a case runs has its case's turn, and waits for no other.
    """
    if _HAS_TURN in os.environ:
        yield
        return
    count = processes() if count is None else count
    descriptor = _open(file)
    try:
        # Who wants every turn takes this byte first: of two, one waits for the other and holds no turn.
        for number in (_EVERY, *range(count)):
            began = time.monotonic()
            while not _is_taken(descriptor, number):
                time.sleep(_PAUSE_S)
                if time.monotonic() - began > _TOLD_S:
                    print("waiting for a case of another suite to end", flush=True)
                    began = time.monotonic()
        os.environ[_HAS_TURN] = "1"
        yield
    finally:
        os.environ.pop(_HAS_TURN, None)
        os.close(descriptor)  # and with it the locks


def _is_taken(descriptor: int, number: int) -> bool:
    """Whether this turn is ours now."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _open(file: Path) -> int:
    """The file, which every user of the host may lock."""
    with suppress(FileNotFoundError):
        return os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_CREAT, 0o666)
    os.fchmod(descriptor, 0o666)
    return descriptor
