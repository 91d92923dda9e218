"""Filters a job's output piece by piece, so that only a piece that needs too much is withheld.

The caller of the filter gives the guard that bounds each piece; without a guard nothing is bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Other = TypeVar("Other")

#: The redaction kind of pieces that were withheld because they could not be filtered.
KIND = "unfiltered"

#: Notices can be longer than what they stand for. All parts of a job's output came within its bounds, and may
#: become longer by this together: a result has room for it.
GROWTH_BYTES = 64 * 1024
TOO_LONG = "withheld: with notices in place of what must not leave, it would be longer than a result may be"


class OutOfBounds(Exception):
    """A piece needs more than it may use; the message names the resource and the remedy."""


class Growth:
    """The bytes by which notices may still make the parts of one job's output longer."""

    def __init__(self) -> None:
        self._left_bytes = GROWTH_BYTES

    def fits(self, before_bytes: int, after_bytes: int) -> bool:
        """Whether a part may become as long as this; if so, it has."""
        grown_bytes = max(0, after_bytes - before_bytes)
        if grown_bytes > self._left_bytes:
            return False
        self._left_bytes -= grown_bytes
        return True


class Guard(Protocol):
    """Bounds the resources for filtering one piece."""

    def run(self, work: Callable[[], T]) -> T:
        """Does the work. Raises :class:`OutOfBounds`."""

    def run_last(self, work: Callable[[], T]) -> T:
        """Does the last work, with resources reserved for it. Raises :class:`OutOfBounds`."""


class Unbounded:
    """A guard without bounds, for callers of the library."""

    def run(self, work: Callable[[], Any]) -> Any:
        """Does the work."""
        return work()

    run_last = run


def notice(why: OutOfBounds) -> str:
    """The text that replaces a withheld text."""
    return f"[{reason(why)}]"


def reason(why: OutOfBounds) -> str:
    """The reason why something is withheld, as text."""
    return f"withheld: {why}"


def piece(guard: Guard, work: Callable[[], T], otherwise: Callable[[OutOfBounds], Other]) -> T | Other:
    """The result of the work, or its replacement where it goes beyond the bounds."""
    try:
        return guard.run(work)
    except OutOfBounds as why:
        return otherwise(why)
