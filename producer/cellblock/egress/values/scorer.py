"""How much a value looks drawn at random rather than written: a sum of learned weights of its n-grams.

A few thousand weights of one byte each, made by ``tests/bench/egress/train_scorer.py``. It knows values only,
nothing of names or formats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.resources import files
from zlib import crc32

#: As many weights, a bias last.
BUCKETS = 4096
#: A weight of one is written as this.
SCALE = 32
#: More of a value says nothing new.
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
    """The buckets of a value: its pairs and threes of characters, and its fours of their classes."""
    value = value[:CHARS]
    shown = "\x02" + _DIGIT.sub("0", value) + "\x03"
    low = shown.lower()
    classes = "\x02" + value.translate(_CLASSES) + "\x03"
    for at in range(len(low) - 1):
        yield crc32(b"2" + low[at : at + 2].encode("utf-8", "replace")) % BUCKETS
    for at in range(len(low) - 2):
        yield crc32(b"3" + low[at : at + 3].encode("utf-8", "replace")) % BUCKETS
    for at in range(len(classes) - 3):
        yield crc32(b"c" + classes[at : at + 4].encode("utf-8", "replace")) % BUCKETS


@cache
def weights() -> tuple[float, ...]:
    """As they were learned."""
    raw = files("cellblock.egress.values").joinpath("weights.bin").read_bytes()
    return tuple((byte - 128) / SCALE for byte in raw)


@lru_cache(maxsize=4096)
def score(value: str) -> float:
    """Above zero: rather drawn; the further, the surer."""
    held = weights()
    return sum(held[bucket] for bucket in grams(value)) + held[BUCKETS]
