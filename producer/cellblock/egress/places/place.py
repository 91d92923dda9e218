"""A place that promises a secret: where a value stands, and what was said of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cellblock.egress.places.assessment import Setting
from cellblock.egress.places.lexicon import Name, Promise

KIND = "assigned_secret"


@dataclass(frozen=True, slots=True)
class Place:
    """A stretch of the text, what its name promises, and how well its borders are known."""

    start: int
    end: int
    promise: Promise
    setting: Setting
    #: What to report it as.
    kind: str = KIND


#: Finds places of one form behind a name.
Behind = Callable[[str, Name], Iterator[Place]]
