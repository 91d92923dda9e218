"""A place that promises a secret: the position of a value, and the promise of its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cellblock.egress.places.assessment import Setting
from cellblock.egress.places.lexicon import Name, Promise

KIND = "assigned_secret"


@dataclass(frozen=True, slots=True)
class Place:
    """A stretch of the text, the promise of its name, and how well its borders are known."""

    start: int
    end: int
    promise: Promise
    setting: Setting
    #: The kind under which it is reported.
    kind: str = KIND


#: Finds places of one form behind a name.
Behind = Callable[[str, Name], Iterator[Place]]
