"""Every way in which one text can be read: as it stands, decoded, turned round, put together.

A view is a text that somebody could make of another one, and knows where each part of it came from. Views are
made of views, so that base64 of a reversed text split over lines is read as well: three steps deep, and of
all views together no more than a fixed multiple of the text, whatever it holds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, islice

from cellblock.egress.cleanings import CLEANINGS, joined, rot13, swapped, unwrapped
from cellblock.egress.decoded import NEAR, Decoded, Part
from cellblock.egress.encodings import ENCODINGS, TOO_LONG

_DEPTH = 3
#: Characters of all views together: many times a text that a person could read, a few times a longer one, and
#: enough for a short one whatever it holds.
_BUDGET_FACTOR, _BUDGET_FULL, _BUDGET_LONG, _BUDGET_LEAST = 64, 64 * 1024, 3, 64 * 1024
_GROWN_FACTOR = 50
JOINED, REVERSED, WRAPPED = "joined", "reversed", "wrapped"
#: After these no other step is tried.
_LAST_STEPS = {"rot13": rot13, "swapped": swapped}


@dataclass(frozen=True)
class View:
    """One reading. ``loose``: what stood apart stands together here, so borders between words are gone."""

    text: str
    how: tuple[str, ...] = ()
    loose: bool = False
    source: View | None = None
    parts: Callable[[], list[Part]] | None = None

    def locate(self, start: int, end: int) -> tuple[int, int]:
        """Where in the original text this stretch of the view came from."""
        if self.source is None:
            return start, end
        return self.source.locate(*self._in_source(start, end))

    def unread(self) -> View:
        """In place of this view, for which there was no room: a sign that its source was not read."""
        whole = len(self.source.text) if self.source is not None else 0
        return View(TOO_LONG, self.how, False, self.source, lambda: [Part(0, 0, whole, whole=True)])

    def pieces(self, start: int, end: int) -> list[tuple[int, int]]:
        """In what pieces this stretch stood before it was joined, as places in the view; of a loose one."""
        if self.source is None:
            return [(start, end)]
        if self.how[-1] != JOINED:
            return [(start, end)] if not self.loose else self.source.pieces(*self._in_source(start, end))
        first = max(0, bisect_right(self._starts, start) - 1)
        found = []
        for part in islice(self._parts, first, None):
            if part.at >= end:
                break
            found.append((max(start, part.at), min(end, part.at + part.end - part.start)))
        return found

    def is_regular(self, alike: int, most_chars: int) -> bool:
        """Whether anywhere so many pieces in a row were of one length, no longer than this."""
        if self.source is None:
            return False
        if self.how[-1] != JOINED:
            return self.source.is_regular(alike, most_chars)
        lengths = (part.end - part.start for part in self._parts)
        return any(
            length <= most_chars and sum(1 for _ in islice(run, alike)) == alike
            for length, run in groupby(lengths)
        )

    def _in_source(self, start: int, end: int) -> tuple[int, int]:
        if self.parts is None:  # turned round
            length = len(self.text)
            return length - end, length - start
        first, last = self._part(start), self._part(max(start, end - 1))
        begin = first.start if first.whole else first.start + start - first.at
        finish = last.end if last.whole else last.start + end - last.at
        return begin, finish

    def _part(self, position: int) -> Part:
        return self._parts[max(0, bisect_right(self._starts, position) - 1)]

    @cached_property
    def _parts(self) -> list[Part]:
        return self.parts() if self.parts is not None else []

    @cached_property
    def _starts(self) -> list[int]:
        return [part.at for part in self._parts]


def views(text: str) -> Iterator[View]:
    """The text itself, then every other reading of it that differs."""
    budget = _BUDGET_FACTOR * min(len(text), _BUDGET_FULL) + _BUDGET_LONG * len(text) + _BUDGET_LEAST
    # What was compressed has a budget of its own: it may not use up that of the other readings.
    grown = _GROWN_FACTOR * len(text) + _BUDGET_LEAST
    seen = {text}
    level = [View(text)]
    yield level[0]
    for _ in range(_DEPTH):
        deeper = []
        for view in level:
            for made in _made_of(view):
                if made.text in seen:
                    continue
                long = len(made.text) > len(text)
                left = grown if long else budget
                if len(made.text) > left:
                    if long:  # nobody packs so much into so little but to have it go unread
                        yield made.unread()
                    continue
                if long:
                    grown -= len(made.text)
                else:
                    budget -= len(made.text)
                seen.add(made.text)
                deeper.append(made)
                yield made
        level = deeper


def _made_of(view: View) -> Iterator[View]:
    """What one step makes of a view. Steps whose order does not matter are taken in one order only."""
    last = view.how[-1] if view.how else ""
    if last in _LAST_STEPS:
        return

    def made(name: str, decoded: Decoded | None, *, loose: bool) -> Iterator[View]:
        if decoded is not None:
            yield View(decoded.text, (*view.how, name), loose, view, decoded.parts)

    near = 0 if view.loose else NEAR
    for name, decode in {**ENCODINGS, **CLEANINGS}.items():
        yield from made(name, decode(view.text, near), loose=view.loose and name in CLEANINGS)
    if last == WRAPPED:
        return
    yield from made(WRAPPED, unwrapped(view.text, near), loose=view.loose)
    if last != REVERSED and not view.loose:
        yield from made(JOINED, joined(view.text), loose=True)
    if REVERSED not in view.how:
        yield View(view.text[::-1], (*view.how, REVERSED), view.loose, view)
    if not view.how or last in ENCODINGS:
        for name, change in _LAST_STEPS.items():
            yield from made(name, change(view.text), loose=view.loose)
