"""Finds the places that promise a secret, and which of their values are secrets.

Places are found by structure alone, from the names that promise something (lexicon.py); whether what stands
there is a secret is judged by values/judging.py. No product is named in either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cellblock.egress.places import calls, commands, containers, devices, lines, pairs, prose, tables
from cellblock.egress.places.assessment import is_secret
from cellblock.egress.places.lexicon import Name, names
from cellblock.egress.places.place import Behind, Place
from cellblock.egress.values import hashes, prefixed

#: Forms of places behind a name, by the family that the bench of left-out classes switches off.
BEHIND: dict[str, Behind] = {
    "signed": pairs.signed,
    "blocks": pairs.blocks,
    "beside": pairs.beside,
    "devices": devices.configured,
    "prose": prose.said,
}
#: Forms that need no telling name.
FREE: dict[str, Callable[[str], Iterator[Place]]] = {"commands": commands.find, "calls": calls.find}
#: What needs no place at all, or is one itself.
ALONE: dict[str, Callable[[str], Iterator[tuple[str, int, int]]]] = {
    "lines": lines.find,
    "containers": containers.find,
    "hashes": hashes.find,
    "prefixed": prefixed.find,
}
#: Read backwards, numbers and addresses are codes and passwords by chance.
_NOT_TURNED = {"prefixed", "lines", "hashes"}
_NAMES_MOST = 20_000


def find(text: str, *, turned: bool = False) -> Iterator[tuple[str, int, int]]:
    """Kind and place of every value that a place gives away, or that needs none.

    ``turned``: the text was read backwards, where what is drawn seems to begin with anything.
    """
    yield from find_named(text)
    for look in FREE.values():
        for place in look(text):
            if is_secret(text[place.start : place.end], place.promise, place.setting):
                yield place.kind, place.start, place.end
    for name, alone in ALONE.items():
        if not turned or name not in _NOT_TURNED:
            yield from alone(text)
    if turned and "lines" in ALONE:
        yield from lines.addresses(text)


def find_named(text: str) -> Iterator[tuple[str, int, int]]:
    """The same of names alone: not of addresses, headers and commands."""
    found = []
    for name in names(text):
        found.append(name)
        if len(found) >= _NAMES_MOST:
            break
    done = -1
    for name in found:
        if name.start < done:  # within a secret
            continue
        for place in _behind(text, name):
            if is_secret(text[place.start : place.end], place.promise, place.setting):
                done = max(done, place.end)
                yield place.kind, place.start, place.end
    if found:
        for place in tables.columns(text, found):
            if is_secret(text[place.start : place.end], place.promise, place.setting):
                yield place.kind, place.start, place.end


def _behind(text: str, name: Name) -> Iterator[Place]:
    for look in BEHIND.values():
        yield from look(text, name)
