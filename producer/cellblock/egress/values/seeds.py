"""Seed phrases of wallets (BIP-39): a dozen words of one list of 2,048, which no sentence is made of.

The list is told by the first four letters of its words, as the standard says; in the data file beside this.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

#: Words with nothing but signs and numbers between, as lists, tables and quotations show them.
_RUN = re.compile(r"[a-z]{3,8}(?:(?:[\s,;|\"']|\d{1,2}[.):]?(?=[\s|])){1,24}[a-z]{3,8}){11,}")
_WORD = re.compile(r"[a-z]+")
_LEAST = 12


@cache
def beginnings() -> frozenset[str]:
    """The first four letters of every word."""
    held = files("cellblock.egress.values").joinpath("bip39_english.txt").read_text(encoding="ascii")
    return frozenset(held.split())


def find(text: str) -> Iterator[tuple[int, int]]:
    """Where as many words of the list stand in a row, and nearly all of them differ."""
    for run in _RUN.finditer(text):
        begun: list[re.Match[str]] = []
        for word in _WORD.finditer(text, *run.span()):
            if word[0][:4] in beginnings():
                begun.append(word)
                continue
            yield from _whole(begun)
            begun = []
        yield from _whole(begun)


def _whole(words: list[re.Match[str]]) -> Iterator[tuple[int, int]]:
    if len(words) >= _LEAST and len({word[0] for word in words}) * 6 >= 5 * len(words):
        yield words[0].start(), words[-1].end()
