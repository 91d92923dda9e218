"""Finds which of some hundred literals a text has, in one sweep instead of a search for each.

Nearly every literal has a capital, a digit or a sign, which are rare in text. The three characters that end
with it are looked up for all literals at once; only literals whose three characters occur are searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain

_LOOKED_UP = 3
#: The characters whose triples or words are in memory at once.
_AT_A_TIME = 16 * 1024


class LiteralSearch:
    """Searches a text for literals."""

    def __init__(self, literals: Iterable[str]) -> None:
        self._by_triple: dict[str, list[str]] = {}
        self._others: list[str] = []
        for literal in sorted(set(literals)):
            ends = [at for at in range(_LOOKED_UP, len(literal) + 1) if not literal[at - 1].islower()]
            if ends:
                # A letter is the last choice: signs are rarer.
                end = min(ends, key=lambda at: (literal[at - 1].isalnum(), at))
                self._by_triple.setdefault(literal[end - _LOOKED_UP : end], []).append(literal)
            else:
                self._others.append(literal)
        lasts = "".join(sorted({triple[-1] for triple in self._by_triple}))
        self._triples = re.compile(rf"[{re.escape(lasts)}](?<=(.{{{_LOOKED_UP}}}))", re.DOTALL)

    def within(self, text: str) -> set[str]:
        """The literals that occur in the text."""
        found: set[str] = set()
        for at in range(0, len(text), _AT_A_TIME):
            found.update(self._triples.findall(text, at, at + _AT_A_TIME))
        possible = [
            literal for triple in self._by_triple.keys() & found for literal in self._by_triple[triple]
        ]
        return {literal for literal in (*possible, *self._others) if literal in text}


def words_of(text: str) -> Iterator[str]:
    """The words between blanks, as ``str.split`` finds them, without a list of all at once."""
    return chain.from_iterable(map(str.split, _stretches(text)))


def _stretches(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        end = text.find(" ", at + _AT_A_TIME)
        end = len(text) if end < 0 else end
        yield text[at:end]
        at = end
