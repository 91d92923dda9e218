"""The declarations of the scripts in scripts/: keys and arguments, in the order that each script takes them.

A script calls ``arguments('name number# ...', {'key', ...})`` once. A name with ``#`` is a whole number; a
last name with ``...`` stands for a list. scripts/prelude/arguments.lua describes the same for Lua.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, cast

from cellblock.errors import CellblockError

FOLDER = resources.files(__package__) / "scripts"
#: The parts of scripts/prelude, which stand before every script, each before those that use it.
_PRELUDE = ("constants", "arguments", "record", "pressure", "lanes", "account", "blobs", "ending")
_CONSTANT = re.compile(r"^local ([A-Z_]+) = ('[^']*'|\{[^}]*\})", re.MULTILINE)
_CALL = re.compile(r"= arguments\(([^)]*)\)")
_PART = re.compile(r"'(?P<text>[^']*)'|\{(?P<names>[^}]*)\}|(?P<constant>[A-Z_]+)")
_LIST = "..."
#: Redis takes these without being told how; a truth value it refuses.
_AS_THEY_ARE = frozenset({str, int, bytes})


class BadCall(CellblockError):
    """A script was called with arguments that do not fit, and changed nothing: a defect of cellblock."""


#: Values by declared name; a sequence for a declared list.
CallKeys = Mapping[str, str | Sequence[str]]
Arguments = Mapping[str, str | int | bytes | Sequence[str]]


@dataclass(frozen=True, slots=True)
class Declaration:
    """The names that a script takes, in order. A name that ends with ``...`` is a list."""

    script: str
    keys: tuple[str, ...]
    arguments: tuple[str, ...]

    def key_list(self, keys: CallKeys) -> list[str]:
        """The call's KEYS in order. Raises :class:`BadCall` for a name that is missing or not declared."""
        return self._in_order(self.keys, keys)

    def argument_list(self, arguments: Arguments) -> list[str | int | bytes]:
        """The call's ARGV in order, truth values as 1 and 0. Raises :class:`BadCall` as :meth:`key_list`."""
        return self._in_order(self.arguments, arguments)

    def _in_order(self, names: tuple[str, ...], given: Arguments) -> list[Any]:
        singles, rest, known = _split(names)
        if given.keys() != known:
            wrong = ", ".join(sorted(given.keys() ^ known))
            raise BadCall(f"{self.script}: {wrong}: missing, or not declared by the script")
        found = [given[name] for name in singles]
        ordered = [one if type(one) in _AS_THEY_ARE else self._single(one, singles, given) for one in found]
        if rest is not None:
            if isinstance(given[rest], str | int | bytes):
                raise self._unfit(rest)
            ordered += map(_text, cast(Sequence[str], given[rest]))
        return ordered

    def _single(
        self, value: str | int | bytes | Sequence[str], singles: Sequence[str], given: Arguments
    ) -> str:
        if not isinstance(value, str | int):
            raise self._unfit(next(name for name in singles if given[name] is value))
        return _text(value)

    def _unfit(self, name: str) -> BadCall:
        return BadCall(f"{self.script}: {name} is a list and is not given one, or the reverse")


@cache  # four calls of each job ask for the names of a few scripts
def _split(names: tuple[str, ...]) -> tuple[tuple[str, ...], str | None, Set[str]]:
    """Declared names without their marks: those of one value, the list that may follow, and all of them."""
    rest = names[-1].removesuffix(_LIST) if names[-1].endswith(_LIST) else None
    plain = tuple(name.removesuffix(_LIST) for name in names)
    return plain if rest is None else plain[:-1], rest, frozenset(plain)


def _text(value: str | int) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def script_names() -> list[str]:
    """The names of all scripts, sorted."""
    files = (Path(entry.name) for entry in FOLDER.iterdir())
    return sorted(file.stem for file in files if file.suffix == ".lua")


@cache
def source_of(script: str) -> str:
    """The text of a script, without the prelude."""
    return (FOLDER / f"{script}.lua").read_text()


@cache
def prelude() -> str:
    """What stands before every script: shared constants and functions."""
    return "\n".join((FOLDER / "prelude" / f"{part}.lua").read_text() for part in _PRELUDE)


@cache
def declaration_of(script: str) -> Declaration:
    """The declaration of a script. Raises :class:`BadCall` for a script without one."""
    found = _CALL.search(source_of(script))
    if found is None:
        raise BadCall(f"{script}: no call of arguments(...) was found in it")
    constants = dict(_CONSTANT.findall(prelude()))
    arguments: list[str] = []
    keys: list[str] = []
    for part in _PART.finditer(found[1]):
        text = constants[part["constant"]] if part["constant"] else part[0]
        if text.startswith("{"):
            keys += re.findall(r"'([^']+)'", text)
        else:
            arguments += (name.rstrip("#") for name in text.strip("'").split())
    return Declaration(script, tuple(keys), tuple(arguments))
