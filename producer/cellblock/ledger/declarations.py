"""The declarations of the scripts in scripts/: keys and arguments, in the order that each script takes them.

A script calls ``arguments('name number# ...', {'key', ...})`` once. A name with ``#`` is a whole number; a
last name with ``...`` stands for a list. scripts/prelude/arguments.lua describes the same for Lua.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from cellblock.errors import CellblockError

FOLDER = resources.files(__package__) / "scripts"
#: The parts of scripts/prelude, which stand before every script, each before those that use it.
_PRELUDE = ("constants", "arguments", "record", "pressure", "lanes", "account", "ending")
_CONSTANT = re.compile(r"^local ([A-Z_]+) = ('[^']*'|\{[^}]*\})", re.MULTILINE)
_CALL = re.compile(r"= arguments\(([^)]*)\)")
_PART = re.compile(r"'(?P<text>[^']*)'|\{(?P<names>[^}]*)\}|(?P<constant>[A-Z_]+)")
_LIST = "..."


class BadCall(CellblockError):
    """A script was called with arguments that do not fit, and changed nothing: a defect of cellblock."""


#: Values by declared name; a sequence for a declared list.
CallKeys = Mapping[str, str | Sequence[str]]
Arguments = Mapping[str, str | int | Sequence[str]]


@dataclass(frozen=True, slots=True)
class Declaration:
    """The names that a script takes, in order. A name that ends with ``...`` is a list."""

    script: str
    keys: tuple[str, ...]
    arguments: tuple[str, ...]

    def key_list(self, keys: CallKeys) -> list[str]:
        """The call's KEYS in order. Raises :class:`BadCall` for a name that is missing or not declared."""
        return self._in_order(self.keys, keys)

    def argument_list(self, arguments: Arguments) -> list[str]:
        """The call's ARGV in order, truth values as 1 and 0. Raises :class:`BadCall` as :meth:`key_list`."""
        return self._in_order(self.arguments, arguments)

    def _in_order(self, names: Sequence[str], given: Arguments) -> list[str]:
        wrong = set(given).symmetric_difference(name.removesuffix(_LIST) for name in names)
        if wrong:
            raise BadCall(
                f"{self.script}: {', '.join(sorted(wrong))}: missing, or not declared by the script"
            )
        ordered: list[str] = []
        for name in names:
            value = given[name.removesuffix(_LIST)]
            if name.endswith(_LIST) == isinstance(value, str | int):
                raise BadCall(f"{self.script}: {name} is a list and is not given one, or the reverse")
            ordered += [_text(value)] if isinstance(value, str | int) else map(_text, value)
        return ordered


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
