"""Checks names that callers give to files and variables: each stays inside the sandbox and is unambiguous."""

from __future__ import annotations

import keyword
from collections.abc import Iterable

from cellblock.errors import InvalidJob

PATH_LIMIT_BYTES = 1024
DEPTH_LIMIT = 32

#: Globals that have a meaning of their own.
RESERVED = frozenset({"ctx", "result"})


def check_relative(path: str) -> None:
    """Checks that a path (or glob) is below the work folder and normalised. Raises ValueError."""
    shown = f"{path!r:.200}"
    if not path or path.startswith("/"):
        raise ValueError(f"{shown} is not a relative path")
    parts = path.split("/")
    if any(part in {"", ".", ".."} for part in parts):
        raise ValueError(f"{shown} has an empty part, '.' or '..'")
    _check_bytes(path, shown, PATH_LIMIT_BYTES)
    if len(parts) > DEPTH_LIMIT or any(len(part.encode()) > 255 for part in parts):
        raise ValueError(f"{shown} has more than {DEPTH_LIMIT} parts, or a part longer than 255 bytes")


def check_absolute(path: str) -> None:
    """Checks that a path is absolute and normalised. Raises ValueError."""
    shown = f"{path!r:.200}"
    if not path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"{shown} is not an absolute path without '..'")
    _check_bytes(path, shown, 4096)


def check_files(names: Iterable[str]) -> None:
    """Checks that the paths are relative and that none is a folder of another. Raises ValueError."""
    folders = {}
    known = set(names)
    for name in known:
        check_relative(name)
        parts = name.split("/")
        folders.update({"/".join(parts[:depth]): name for depth in range(1, len(parts))})
    for name in sorted(known & folders.keys()):
        raise ValueError(f"{name!r:.200} is a file and a folder of {folders[name]!r:.200}")


def check_variable(name: str) -> None:
    """Checks that a caller may use this name for a global. Raises :class:`InvalidJob`."""
    if not name.isidentifier() or keyword.iskeyword(name) or len(name) > 128:
        raise InvalidJob(f"{name!r:.80}", "is not a variable's name")
    if name in RESERVED or name.startswith("__"):
        raise InvalidJob(name, "is a name with a meaning of its own; choose another")


def _check_bytes(path: str, shown: str, most: int) -> None:
    if "\0" in path:
        raise ValueError(f"{shown} holds a NUL character")
    try:
        length = len(path.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{shown} is not valid Unicode text: it holds a lone surrogate") from None
    if length > most:
        raise ValueError(f"{shown} is {length} bytes long; at most {most} are accepted")
