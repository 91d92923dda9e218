"""What is on its way to a sandbox: pieces that are made when their turn comes, so that a job is held once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator


class SendQueue:
    """Bytes to send, from any number of sources, in order."""

    def __init__(self) -> None:
        self._sources: deque[Iterator[bytes]] = deque()
        self._piece = memoryview(b"")

    def put(self, pieces: Iterable[bytes]) -> None:
        """These behind what is there already; each is made when those before it are gone."""
        self._sources.append(iter(pieces))

    def __bool__(self) -> bool:
        return bool(self.first())

    def first(self) -> memoryview:
        """What goes next; nothing when all is gone."""
        while not self._piece and self._sources:
            piece = next(self._sources[0], None)
            if piece is None:
                self._sources.popleft()
            else:
                self._piece = memoryview(piece)
        return self._piece

    def sent(self, count: int) -> None:
        """So many bytes of the first piece are gone."""
        self._piece = self._piece[count:]

    def clear(self) -> None:
        """Nothing of it goes anywhere."""
        self._sources.clear()
        self._piece = memoryview(b"")
