"""The parts of a job that lie in files and options: read here, checked by ``JobSpec``."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any, TypeVar

from cellblock.errors import InvalidJob

_MAIN = "__main__.py"
_Given = TypeVar("_Given")


def read(
    program: Path,
    *,
    entrypoint: str | None,
    files: list[str] | None,
    env: list[str] | None,
    inputs: list[str] | None,
    context: Path | None,
    artifacts: list[str] | None,
    stdin: Path | None,
) -> dict[str, Any]:
    """The fields of a JobSpec that these options stand for. Raises :class:`InvalidJob`."""
    if str(program) == "-" and stdin is not None and str(stdin) == "-":
        raise InvalidJob("stdin", "is '-' twice: standard input is the program already")
    beside = _once("files", [_named_file(given) for given in files or ()])
    fields: dict[str, Any] = {
        "stdin": _bytes(stdin, "stdin") if stdin else b"",
        "env": _once("env", [_pair(given, "env", "NAME=VALUE") for given in env or ()]),
        "inputs": {name: _json(name, text) for name, text in _once("inputs", _inputs(inputs)).items()},
        "context_path": str(context.absolute()) if context else None,
        "artifacts": tuple(artifacts or ()),
    }
    if program.is_dir():
        if entrypoint is None and not (program / _MAIN).is_file():
            raise InvalidJob("entrypoint", f"{program} has no {_MAIN}; name a file of it with --entrypoint")
        return {**fields, "files": {**_folder(program), **beside}, "entrypoint": entrypoint or _MAIN}
    if entrypoint is not None:
        raise InvalidJob("entrypoint", f"{program} is not a folder; --entrypoint names a file of one")
    return {**fields, "code": _text(program), "files": beside}


def _once(field: str, pairs: list[tuple[str, _Given]]) -> dict[str, _Given]:
    """By name. Raises :class:`InvalidJob` for one that is given twice: which was meant?"""
    found: dict[str, _Given] = {}
    for name, given in pairs:
        if name in found:
            raise InvalidJob(f"{field}.{name}", "is given twice")
        found[name] = given
    return found


def _inputs(inputs: list[str] | None) -> list[tuple[str, str]]:
    return [_pair(given, "inputs", "NAME=JSON") for given in inputs or ()]


def _pair(given: str, field: str, form: str) -> tuple[str, str]:
    name, sign, value = given.partition("=")
    if not sign:
        raise InvalidJob(field, f"{name!r} has no '='; write {form}")
    return name, value


def _json(name: str, text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidJob(f"inputs.{name}", f"is not JSON: {error}; text needs quotes within") from None


def _named_file(given: str) -> tuple[str, bytes]:
    """NAME=PATH, or PATH alone: a relative one keeps its folders, any other only its name."""
    name, sign, path = given.partition("=")
    if sign:
        return name, _bytes(Path(path), "files")
    plain = Path(os.path.normpath(given))
    inside = not plain.is_absolute() and ".." not in plain.parts
    return plain.as_posix() if inside else plain.name, _bytes(Path(given), "files")


def _folder(folder: Path) -> dict[str, bytes]:
    """Every regular file below; hidden ones and what Python has compiled stay behind.

    Follows no link, as the folder can be somebody else's work: a link in it could name any file of the
    caller's. Raises :class:`InvalidJob` for the first one.
    """
    contents: dict[str, bytes] = {}
    top = folder.resolve()
    try:
        for path, folders, files, opened in os.fwalk(top, onerror=_raise):
            folders[:] = sorted(name for name in folders if _is_sent(name))
            for name in sorted((*folders, *filter(_is_sent, files))):
                below = (Path(path) / name).relative_to(top).as_posix()
                data = _regular(name, opened, below)
                if data is not None:
                    contents[below] = data
    except OSError as error:
        raise InvalidJob("files", f"{error.filename or folder} cannot be read: {error.strerror}") from error
    return dict(sorted(contents.items()))


def _is_sent(name: str) -> bool:
    return not name.startswith(".") and name != "__pycache__"


def _raise(error: OSError) -> None:
    raise error


def _regular(name: str, folder: int, below: str) -> bytes | None:
    """The content of a regular file in an opened folder; None for what is no file, such as a folder."""
    kind = os.lstat(name, dir_fd=folder).st_mode
    try:
        if not stat.S_ISREG(kind) and not stat.S_ISLNK(kind):
            return None
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise InvalidJob(
                "files",
                f"{below} is a link, and no link of a folder is followed: put the file itself there, or "
                f"remove the link and name the file with --file {below}=PATH",
            ) from None
        raise
    with os.fdopen(file, "rb") as opened:
        return opened.read() if stat.S_ISREG(os.fstat(file).st_mode) else None


def _bytes(path: Path, field: str) -> bytes:
    if str(path) == "-":
        return sys.stdin.buffer.read()
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidJob(field, f"{path} cannot be read: {error.strerror}") from error


def _text(path: Path) -> str:
    try:
        return _bytes(path, "code").decode()
    except UnicodeDecodeError as error:
        raise InvalidJob(
            "code", f"{path} is not UTF-8 text: byte {error.start} is 0x{error.object[error.start]:02x}"
        ) from error
