"""All readings of one text: as it stands, decoded, reversed, joined.

A view is a text that a reader could make from another one, and it knows the origin of each of its parts.
Views are made from views, so that base64 of a reversed text split over lines is read too: three steps deep.
All views together have at most a fixed multiple of the text's characters, whatever it holds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, islice, pairwise
from operator import eq

from cellblock.egress.bases import others
from cellblock.egress.cleanings import CLEANINGS, joined, rot13, swapped, unbroken, unwrapped
from cellblock.egress.decoded import NEAR, Decoded, Decoding, Part
from cellblock.egress.encodings import ENCODINGS
from cellblock.egress.layouts import LAYOUTS, whole
from cellblock.egress.readable import TOO_LONG

_DEPTH = 3
#: The most characters of all views together: many times a text that a person could read, a few times a longer
#: one, and enough for a short one whatever it holds.
_BUDGET_FACTOR, _BUDGET_FULL, _BUDGET_LONG, _BUDGET_LEAST = 64, 64 * 1024, 3, 64 * 1024
_GROWN_FACTOR = 6
#: The share of this for the readings of each depth, in per cent.
_DEPTH_SHARES = (60, 25, 15)
JOINED, REVERSED, WRAPPED = "joined", "reversed", "wrapped"
#: No other step is tried after these.
_LAST_STEPS = {"rot13": rot13, "swapped": swapped}
#: Tried only on plain readings, because each costs a sweep.
_RARER: dict[str, Decoding] = {"other base": others}
_WHOLE_STEPS = {"noise", "every second", "words backwards", "shifted", "columns"}
_BEFORE_WHOLE = {"numbered", "escaped", "invisible", "base64", "hex"}


@dataclass(frozen=True)
class View:
    """One reading. ``loose``: separate words were joined, so borders between words are gone."""

    text: str
    how: tuple[str, ...] = ()
    loose: bool = False
    source: View | None = None
    parts: Callable[[], list[Part]] | None = None

    def locate(self, start: int, end: int) -> tuple[int, int]:
        """The place in the original text that this stretch of the view came from."""
        if self.source is None:
            return start, end
        return self.source.locate(*self._in_source(start, end))

    def unread(self) -> View:
        """A replacement for this view, for which there was no room: a sign that its source was not read."""
        whole = len(self.source.text) if self.source is not None else 0
        return View(
            text=TOO_LONG,
            how=self.how,
            loose=False,
            source=self.source,
            parts=lambda: [Part(0, 0, whole, whole=True)],
        )

    def pieces(self, start: int, end: int) -> list[tuple[int, int]]:
        """The pieces that a stretch of a loose view had before it was joined, as places in the view."""
        if self.source is None:
            return [(start, end)]
        if self.how[-1] != JOINED:
            return [(start, end)] if not self.loose else self.source.pieces(*self._in_source(start, end))
        borders = self._borders
        found = []
        for first, last in pairwise(islice(borders, bisect_right(borders, start) - 1, None)):
            if first >= end:
                break
            found.append((max(start, first), min(end, last)))
        return found

    def is_regular(self, alike: int, most_chars: int) -> bool:
        """Whether ``alike`` pieces in a row had one length, at most ``most_chars``, anywhere in the view."""
        if self.source is None:
            return False
        if self.how[-1] != JOINED:
            return self.source.is_regular(alike, most_chars)
        lengths = self._lengths
        same = bytes(map(eq, lengths, lengths[1:]))  # 1 where a piece has the length of the next one
        at = same.find(b"\1" * (alike - 1))
        while at >= 0 and lengths[at] > most_chars:
            at = same.find(b"\1" * (alike - 1), at + 1)
        return at >= 0

    def _in_source(self, start: int, end: int) -> tuple[int, int]:
        if self.parts is None:  # a reversed view
            length = len(self.text)
            return length - end, length - start
        first, last = self._part(start), self._part(max(start, end - 1))
        begin = first.start if first.whole else first.start + start - first.at
        finish = last.end if last.whole else last.start + end - last.at
        return begin, finish

    def _part(self, position: int) -> Part:
        return self._parts[max(0, bisect_right(self._starts, position) - 1)]

    @cached_property
    def _lengths(self) -> list[int]:
        """The lengths of the pieces that a joined view consists of."""
        return list(map(len, unbroken(self.source.text))) if self.source is not None else []

    @cached_property
    def _borders(self) -> list[int]:
        return [0, *accumulate(self._lengths)]

    @cached_property
    def _parts(self) -> list[Part]:
        return self.parts() if self.parts is not None else []

    @cached_property
    def _starts(self) -> list[int]:
        return [part.at for part in self._parts]


@dataclass
class ReadingBudget:
    """The characters left for readings of all texts of one job; with none left, texts count as not read."""

    chars_left: int = 64 * 1024 * 1024


def views(text: str, budget: ReadingBudget | None = None) -> Iterator[View]:
    """The text itself, then every other reading of it that differs, each followed by readings made from it.

    At most one reading of each depth is in memory at a time. Each depth has a share of its own, so that deep
    readings do not use up the room of plain ones.
    """
    shares = _Shares(text, budget or ReadingBudget())
    first = View(text)
    yield first
    yield from _below(first, shares, 0)


class _Shares:
    """The room for readings of one text, by depth; unpacked content has a share of its own."""

    def __init__(self, text: str, job: ReadingBudget) -> None:
        allowed = _BUDGET_FACTOR * min(len(text), _BUDGET_FULL) + _BUDGET_LONG * len(text) + _BUDGET_LEAST
        self._left = [allowed * share // 100 for share in _DEPTH_SHARES]
        self._grown = _GROWN_FACTOR * len(text) + _BUDGET_LEAST
        self._job = job
        self._length = len(text)
        self._seen = {hash(text)}

    def is_new(self, text: str) -> bool:
        """Whether no earlier reading was equal; only hashes are kept."""
        found = hash(text)
        if found in self._seen:
            return False
        self._seen.add(found)
        return True

    def take(self, made: View, depth: int) -> View | None:
        """The reading if there is room, else None, or a sign that content was not read."""
        size = len(made.text)
        if size > self._job.chars_left:
            self._job.chars_left = 0
            return made.unread()
        if size > self._length:
            if size > self._grown:  # such a ratio is only used to hide content
                return made.unread()
            self._grown -= size
        else:
            if size > self._left[depth]:
                return None
            self._left[depth] -= size
        self._job.chars_left -= size
        return made


def _below(view: View, shares: _Shares, depth: int) -> Iterator[View]:
    for made in _made_of(view):
        if not shares.is_new(made.text):
            continue
        taken = shares.take(made, depth)
        if taken is None:
            continue
        yield taken
        if taken is made and depth + 1 < _DEPTH:
            yield from _below(made, shares, depth + 1)


def _made_of(view: View) -> Iterator[View]:  # noqa: C901
    """The views that one step makes from a view. Steps whose order does not matter run in one order only."""
    last = view.how[-1] if view.how else ""
    if last in _LAST_STEPS or last in _WHOLE_STEPS:
        return

    def made(name: str, decoded: Decoded | None, *, loose: bool) -> Iterator[View]:
        if decoded is not None:
            yield View(
                text=decoded.text, how=(*view.how, name), loose=loose, source=view, parts=decoded.parts
            )

    near = 0 if view.loose else NEAR
    shallow = not view.loose and len(view.how) < 2 and last != REVERSED
    for name, decode in {**ENCODINGS, **(_RARER if shallow else {})}.items():
        yield from made(name, decode(view.text, near), loose=False)
    for name, decode in {**CLEANINGS, **(LAYOUTS if shallow else {})}.items():
        if name == last == "numbered":  # a second number is a table's first column
            continue
        yield from made(name, decode(view.text, near), loose=view.loose)
    if last == WRAPPED or (last in LAYOUTS and last != "labelled"):  # these have joined the text already
        return
    yield from made(WRAPPED, unwrapped(view.text, near), loose=view.loose)
    if last != REVERSED and not view.loose:
        yield from made(JOINED, joined(view.text), loose=True)
    if REVERSED not in view.how:
        yield View(view.text[::-1], (*view.how, REVERSED), view.loose, view)
    if not view.how or last in ENCODINGS:
        for name, change in _LAST_STEPS.items():
            yield from made(name, change(view.text), loose=view.loose)
    if not view.loose and REVERSED not in view.how and (not view.how or last in _BEFORE_WHOLE):
        for name, reading, parts in whole(view.text):
            yield View(text=reading, how=(*view.how, name), loose=False, source=view, parts=parts)
