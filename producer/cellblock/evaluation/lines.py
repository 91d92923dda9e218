"""JSON lines, plain or gzipped, read one at a time: where each stands is known, and what is wrong with it."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from pydantic import ValidationError

from cellblock.errors import InvalidJob

#: Of so many it is told what is wrong; of the others, how many there are.
_BAD_NAMED = 100
_LINE_CHARS = 64 * 1024 * 1024


class BadLine(InvalidJob):
    """A line that cannot be used: where, which field, and why."""

    def __init__(self, where: str, field: str, why: str) -> None:
        super().__init__(f"{where}, {field}" if field else where, why)

    @classmethod
    def of(cls, where: str, error: ValidationError) -> BadLine:
        """The first field that is wrong."""
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        missing = first["type"] == "missing"
        return cls(
            where, field, "required, and missing" if missing else first["msg"].removeprefix("Value error, ")
        )


class BadLines:
    """Lines that were left out: how many, and the first of them."""

    def __init__(self, *, skip: bool = False) -> None:
        self._skip = skip
        self.count = 0
        self.first: list[str] = []

    def note(self, bad: BadLine) -> None:
        """One more. Raises it unless such are skipped."""
        if not self._skip:
            raise bad
        self.count += 1
        if len(self.first) < _BAD_NAMED:
            self.first.append(str(bad))


@dataclass(frozen=True, slots=True)
class Line:
    """One line's object. ``where``: file and number, as messages say it."""

    where: str
    fields: dict[str, Any]


def read_lines(file_path: Path | str) -> Iterator[tuple[str, str]]:
    """Where each line stands, and its text; without the empty ones.

    Raises :class:`InvalidJob` for a file that cannot be read.
    """
    path = Path(file_path)
    try:
        with _opened(path) as file:
            number = 0
            while text := file.readline(_LINE_CHARS):
                number += 1
                if text.strip():
                    yield f"{path.name}, line {number}", text
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        why = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise InvalidJob(str(path), f"cannot be read: {why}") from None


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def parse(where: str, text: str) -> Line:
    """One line. Raises :class:`BadLine`."""
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise BadLine(where, "", f"is no JSON: {error}") from None
    except RecursionError:
        raise BadLine(where, "", "is nested too deeply") from None
    if not isinstance(fields, dict):
        raise BadLine(where, "", f"is a {type(fields).__name__}; an object with named fields is wanted")
    return Line(where, fields)
