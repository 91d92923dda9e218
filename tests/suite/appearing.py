"""Names that appear in folders, as the kernel tells of them: also those that are gone a moment later."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

#: linux/inotify.h
_CREATED, _MOVED_TO = 0x100, 0x80
_EVENT = struct.Struct("=iIII")  # watch, mask, cookie, length of the name
_LOOK_S = 0.05


class Appearing:
    """Counts what is made in these folders from its making until :meth:`close`, by name."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self.names: Counter[str] = Counter()
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        for folder in folders:
            if libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _CREATED | _MOVED_TO) < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch", str(folder))
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read_on, name="appearing")
        self._thread.start()

    def close(self) -> None:
        """Stop counting. What was made before is counted. Idempotent."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._thread.join()
        self._read()
        os.close(self._descriptor)

    def _read_on(self) -> None:
        while not self._closed.wait(_LOOK_S):
            self._read()

    def _read(self) -> None:
        try:
            events = os.read(self._descriptor, 1 << 20)
        except BlockingIOError:
            return
        at = 0
        while at < len(events):
            *_, length = _EVENT.unpack_from(events, at)
            at += _EVENT.size
            self.names[os.fsdecode(events[at : at + length].rstrip(b"\0"))] += 1
            at += length
