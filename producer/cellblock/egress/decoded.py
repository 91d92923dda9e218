"""What a step from one reading of a text to another is: a text, and where each part of it came from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

#: What stands around a decoded stretch can say what it is; further away it cannot.
NEAR = 300
#: Fewer decoded characters than this are no secret of any form known here.
LEAST = 8


#: What no text has, between what was decoded and what stands beside it.
BORDER = "\ue000"


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
#: A stretch, from where to where, and what it reads as.
Found = tuple[int, int, str]


def replaced(text: str, found: Iterable[Found], near: int, *, apart: bool = False) -> Decoded | None:
    """What these stretches, in their order, read as, with so much of the text that stands beside them.

    ``apart``: a letter beside a stretch was no part of what it says.
    """
    pieces: list[str] = []
    parts: list[Part] = []
    at = done = 0

    def add(piece: str, start: int, end: int, *, whole: bool) -> None:
        nonlocal at
        parts.append(Part(at, start, end, whole))
        pieces.append(piece)
        at += len(piece)

    def keep(start: int, end: int) -> None:
        if end > start:
            add(text[start:end], start, end, whole=False)

    for start, end, piece in found:
        if not pieces:
            keep(max(0, start - near), start)
        elif start - done > 2 * near:
            keep(done, done + near)
            add("\n", start, start, whole=True)
            keep(start - near, start)
        else:
            keep(done, start)
        if apart and text[max(0, start - 1) : start].isalnum():
            add(BORDER, start, start, whole=True)
        add(piece, start, end, whole=True)
        if apart and text[end : end + 1].isalnum():
            add(BORDER, end, end, whole=True)
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
