"""The output governor (requirement R8): keep a head and a tail of a stream, in bounded memory.

A stream up to the limit passes whole. A longer one keeps its first and last bytes with
``... [TRUNCATED n bytes] ...`` between; the cuts never split a UTF-8 character.
"""

from __future__ import annotations

from dataclasses import dataclass

from cellblock_config import EgressSettings

_SLACK_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Governed:
    """What is kept of a stream; ``dropped_bytes`` is 0 when all of it was."""

    text: str
    dropped_bytes: int


class Governor:
    """Feed it chunks as they come; it never holds more than the limit and one chunk."""

    def __init__(self, settings: EgressSettings) -> None:
        self._limit = settings.output_limit_bytes
        self._head_bytes = settings.output_head_bytes
        self._tail_bytes = settings.output_tail_bytes
        self._start = bytearray()  # the first `limit` bytes, from which the head is cut
        self._recent = bytearray()  # what followed, of which only the end matters
        self.total_bytes = 0

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total_bytes += len(chunk)
        room = self._limit - len(self._start)
        if room > 0:
            self._start += chunk[:room]
            chunk = chunk[room:]
        if not chunk:
            return
        self._recent += chunk
        if len(self._recent) > 2 * self._tail_bytes + _SLACK_BYTES:  # seldom, so that trimming costs little
            del self._recent[: len(self._recent) - self._tail_bytes]

    def close(self) -> Governed:
        """The kept text. Bytes that are not UTF-8 become U+FFFD."""
        if self.total_bytes <= self._limit:
            return Governed(self._start.decode("utf-8", "replace"), 0)
        seen = bytes(self._start + self._recent)
        head = _without_split_end(seen[: self._head_bytes])
        tail = _without_split_start(seen[len(seen) - self._tail_bytes :])
        dropped = self.total_bytes - len(head) - len(tail)
        marker = f"... [TRUNCATED {dropped} bytes] ..."
        return Governed(head.decode("utf-8", "replace") + marker + tail.decode("utf-8", "replace"), dropped)


def _without_split_end(data: bytes) -> bytes:
    """Drop a multi-byte character that the cut left unfinished at the end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:  # the last byte that starts a character
            width = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return data[:-back] if width > back else data
    return data


def _without_split_start(data: bytes) -> bytes:
    """Drop up to three continuation bytes whose start was cut off."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]
