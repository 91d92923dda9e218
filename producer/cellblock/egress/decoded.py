"""What a step from one reading of a text to another is: a text, and where each part of it came from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

#: What stands around a decoded stretch can say what it is; further away it cannot.
NEAR = 300
#: Fewer decoded characters than this are no secret of any form known here.
LEAST = 8


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a decoded text, from ``at`` on, and where it came from.

    ``whole``: character by character there is no telling where each came from; else they are the same.
    """

    at: int
    start: int
    end: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Decoded:
    """A text and, when somebody asks, the parts it was made of."""

    text: str
    parts: Callable[[], list[Part]]


Decoding = Callable[[str, int], Decoded | None]
#: A stretch (start and end) and what it reads as; whether character by character there is no telling where
#: from.
Found = tuple[int, int, str, bool]


def replaced(text: str, found: Iterable[Found], near: int) -> Decoded | None:
    """What these stretches, in their order, read as, with so much of the text that stands beside them."""
    pieces: list[str] = []
    parts: list[Part] = []
    at = done = 0

    def keep(start: int, end: int) -> None:
        nonlocal at
        if end > start:
            parts.append(Part(at, start, end, whole=False))
            pieces.append(text[start:end])
            at += end - start

    for start, end, piece, whole in found:
        if not pieces:
            keep(max(0, start - near), start)
        elif start - done > 2 * near:
            keep(done, done + near)
            parts.append(Part(at, start, start, whole=True))
            pieces.append("\n")
            at += 1
            keep(start - near, start)
        else:
            keep(done, start)
        parts.append(Part(at, start, end, whole))
        pieces.append(piece)
        at += len(piece)
        done = end
    if not pieces:
        return None
    keep(done, min(len(text), done + near))
    return Decoded("".join(pieces), lambda: parts)


def as_text(raw: bytes) -> str:
    """Bytes as UTF-8 or, if they are none, one character each."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")
