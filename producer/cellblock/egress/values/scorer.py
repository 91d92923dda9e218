"""Scores how random a value looks, as opposed to written: the sum of learned weights of its n-grams.

There are a few thousand weights of one byte each, made by ``tests/bench/egress/train_scorer.py``. The scorer
knows only values, and no names or formats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.resources import files
from zlib import crc32

#: The number of weights; a bias follows them.
BUCKETS = 4096
#: The stored value of a weight of 1.
SCALE = 32
#: The number of characters that are scored: the rest of a value adds nothing.
CHARS = 64
_DIGIT = re.compile(r"\d")
_CLASSES = str.maketrans(
    {
        **dict.fromkeys("0123456789", "0"),
        **dict.fromkeys("abcdefghijklmnopqrstuvwxyz", "a"),
        **dict.fromkeys("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "A"),
    }
)


def grams(value: str) -> Iterator[int]:
    """The buckets of a value: of its pairs and triples of characters, and quadruples of their classes."""
    value = value[:CHARS]
    shown = "\x02" + _DIGIT.sub("0", value) + "\x03"
    low = shown.lower()
    classes = "\x02" + value.translate(_CLASSES) + "\x03"
    yield from _buckets(b"2", low, 2)
    yield from _buckets(b"3", low, 3)
    yield from _buckets(b"c", classes, 4)


def _buckets(kind: bytes, text: str, size: int) -> list[int]:
    before, places = crc32(kind), range(len(text) - size + 1)
    if text.isascii():  # a byte is a character, so that bytes can be cut instead
        raw = text.encode()
        return [crc32(raw[at : at + size], before) % BUCKETS for at in places]
    return [crc32(text[at : at + size].encode("utf-8", "replace"), before) % BUCKETS for at in places]


@cache
def weights() -> tuple[float, ...]:
    """The learned weights, with the bias last."""
    raw = files("cellblock.egress.values").joinpath("weights.bin").read_bytes()
    return tuple((byte - 128) / SCALE for byte in raw)


@lru_cache(maxsize=4096)
def score(value: str) -> float:
    """The score of a value. Above 0 it is probably random; a higher score is more certain."""
    held = weights()
    return sum(map(held.__getitem__, grams(value))) + held[BUCKETS]
