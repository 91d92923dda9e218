"""The output governor: keep a head and a tail of a stream, in bounded memory.

A stream up to the limit passes whole. A longer one keeps its first and last bytes with
``... [TRUNCATED n bytes] ...`` between; the cuts never split a UTF-8 character.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cellblock_config.egress import EgressSettings

_SLACK_BYTES = 4096
#: The filter also sees this much beyond a cut: a secret that a cut divides is recognised only by its other
#: part. It is more than a key of 4096 bits printed one character a line.
_MARGIN_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a stream as text; ``text[start:end]`` is kept, the rest is only for the filter."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Governed:
    """The kept part of a stream; ``dropped_bytes`` is 0 if all of it was kept.

    ``stretches``: the kept text with its surroundings, one for a whole stream or two beside a cut.
    """

    text: str
    dropped_bytes: int
    stretches: tuple[Stretch, ...] = field(default=(), compare=False)

    @property
    def marker(self) -> str:
        """The text that replaces the dropped bytes."""
        return f"... [TRUNCATED {self.dropped_bytes} bytes] ..."


class Governor:
    """Takes a stream in chunks; it holds at most the limit, a few margins and tails, and one chunk."""

    def __init__(self, settings: EgressSettings) -> None:
        self._limit = settings.output_limit_bytes
        self._head_bytes = settings.output_head_bytes
        self._tail_bytes = settings.output_tail_bytes
        self._room = max(self._limit, self._head_bytes + _MARGIN_BYTES)
        self._reach = self._tail_bytes + _MARGIN_BYTES
        self._start = bytearray()  # the first bytes: the head is cut from them
        self._recent = bytearray()  # the bytes after them: only their end matters
        self.total_bytes = 0

    def feed(self, chunk: bytes) -> None:
        """Takes the next bytes of the stream."""
        self.total_bytes += len(chunk)
        room = self._room - len(self._start)
        if room > 0:
            self._start += chunk[:room]
            chunk = chunk[room:]
        if not chunk:
            return
        self._recent += chunk
        if len(self._recent) > 2 * self._reach + _SLACK_BYTES:  # seldom, so that trimming costs little
            del self._recent[: len(self._recent) - self._reach]

    def close(self) -> Governed:
        """The kept text. Bytes that are not UTF-8 become U+FFFD."""
        if self.total_bytes <= self._limit:
            text = _text(self._start)
            return Governed(text, 0, (Stretch(text, 0, len(text)),))
        seen = bytes(self._start + self._recent)
        head = _without_split_end(seen[: self._head_bytes])
        tail = _without_split_start(seen[len(seen) - self._tail_bytes :])
        shown, behind = _text(head), _text(seen[len(head) : self._head_bytes + _MARGIN_BYTES])
        tail_start = len(seen) - len(tail)
        before, end = _text(seen[max(0, len(seen) - self._reach) : tail_start]), _text(tail)
        stretches = (
            Stretch(shown + behind, 0, len(shown)),
            Stretch(before + end, len(before), len(before) + len(end)),
        )
        governed = Governed("", self.total_bytes - len(head) - len(tail), stretches)
        return replace(governed, text=shown + governed.marker + end)


def _text(data: bytes | bytearray) -> str:
    return data.decode("utf-8", "replace")


def _without_split_end(data: bytes) -> bytes:
    """The bytes without a multi-byte character that the cut left unfinished at the end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:  # the last byte that starts a character
            width = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return data[:-back] if width > back else data
    return data


def _without_split_start(data: bytes) -> bytes:
    """The bytes without up to three continuation bytes whose start was cut off."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]
