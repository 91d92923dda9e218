"""Seed phrases of wallets (BIP-39): a dozen words of one list of 2,048, which no sentence is made of.

The list is told by the first four letters of its words, as the standard says; in the data file beside this.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.resources import files

#: Words with nothing but signs and numbers between, as lists, tables and quotations show them.
_RUN = re.compile(r"(?<![a-z])[a-z]{3,8}(?:(?:[\s,;|\"']|\d{1,2}[.):]?(?=[\s|])){1,24}[a-z]{3,8}){11,}")
#: A run has five words in a row; most texts that are no prose have not.
_WORDS = re.compile(r"(?<![a-z])[a-z]{3,8}(?:[\s,;|\"']{1,4}(?:\d{1,2}[.):]?\s)?[a-z]{3,8}){6}")
_WORD = re.compile(r"[a-z]+")
_LENGTHS = {12, 15, 18, 21, 24}


@cache
def beginnings() -> dict[str, int]:
    """The first four letters of every word, and its number."""
    held = files("cellblock.egress.values").joinpath("bip39_english.txt").read_text(encoding="ascii")
    return {word: number for number, word in enumerate(held.split())}


def find(text: str) -> Iterator[tuple[int, int]]:
    """Where as many words of the list stand in a row, and the last one fits the others."""
    if _WORDS.search(text) is None:
        return
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
    if len(words) in _LENGTHS and _is_checked([beginnings()[word[0][:4]] for word in words]):
        yield words[0].start(), words[-1].end()


def _is_checked(numbers: list[int]) -> bool:
    """Whether the last bits are the first ones of the hash of those before, 11 bits a word."""
    total = 11 * len(numbers)
    checked = total // 33
    whole = 0
    for number in numbers:
        whole = whole << 11 | number
    entropy = (whole >> checked).to_bytes((total - checked) // 8, "big")
    return sha256(entropy).digest()[0] >> (8 - checked) == whole & ((1 << checked) - 1)
