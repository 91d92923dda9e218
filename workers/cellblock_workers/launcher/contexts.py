"""Which files of the host a job may see as its context.

Stops a job, or a taken-over worker, from having any other file of the host mounted. The path is resolved
before it is judged, so that no link leads out of a root, and the resolved path is what is mounted. A user who
can write in a root could exchange the file between the two: roots belong to operators.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

MOUNT_POINT = "/mnt/context_data"


class ContextRefused(Exception):
    """This file must not be a context, or cannot be one; the message names path, setting and remedy."""


def resolve_context(path: str, roots: Sequence[Path]) -> str:
    """The real path of a context file within the roots. Raises :class:`ContextRefused`."""
    if not roots:
        raise ContextRefused(
            "no context may be mounted on this host: CELLBLOCK_LAUNCHER_CONTEXT_ROOTS is empty; its operator "
            "sets it where the launcher runs, such as '[\"/srv/data\"]'"
        )
    real = os.path.realpath(path)
    inside = [root for root in map(os.path.realpath, roots) if os.path.commonpath([real, root]) == root]
    if not inside:
        # The message goes to the tenant, and only the operator is to know the roots.
        raise ContextRefused(
            f"{path} is in none of the folders that jobs may be shown (CELLBLOCK_LAUNCHER_CONTEXT_ROOTS)"
        )
    try:
        found = Path(real).stat()
    except OSError as error:
        raise ContextRefused(f"{path} cannot be read on the worker's host: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        raise ContextRefused(f"{path} is not a regular file")
    if not found.st_mode & stat.S_IROTH:
        raise ContextRefused(f"{path} cannot be read by the job, which is nobody's user; run: chmod o+r")
    return real


def open_context(path: str) -> int:
    """A descriptor for reading a resolved context, for the worker that compares output with it.

    Raises :class:`ContextRefused` if it is no longer a regular file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise ContextRefused(f"{path} cannot be read on the worker's host: {error.strerror}") from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or not found.st_mode & stat.S_IROTH:
        os.close(descriptor)
        raise ContextRefused(f"{path} is not a regular file that everybody can read")
    return descriptor
