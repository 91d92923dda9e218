"""Writes one expression for many words, as a tree of their beginnings.

``re`` tries the alternatives ``a|b|c`` one after the other at every position of a text. Here words of one
beginning share it, so that a position costs about one step, however many words there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property


class Stems:
    """Stems that are searched anywhere in a word."""

    def __init__(self, stems: Iterable[str]) -> None:
        self._stems = list(stems)
        self._in_ascii = re.compile(alternation(stem for stem in self._stems if stem.isascii()))

    def within(self, word: str) -> bool:
        """Whether the word has one of them. Most words are ASCII, where only a few letters begin a stem."""
        return (self._in_ascii if word.isascii() else self._in_any).search(word) is not None

    @cached_property
    def _in_any(self) -> re.Pattern[str]:
        return re.compile(alternation(self._stems))


class _Node(dict[str, "_Node"]):
    """What can follow a beginning. ``whole``: the beginning is itself one of the words."""

    whole = False


def alternation(words: Iterable[str]) -> str:
    """An expression that matches any of these words, the longest one at a place."""
    root = _Node()
    for word in words:
        node = root
        for char in word:
            node = node.setdefault(char, _Node())
        node.whole = True
    return _written(root)


def _written(node: _Node) -> str:
    branches = [re.escape(char) + _written(following) for char, following in sorted(node.items())]
    if not branches:
        return ""
    if len(branches) == 1 and not node.whole:
        return branches[0]
    return f"(?:{'|'.join(branches)}){'?' if node.whole else ''}"
