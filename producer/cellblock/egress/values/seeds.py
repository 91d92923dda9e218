"""Finds seed phrases of wallets (BIP-39): twelve or more words of one list of 2,048, and no others.

Words are recognised by their first four letters, as the standard says; the data file beside this has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.resources import files

#: Words with only signs and numbers between them, as in lists, tables and quotations.
_RUN = re.compile(r"(?<![a-z])[a-z]{3,8}(?:(?:[\s,;|\"']|\d{1,2}[.):]?(?=[\s|])){1,24}[a-z]{3,8}){11,}")
#: Some words of the text stand close together.
_WORDS = re.compile(r"(?<![a-z])[a-z]{3,8}(?:[\s,;|\"']{1,4}(?:\d{1,2}[.):]?\s)?[a-z]{3,8}){6}")
#: Characters that no run has, and the length of the shortest run.
_BREAK, _RUN_CHARS = re.compile(r"[^a-z\s,;|\"'\d.):]+"), 47
_WORD = re.compile(r"[a-z]+")
_LENGTHS = {12, 15, 18, 21, 24}


@cache
def beginnings() -> dict[str, int]:
    """The number of every word, by its first four letters."""
    held = files("cellblock.egress.values").joinpath("bip39_english.txt").read_text(encoding="ascii")
    return {word: number for number, word in enumerate(held.split())}


def find(text: str) -> Iterator[tuple[int, int]]:
    """The places of phrases: words of the list in a row, of a valid number, with the right checksum."""
    sure = False
    for run in _runs(text):
        if not sure and _WORDS.search(text) is None:
            return
        sure = True
        begun: list[re.Match[str]] = []
        for word in _WORD.finditer(text, *run.span()):
            if word[0][:4] in beginnings():
                begun.append(word)
                continue
            yield from _whole(begun)
            begun = []
        yield from _whole(begun)


def _runs(text: str) -> Iterator[re.Match[str]]:
    """The matches of _RUN. It is tried between characters that no run has; most stand close together."""
    start = 0
    for other in _BREAK.finditer(text):
        if other.start() - start >= _RUN_CHARS:
            yield from _RUN.finditer(text, start, other.start())
        start = other.end()
    yield from _RUN.finditer(text, start)


def _whole(words: list[re.Match[str]]) -> Iterator[tuple[int, int]]:
    if len(words) in _LENGTHS and _is_checked([beginnings()[word[0][:4]] for word in words]):
        yield words[0].start(), words[-1].end()


def _is_checked(numbers: list[int]) -> bool:
    """Whether the last bits are the first bits of the hash of the bits before them, at 11 bits a word."""
    total = 11 * len(numbers)
    checked = total // 33
    whole = 0
    for number in numbers:
        whole = whole << 11 | number
    entropy = (whole >> checked).to_bytes((total - checked) // 8, "big")
    return sha256(entropy).digest()[0] >> (8 - checked) == whole & ((1 << checked) - 1)
