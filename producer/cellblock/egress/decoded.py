"""The result of one step from a reading of a text to another: a text, and the origin of each part of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

#: The characters kept on each side of a decoded stretch: they can show what it is, text further away cannot.
NEAR = 300
#: Every form of secret known here has at least this many decoded characters.
LEAST = 8


#: A character that no text has, between a decoded stretch and its surroundings.
BORDER = "\ue000"


class Part(NamedTuple):
    """A stretch of a decoded text, from ``at`` on, and its origin, ``start`` to ``end`` in the source.

    ``whole``: only the stretch as a whole has an origin; otherwise each character came from one character.
    """

    at: int
    start: int
    end: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Decoded:
    """A text, and a function that computes the parts it was made of."""

    text: str
    parts: Callable[[], list[Part]]


Decoding = Callable[[str, int], Decoded | None]
#: A stretch (start and end) and its decoded text.
Found = tuple[int, int, str]


def replaced(text: str, found: Iterable[Found], near: int, *, apart: bool = False) -> Decoded | None:
    """The decoded stretches, in order, each with up to ``near`` characters of the text on either side.

    ``apart``: puts a border between a stretch and a letter beside it, which is not part of its content.
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
    """Bytes as UTF-8; if they are not UTF-8, one character for each byte."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")
