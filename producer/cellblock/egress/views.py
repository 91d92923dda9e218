"""Every way in which one text can be read: as it stands, decoded, turned round, put together.

A view is a text that somebody could make of another one, and knows where each part of it came from. Views are
made of views, so that base64 of a reversed text split over lines is read as well: three steps deep, and of all
views together no more than a fixed multiple of the text, whatever it holds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from cellblock.egress import decodings
from cellblock.egress.decodings import Part

_DEPTH = 3
#: Characters of all views together, as a multiple of the text's own, and what any text may have.
_BUDGET_FACTOR, _BUDGET_LEAST = 24, 64 * 1024


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
        if self.parts is None:  # turned round
            length = len(self.text)
            return self.source.locate(length - end, length - start)
        first, last = self._part(start), self._part(max(start, end - 1))
        begin = first.start if first.whole else first.start + start - first.at
        finish = last.end if last.whole else last.start + end - last.at
        return self.source.locate(begin, finish)

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
    budget = max(_BUDGET_LEAST, _BUDGET_FACTOR * len(text))
    seen = {text}
    level = [View(text)]
    yield level[0]
    for _ in range(_DEPTH):
        deeper = []
        for view in level:
            for made in _made_of(view):
                if made.text in seen:
                    continue
                budget -= len(made.text)
                if budget < 0:
                    return
                seen.add(made.text)
                deeper.append(made)
                yield made
        level = deeper


def _made_of(view: View) -> Iterator[View]:
    """What one step makes of a view. Steps whose order does not matter are taken in one order only."""
    if "rot13" in view.how:
        return
    for name, decode in decodings.DECODINGS.items():
        decoded = decode(view.text)
        if decoded is not None:
            yield View(decoded.text, (*view.how, name), view.loose, view, decoded.parts)
    last = view.how[-1] if view.how else None
    if last != "reversed":
        if not view.loose and (joined := decodings.joined(view.text)) is not None:
            yield View(joined.text, (*view.how, "joined"), True, view, joined.parts)
        if "reversed" not in view.how:
            yield View(view.text[::-1], (*view.how, "reversed"), view.loose, view)
    if last is None or last in decodings.DECODINGS:
        rotated = decodings.rot13(view.text)
        yield View(rotated.text, (*view.how, "rot13"), view.loose, view, rotated.parts)
