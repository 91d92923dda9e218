"""A place that promises a secret: the position of a value, and the promise of its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cellblock.egress.places.assessment import Setting
from cellblock.egress.places.lexicon import Name, Promise

KIND = "assigned_secret"
#: The characters of a line that are looked at on each side of a name: a text without line breaks takes
#: time in proportion to its names.
_LINE_CHARS = 4096


@dataclass(frozen=True, slots=True)
class Place:
    """A stretch of the text, the promise of its name, and how well its borders are known."""

    start: int
    end: int
    promise: Promise
    setting: Setting
    #: The kind under which it is reported.
    kind: str = KIND


def line_start(text: str, at: int) -> int:
    """The start of the line at this place, or a place within the line that is far before it."""
    least = max(0, at - _LINE_CHARS)
    return text.rfind("\n", least, at) + 1 or least


def line_end(text: str, at: int) -> int:
    """The end of the line at this place, or a place within the line that is far behind it."""
    end = text.find("\n", at, at + _LINE_CHARS)
    return min(len(text), at + _LINE_CHARS) if end < 0 else end


#: Finds places of one form behind a name.
Behind = Callable[[str, Name], Iterator[Place]]
