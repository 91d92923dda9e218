"""A deadline for one HTTP request as a whole."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any


class Deadline:
    """Cuts a connection when its time is over; a context manager around one request.

    httpx bounds each single read, and one byte is enough to start the next. The request needs a connection
    of its own, and :meth:`on_event` as the extension ``trace``. A cut connection can look like the normal end
    of an answer: check :attr:`over`.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timer = threading.Timer(timeout_s, self._end)
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._over = False
        self._socket: socket.socket | None = None

    @property
    def over(self) -> bool:
        """Whether the connection was cut: an answer from it might be incomplete although it looks whole."""
        return self._over

    def on_event(self, name: str, info: Mapping[str, Any]) -> None:
        """httpx's trace: learns of the connection as soon as it exists."""
        if name in {"connection.connect_tcp.complete", "connection.start_tls.complete"}:  # two objects
            with self._lock:
                self._socket = info["return_value"].get_extra_info("socket")
                if self._over:  # the deadline passed while the name was looked up or the connection made
                    self._cut()

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _end(self) -> None:
        with self._lock:
            self._over = True
            self._cut()

    def _cut(self) -> None:
        if self._socket is not None:
            with suppress(OSError):  # the connection has ended by itself
                self._socket.shutdown(socket.SHUT_RDWR)
