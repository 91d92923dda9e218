"""Guest frames as the host reads them: every byte is hostile until it has passed here."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from cellblock_workers.guest.messages import HEADER, Frame

_DOCKER_HEADER = struct.Struct(">BxxxI")
_STDOUT = 1

#: The longest payload of each kind that a guest may send (guest/messages.py says what they are).
LIMIT_BYTES = {
    Frame.READY: 0,
    Frame.STDOUT: 64 * 1024,
    Frame.STDERR: 64 * 1024,
    Frame.VALUE: 64 * 1024,
    Frame.RAISED: 32 * 1024,
    Frame.ENDED: 4 * 1024,
    Frame.ARTIFACTS: 64 * 1024,
    Frame.ARTIFACTS_END: 16,
}


class ProtocolViolation(Exception):
    """A frame that no honest guest sends. The sandbox is killed; the worker is unharmed."""


def frame(kind: bytes, payload: bytes) -> bytes:
    """One frame for the guest."""
    return HEADER.pack(kind, len(payload)) + payload


class FrameReader:
    """Cuts the stream into frames, holding at most one unfinished frame."""

    def __init__(self, framing: str) -> None:
        self._docker = framing == "docker"
        self._raw = bytearray()
        self._guest = bytearray()
        self._piece_stream = 0
        self._piece_left = 0

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Takes received bytes, yields whole (kind, payload) frames. Raises :class:`ProtocolViolation`."""
        if self._docker:
            self._raw += data
            self._unwrap()
        else:
            self._guest += data
        while len(self._guest) >= HEADER.size:
            kind, length = HEADER.unpack_from(self._guest)
            limit = LIMIT_BYTES.get(kind)
            if limit is None:
                raise ProtocolViolation(f"frame of unknown kind {kind!r}")
            if length > limit:
                raise ProtocolViolation(
                    f"frame {kind.decode()} of {length} bytes; at most {limit} are allowed"
                )
            end = HEADER.size + length
            if len(self._guest) < end:
                return
            payload = bytes(self._guest[HEADER.size : end])
            del self._guest[:end]
            yield kind, payload

    def _unwrap(self) -> None:
        """Takes out of the daemon's frames what they hold, finished or not."""
        while True:
            piece = self._raw[: self._piece_left]
            if self._piece_stream == _STDOUT:
                self._guest += piece
            del self._raw[: len(piece)]
            self._piece_left -= len(piece)
            if self._piece_left or len(self._raw) < _DOCKER_HEADER.size:
                return
            self._piece_stream, self._piece_left = _DOCKER_HEADER.unpack_from(self._raw)
            del self._raw[: _DOCKER_HEADER.size]
