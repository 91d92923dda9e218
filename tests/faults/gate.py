"""A door in front of a server: shut, every connection is cut and none is taken, as if it were dead."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress

from parts import free_port


class Gate:
    """Forwards connections on loopback while it is open."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self._target = target
        self._pairs: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None

    def open(self) -> None:
        """Take connections."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def shut(self) -> None:
        """Cut all there are, and take no more."""
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        with self._lock:
            cut, self._pairs = self._pairs, set()
        for one in cut:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target), timeout=5)
            except OSError:
                near.close()
                continue
            with self._lock:
                self._pairs |= {near, far}
            threading.Thread(target=self._forward, args=(near, far), daemon=True).start()

    def _forward(self, near: socket.socket, far: socket.socket) -> None:
        others = {near: far, far: near}
        with selectors.DefaultSelector() as ready, suppress(OSError):
            for one in others:
                ready.register(one, selectors.EVENT_READ)
            while True:
                for key, _ in ready.select():
                    data = key.fileobj.recv(65_536)  # type: ignore[union-attr]
                    if not data:
                        raise OSError("the end")
                    others[key.fileobj].sendall(data)  # type: ignore[index]
        for one in others:
            one.close()
        with self._lock:
            self._pairs -= set(others)
