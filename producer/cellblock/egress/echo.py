"""Finds outputs that copy the context: compares their n-grams with chunks of the context.

It takes two steps, as in sequence search. An index of the context holds a sample of its n-grams, each with
its block; one pass builds it, in bounded memory whatever the context's size. An output's n-grams that are in
the index point to blocks, and only those are read again and compared in full. So the decision is exact: the
output has more than ``similarity`` of the n-grams of some chunk, and is long enough to be that chunk.

Only letters and digits are compared, without case, so that indentation, line breaks, quotation marks and
upper case hide nothing; views.py reads encoded text.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from cellblock.egress.context import LEAST_BYTES, ContextSource

#: Long enough that two texts about one subject share few n-grams, short enough for a cell of a table.
_GRAM_BYTES = 16
_READ_BYTES = 256 * 1024
_BLOCK_BYTES = 16 * 1024
_BLOCK_BITS = 20
_ENTRY_BYTES = 8
#: The lowest step of sampling: one of 32 n-grams is kept.
_LEAST_SHIFT = 5
#: The most blocks compared in full for one text: those that most n-grams point to.
_BLOCKS_COMPARED = 64
_PLACES_LOOKED_AT = 64

_LETTERS = bytes(c + 32 if 65 <= c <= 90 else c for c in range(256))
_OTHERS = bytes(c for c in range(128) if not chr(c).isalnum())
_KEPT = np.array([c >= 128 or chr(c).isalnum() for c in range(256)])
# Odd constants for multiplicative hashing; any constants that mix high bits would do.
_K1, _K2, _K3 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0xD6E8FEB86659FD93)

Hashes = NDArray[np.uint64]


def _plain(raw: bytes) -> bytes:
    """The letters and digits in lower case; in other scripts every character is kept."""
    if not raw.isascii():
        raw = raw.decode("utf-8", "replace").lower().encode()
    return raw.translate(_LETTERS, _OTHERS)


def _grams(plain: bytes) -> Hashes:
    """A hash for every n-gram, indexed by its first position."""
    count = len(plain) - _GRAM_BYTES + 1
    if count <= 0:
        return np.empty(0, np.uint64)
    words = np.ndarray((count + 8,), "<u8", plain, 0, (1,))
    hashes = words[:-8] * _K1
    hashes += words[8:] * _K2
    hashes ^= hashes >> np.uint64(29)
    hashes *= _K3
    return hashes


def _distinct(hashes: Hashes) -> int:
    """Sorts in place and removes duplicates. Returns the number of distinct hashes."""
    hashes.sort()
    if not len(hashes):
        return 0
    once = hashes[np.concatenate(([True], hashes[1:] != hashes[:-1]))]
    hashes[: len(once)] = once
    return len(once)


def _sorted(hashes: Hashes) -> Hashes:
    return hashes[: _distinct(hashes)]


@dataclass(frozen=True, slots=True)
class ContextIndex:
    """A sample of a context's n-grams. ``entries``: the high bits of each hash, with its block below them."""

    source: ContextSource
    entries: Hashes
    shift: int
    block_bytes: int

    @property
    def memory_bytes(self) -> int:
        """The memory of the index, in bytes."""
        return int(self.entries.nbytes)

    @classmethod
    def build(cls, source: ContextSource, *, memory_bytes: int) -> ContextIndex:
        """Builds the index in one pass, in at most ``memory_bytes``, and twice that at the end."""
        most = max(1024, memory_bytes // _ENTRY_BYTES)
        shift = max(_LEAST_SHIFT, (source.size // most).bit_length())
        block_bytes = _BLOCK_BYTES
        while source.size // block_bytes >> _BLOCK_BITS:
            block_bytes *= 2
        entries, held, rest = np.empty(most, np.uint64), 0, b""
        for start in range(0, source.size, _READ_BYTES):
            found, rest = _sampled(
                raw=source.read(start, _READ_BYTES),
                start=start,
                before=rest,
                shift=shift,
                block_bytes=block_bytes,
            )
            if held + len(found) > most:  # repetitive or unusually dense text
                held = _thin(entries[:held])
                found = found[: most - held]
            entries[held : held + len(found)] = found
            held += len(found)
        return cls(source, entries[: _distinct(entries[:held])].copy(), shift, block_bytes)

    def is_echoed(self, texts: Iterable[str], *, chunk_bytes: int, similarity: float) -> bool:
        """Whether a text has ``similarity`` of a chunk's n-grams. A short context counts as one chunk."""
        if self.source.size < LEAST_BYTES:
            return False
        chunk = min(chunk_bytes, self.source.size)
        seen = set()
        for text in texts:
            plain = _plain(text.encode("utf-8", "replace"))
            if plain in seen:
                continue
            seen.add(plain)
            if 2 * len(plain) >= similarity * chunk and self._is_echoed(plain, chunk, similarity):
                return True
        return False

    def _is_echoed(self, plain: bytes, chunk: int, similarity: float) -> bool:
        grams = _sorted(_grams(plain))
        for block in self._blocks(grams):
            start = max(0, (block - 1) * self.block_bytes)
            raw = self.source.read(start, 3 * self.block_bytes)
            if _has_chunk_of(
                raw=raw, plain=plain, grams=grams, chunk=min(chunk, len(raw)), similarity=similarity
            ):
                return True
        return False

    def _blocks(self, grams: Hashes) -> list[int]:
        """The blocks of the context that have n-grams of the output, those with most of them first."""
        sampled = grams >> np.uint64(_BLOCK_BITS)
        first = np.searchsorted(self.entries, sampled << np.uint64(_BLOCK_BITS))
        last = np.searchsorted(self.entries, (sampled + np.uint64(1)) << np.uint64(_BLOCK_BITS))
        # For n-grams that are everywhere, a few blocks are enough.
        telling = [
            (a, min(b, a + _PLACES_LOOKED_AT))
            for a, b in zip(first.tolist(), last.tolist(), strict=True)
            if a < b
        ]
        if not telling:
            return [0] if self.source.size <= 3 * self.block_bytes else []
        mask = np.uint64((1 << _BLOCK_BITS) - 1)
        blocks, counts = np.unique(
            np.concatenate([self.entries[a:b] & mask for a, b in telling]), return_counts=True
        )
        return [int(b) for b in blocks[np.argsort(-counts, kind="stable")][:_BLOCKS_COMPARED]]


_of_sources: WeakKeyDictionary[ContextSource, ContextIndex] = WeakKeyDictionary()
_indexes: OrderedDict[tuple[object, ...], ContextIndex] = OrderedDict()
_being_built: dict[tuple[object, ...], threading.Lock] = {}
_look = threading.Lock()
_NOWHERE = ContextSource(0, lambda start, length: b"")


def index_of(source: ContextSource, *, memory_bytes: int) -> ContextIndex:
    """The index of a context, built once; meanwhile indexes of other contexts can be used.

    Indexes of sources with an identity are kept for later sources of the same identity, within
    ``memory_bytes`` together; the least recently used leaves first. The index of a source without identity
    lives as long as the source.
    """
    if source.identity is None:
        index = _of_sources.get(source)
        if index is None:
            index = ContextIndex.build(source, memory_bytes=memory_bytes)
            _of_sources[source] = replace(index, source=_NOWHERE)
        return replace(index, source=source)
    key = (*source.identity, memory_bytes)
    with _look:
        building = _being_built.setdefault(key, threading.Lock())
    with building:
        with _look:
            index = _indexes.pop(key, None)
        if index is None:
            index = ContextIndex.build(source, memory_bytes=memory_bytes)
        with _look:
            # The source belongs to its caller, who can close it afterwards: it must not be kept.
            _indexes[key] = replace(index, source=_NOWHERE)
            while len(_indexes) > 1 and sum(one.memory_bytes for one in _indexes.values()) > memory_bytes:
                _indexes.popitem(last=False)
            _being_built.pop(key, None)
    return replace(index, source=source)


def adopt(index: ContextIndex) -> None:
    """Uses an index that another process built as that of its source, which has no identity."""
    _of_sources[index.source] = replace(index, source=_NOWHERE)


def _is_sampled(hashes: Hashes, shift: int) -> NDArray[np.bool_]:
    # The lowest bits of a product mix worst, and the highest are the entry: use bits in between.
    bits = (hashes >> np.uint64(_BLOCK_BITS)) & np.uint64((1 << shift) - 1)
    sampled: NDArray[np.bool_] = bits == 0
    return sampled


def _sampled(raw: bytes, start: int, before: bytes, shift: int, block_bytes: int) -> tuple[Hashes, bytes]:
    """The entries of one stretch of the context, and its end, with which the next stretch begins."""
    blocks = [_plain(raw[at : at + block_bytes]) for at in range(0, len(raw), block_bytes)]
    plain = before + b"".join(blocks)
    hashes = _grams(plain)
    places = np.flatnonzero(_is_sampled(hashes, shift))
    lengths = [len(before) + len(blocks[0]), *map(len, blocks[1:])] if blocks else []
    borders = np.cumsum(np.array(lengths, np.intp))
    numbers = _numbers_of(places, borders, start, block_bytes)
    if len(hashes):  # plus the least hash of each block: every block has an entry
        least = _least_of_each(hashes, borders)
        places, numbers = (
            np.concatenate((places, least)),
            np.concatenate((numbers, _numbers_of(least, borders, start, block_bytes))),
        )
    mask = ~np.uint64((1 << _BLOCK_BITS) - 1)
    return (hashes[places] & mask) | numbers, plain[-(_GRAM_BYTES - 1) :]


def _numbers_of(places: NDArray[np.intp], borders: NDArray[np.intp], start: int, block_bytes: int) -> Hashes:
    """The number of the context's block for each of these places."""
    return np.searchsorted(borders, places, side="right").astype(np.uint64) + np.uint64(start // block_bytes)


def _least_of_each(hashes: Hashes, borders: NDArray[np.intp]) -> NDArray[np.intp]:
    edges = np.unique(np.clip(np.concatenate(([0], borders)), 0, len(hashes)))
    spans = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    return np.array([a + int(hashes[a:b].argmin()) for a, b in spans], np.intp)


def _thin(entries: Hashes) -> int:
    """Removes duplicates within a block, then every second entry while more than half of the space is full.
    Returns the number of entries left."""
    held = _distinct(entries)
    while 2 * held > len(entries):
        entries[: (held + 1) // 2] = entries[:held:2].copy()
        held = (held + 1) // 2
    return held


def _has_chunk_of(raw: bytes, plain: bytes, grams: Hashes, chunk: int, similarity: float) -> bool:
    """Whether the output has ``similarity`` of a chunk in this stretch of the context, and is long enough."""
    if not raw.isascii():
        raw = raw.decode("utf-8", "replace").lower().encode()
    kept = _KEPT[np.frombuffer(raw, np.uint8)]
    there = _grams(raw.translate(_LETTERS, _OTHERS))
    if not len(there):
        return False
    shared = _within(there, grams)
    covered = _reach(shared)
    # Blanks and punctuation belong to the characters before them.
    place = np.cumsum(kept) - 1
    spread = np.where(place >= 0, covered[np.maximum(place, 0)], False)
    sums = np.concatenate(([0], np.cumsum(spread)))
    best = int((sums[chunk:] - sums[:-chunk]).max()) if len(spread) >= chunk else int(sums[-1])
    if best < similarity * chunk:
        return False
    own = _reach(_within(_grams(plain), _sorted(there[shared])))
    # One line can match all of a repetitive chunk: the output must also have enough matching text itself.
    return int(own.sum()) >= similarity * chunk * float(kept.mean())


def _within(hashes: Hashes, wanted: Hashes) -> NDArray[np.bool_]:
    at = np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)
    return wanted[at] == hashes if len(wanted) else np.zeros(len(hashes), np.bool_)


def _reach(begins: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Marks the characters that lie in an n-gram beginning at one of these positions."""
    edges = np.zeros(len(begins) + _GRAM_BYTES, np.int32)
    edges[: len(begins)] += begins
    edges[_GRAM_BYTES:] -= begins
    return np.cumsum(edges)[:-1] > 0
