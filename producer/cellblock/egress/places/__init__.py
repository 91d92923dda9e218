"""Finds the places that promise a secret, and decides which of their values are secrets.

Places are found by structure alone, from names that promise something (lexicon.py); assessment.py decides
whether the value there is a secret. No product is named in either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from cellblock.egress.places import calls, commands, containers, devices, lines, pairs, prose, tables
from cellblock.egress.places.assessment import is_secret
from cellblock.egress.places.lexicon import Name, names
from cellblock.egress.places.place import Behind, Place
from cellblock.egress.values import hashes, prefixed

#: Forms of places behind a name. The keys are families, which the bench of left-out classes switches off.
BEHIND: dict[str, Behind] = {
    "signed": pairs.signed,
    "blocks": pairs.blocks,
    "beside": pairs.beside,
    "devices": devices.configured,
    "prose": prose.said,
}
#: Forms that need no telling name.
FREE: dict[str, Callable[[str], Iterator[Place]]] = {"commands": commands.find, "calls": calls.find}
#: Forms that need no place at all, or are a place themselves.
ALONE: dict[str, Callable[[str], Iterator[tuple[str, int, int]]]] = {
    "lines": lines.find,
    "containers": containers.find,
    "hashes": hashes.find,
    "prefixed": prefixed.find,
}
#: Not searched in reversed texts, where numbers and addresses look like codes and passwords by chance.
_NOT_TURNED = {"prefixed", "lines", "hashes"}
#: Names in memory at once.
_NAMES_AT_A_TIME = 20_000


def find(text: str, *, turned: bool = False) -> Iterator[tuple[str, int, int]]:
    """Kind and place of every secret value that a place shows, or that needs no place.

    ``turned``: the text is reversed. There, random values seem to begin with any prefix.
    """
    yield from find_named(text)
    for look in FREE.values():
        yield from _secret_in(text, look(text))
    for name, alone in ALONE.items():
        if not turned or name not in _NOT_TURNED:
            yield from alone(text)
    if turned and "lines" in ALONE:
        yield from lines.addresses(text)


def find_named(text: str) -> Iterator[tuple[str, int, int]]:
    """Kind and place of values behind names only, without those in addresses, headers and commands."""
    named, table_reader, continued = names(text), tables.Tables(text), pairs.Continued(text)
    done, some = -1, False
    while window := list(islice(named, _NAMES_AT_A_TIME)):
        some = True
        for name in window:
            if name.start < done:  # within a secret
                continue
            for place in _behind(text, name):
                if _promises_secret(text, place):
                    done = max(done, place.end)
                    yield place.kind, place.start, place.end
        yield from _secret_in(text, table_reader.below(window))
        yield from _secret_in(text, continued.below(window))
    if some:
        yield from _secret_in(text, table_reader.rest())


def _secret_in(text: str, places: Iterable[Place]) -> Iterator[tuple[str, int, int]]:
    for place in places:
        if _promises_secret(text, place):
            yield place.kind, place.start, place.end


def _promises_secret(text: str, place: Place) -> bool:
    return is_secret(text[place.start : place.end], place.promise, place.setting)


def _behind(text: str, name: Name) -> Iterator[Place]:
    for look in BEHIND.values():
        yield from look(text, name)
