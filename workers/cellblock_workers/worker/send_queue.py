"""The bytes on their way to a sandbox. Pieces are made when their turn comes, so that a job is held only
once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator


class SendQueue:
    """Bytes to send, from any number of sources, in order."""

    def __init__(self) -> None:
        self._sources: deque[Iterator[bytes]] = deque()
        self._piece = memoryview(b"")

    def put(self, pieces: Iterable[bytes]) -> None:
        """Queues these pieces behind the others; each is made when those before it are sent."""
        self._sources.append(iter(pieces))

    def __bool__(self) -> bool:
        return bool(self.first())

    def first(self) -> memoryview:
        """The rest of the next piece; empty when everything is sent."""
        while not self._piece and self._sources:
            piece = next(self._sources[0], None)
            if piece is None:
                self._sources.popleft()
            else:
                self._piece = memoryview(piece)
        return self._piece

    def sent(self, count: int) -> None:
        """Notes that ``count`` bytes of the first piece were sent."""
        self._piece = self._piece[count:]

    def clear(self) -> None:
        """Drops everything that is not sent yet."""
        self._sources.clear()
        self._piece = memoryview(b"")
