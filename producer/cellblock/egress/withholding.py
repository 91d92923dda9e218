"""Looking through a job's words piece by piece, so that one that takes too much is withheld by itself.

Who runs the filter gives the guard that says how much a piece may take; without one nothing is bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Other = TypeVar("Other")

#: Among a result's redactions: what was withheld because it could not be looked through.
KIND = "unfiltered"


class OutOfBounds(Exception):
    """A piece takes more than it may; the message says what of, and what helps."""


class Guard(Protocol):
    """Bounds what looking through one piece may take."""

    def run(self, work: Callable[[], T]) -> T:
        """Do the work. Raises :class:`OutOfBounds`."""

    def run_last(self, work: Callable[[], T]) -> T:
        """Do what comes at the end, with what was kept back for it. Raises :class:`OutOfBounds`."""


class Unbounded:
    """No bound at all: what a caller of the library has."""

    def run(self, work: Callable[[], Any]) -> Any:
        """Do it."""
        return work()

    run_last = run


def notice(why: OutOfBounds) -> str:
    """What stands in a text's place."""
    return f"[{reason(why)}]"


def reason(why: OutOfBounds) -> str:
    """Why something is withheld."""
    return f"withheld: {why}"


def piece(guard: Guard, work: Callable[[], T], otherwise: Callable[[OutOfBounds], Other]) -> T | Other:
    """What the work comes to, or what stands for it where it takes more than it may."""
    try:
        return guard.run(work)
    except OutOfBounds as why:
        return otherwise(why)
