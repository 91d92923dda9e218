"""Sources of the bytes of a context: a text, a file, an open descriptor."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

#: A shorter context is too short to be copied, and a text of less than half of it is not a copy.
LEAST_BYTES = 128


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ContextSource:
    """``read(start, length)`` returns bytes, fewer at the end; ``identity`` changes when the bytes can have.

    A source without an identity equals only itself: make one and use it for every text that is compared.
    """

    size: int
    read: Callable[[int, int], bytes]
    identity: tuple[object, ...] | None = None

    @classmethod
    def of(cls, context: str | bytes | Path | ContextSource) -> ContextSource:
        """The source of a text, of bytes or of a path. A path is opened for each read: it can be large."""
        if isinstance(context, ContextSource):
            return context
        if isinstance(context, Path):
            return cls(context.stat().st_size, lambda start, length: _read(context, start, length))
        data = context.encode("utf-8", "replace") if isinstance(context, str) else bytes(context)
        return cls(len(data), lambda start, length: data[start : start + length])

    @classmethod
    def of_descriptor(cls, descriptor: int) -> ContextSource:
        """The source of an open file, which has to stay open as long as the source is used."""
        found = os.fstat(descriptor)
        identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        return cls(found.st_size, lambda start, length: os.pread(descriptor, length, start), identity)


def _read(path: Path, start: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(length)
