"""The pipes between the guest and the job process."""

from __future__ import annotations

import contextlib
import os
from typing import Iterator

PIECE_BYTES = 64 * 1024
DESCRIPTORS_MAX = 4096  # a zygote's bound; jobs have a lower one
PURPOSES = ("control", "stdin", "stdout", "stderr", "raised", "value")
SHARED_MEMORY = "/dev/shm"
CONTROL, RAISED, VALUE = 100, 101, 102  # the descriptors of the job process, beside its streams
WORK_DIR = "/tmp/sandbox"  # the folder in a sandbox with a file system of its own


class Pipes:
    """The job's ends and ours, by purpose."""

    def __init__(self, owner: int) -> None:
        """``owner``: the job's id. Its standard streams belong to it: /dev/stdout can be opened by name."""
        self.job_control, self.control = os.pipe()
        with acting_as(owner):
            self.job_stdin, self.stdin = os.pipe()
            self.stdout, self.job_stdout = os.pipe()
            self.stderr, self.job_stderr = os.pipe()
        self.raised, self.job_raised = os.pipe()
        self.value, self.job_value = os.pipe()

    def close_job_ends(self) -> None:
        for fd in self.job_ends():
            os.close(fd)

    def lower_job_ends(self) -> None:
        """Gives the job's ends the lowest numbers: in the way of each other, they cannot be put in place."""
        for name in PURPOSES:
            end = getattr(self, "job_" + name)
            setattr(self, "job_" + name, os.dup(end))
            os.close(end)

    def job_ends(self) -> tuple[int, ...]:
        return tuple(getattr(self, "job_" + name) for name in PURPOSES)

    def our_ends(self) -> tuple[int, ...]:
        return tuple(getattr(self, name) for name in PURPOSES)

    def close_our_ends(self) -> None:
        for fd in self.our_ends():
            try:
                os.close(fd)
            except OSError:  # closed when everything had been delivered
                continue


@contextlib.contextmanager
def acting_as(uid: int) -> Iterator[None]:
    """Makes what is made in the block this user's. Use it before a process with that id can interfere."""
    ours, group = os.geteuid(), os.getegid()
    if uid == ours:  # of whom is given no other identity
        yield
        return
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(ours)
        os.setegid(group)


def close_all_but(kept: list[int]) -> None:
    """Closes every descriptor except the first three and these, which are sorted: a fork has all its
    parent's."""
    first = 3
    for one in kept:
        os.closerange(first, one)
        first = one + 1
    os.closerange(first, DESCRIPTORS_MAX)


def write_all(fd: int, data: bytes) -> None:
    """Writes every byte, with as many calls as that takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
