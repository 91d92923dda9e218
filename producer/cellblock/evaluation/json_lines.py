"""Reads JSON lines, plain or gzipped, one at a time, and reports where a bad line is and why it is bad."""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from pydantic import ValidationError

from cellblock.errors import InvalidJob
from cellblock_config.names import problem_of

#: The most bad lines that are described; the others are only counted.
_BAD_NAMED = 100
#: The largest program of a job, every character of it escaped, fits in a line.
_LINE_BYTES = 64 * 1024 * 1024
#: The bytes kept of each end of a longer line: the task's id is at its start or its end.
_ENDS_BYTES = 64 * 1024
#: Inside a JSON text every quotation mark has a backslash before it, so no completion can contain this.
_TASK_ID = re.compile(r'(?<!\\)"task_id"\s*:\s*("(?:[^"\\]|\\.){0,1000}"|-?\d{1,100})')


class BadLine(InvalidJob):
    """A line that cannot be used; the message names the place, the field and the reason."""

    def __init__(self, where: str, field: str, why: str) -> None:
        super().__init__(f"{where}, {field}" if field else where, why)

    @classmethod
    def of(cls, where: str, error: ValidationError) -> BadLine:
        """The error for the first wrong field."""
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        missing = first["type"] == "missing"
        return cls(where, field, "required, and missing" if missing else problem_of(first))


class Unreadable(BadLine):
    """A line too long or too deep to be read whole. ``task_id``: the id of its task, if it was found."""

    def __init__(self, where: str, why: str, text: str) -> None:
        super().__init__(where, "", why)
        said = _TASK_ID.search(text)
        self.task_id: object = json.loads(said[1], strict=False) if said else None


class BadLines:
    """The number of lines that were left out, and the errors of the first of them."""

    def __init__(self, *, skip: bool = False) -> None:
        self.skip = skip
        self.count = 0
        self.first: list[str] = []

    def note(self, bad: BadLine) -> None:
        """Counts a bad line. Raises it unless bad lines are skipped."""
        if not self.skip:
            raise bad
        self.count += 1
        if len(self.first) < _BAD_NAMED:
            self.first.append(str(bad))


@dataclass(frozen=True, slots=True)
class Line:
    """One line's object. ``where``: its file and number, for messages."""

    where: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RawLine:
    """One line's text. Bytes that are not UTF-8 become lone surrogates. ``cut``: its middle is missing."""

    where: str
    text: str
    cut: bool = False


def read_lines(file_path: Path | str) -> Iterator[RawLine]:
    """Every line except empty ones. The memory is bounded, however long a line is.

    Raises :class:`InvalidJob` for a file that cannot be read.
    """
    path = Path(file_path)
    try:
        with _opened(path) as file:
            number = 0
            while raw := file.readline(_LINE_BYTES):
                number += 1
                cut = len(raw) == _LINE_BYTES and not raw.endswith(b"\n")
                if cut:
                    raw = raw[:_ENDS_BYTES] + b"\n" + _end_of_line(file, raw[-_ENDS_BYTES:])
                if number == 1:
                    raw = _without_mark(path, raw)
                text = raw.decode(errors="surrogateescape")
                if text.strip():
                    yield RawLine(f"{path.name}, line {number}", text, cut)
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise InvalidJob(str(path), f"cannot be read: {why}") from None


def _opened(path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    return path.open("rb")


def _end_of_line(file: BinaryIO, seen: bytes) -> bytes:
    """Reads to the end of the line that ``seen`` is a part of. Returns its last bytes."""
    while not seen.endswith(b"\n") and (more := file.readline(_LINE_BYTES)):
        seen = (seen + more)[-_ENDS_BYTES:]
    return seen


def _without_mark(path: Path, raw: bytes) -> bytes:
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InvalidJob(str(path), "is UTF-16; UTF-8 is wanted")
    return raw.removeprefix(codecs.BOM_UTF8)


def parse(line: RawLine) -> Line:
    """One line's fields. Raises :class:`BadLine`, or :class:`Unreadable` if it cannot be read whole."""
    if line.cut:
        raise Unreadable(line.where, f"is longer than {_LINE_BYTES} bytes", line.text)
    try:
        fields = json.loads(line.text, strict=False)  # allows control characters in texts
    except json.JSONDecodeError as error:
        raise BadLine(line.where, "", f"is not JSON: {error.msg} (character {error.pos + 1})") from None
    except RecursionError:
        raise Unreadable(line.where, "is nested too deeply", line.text) from None
    except ValueError:  # the interpreter's bound for digits (sys.set_int_max_str_digits)
        raise Unreadable(line.where, "has a number of too many digits", line.text) from None
    if not isinstance(fields, dict):
        raise BadLine(line.where, "", f"is a {type(fields).__name__}; an object with named fields is wanted")
    return Line(line.where, fields)
