"""Translates a database's errors without their text, which can hold values and passwords."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cellblock.errors import ArchiveUnavailable

if TYPE_CHECKING:
    from sqlalchemy import Engine

#: Texts by the beginning of PostgreSQL's error code (its documentation, appendix A).
_BY_CODE = {
    "28": "the login was refused: user and password?",
    "3D": "there is no such database",
    "42501": "its user is not allowed to do that",
    "53100": "its disk is full",
    "53300": "it has too many connections",
    "57014": "it took too long",
}
#: Texts by words in libpq's message: before a login there is no code.
_BY_WORDS = {
    "refused": "nothing listens there: is it running?",
    "resolve": "there is no such host",
    "translate": "there is no such host",
    "timeout": "no answer in time",
    "timed out": "no answer in time",
    "password": "the login was refused: user and password?",
    'role "': "the login was refused: user and password?",
    'database "': "there is no such database",
}


def another_archive() -> ArchiveUnavailable:
    """The error for a database that is not the one which the store's jobs were written to.

    Stops results and idempotency keys from seeming unknown where only an address has changed.
    """
    return ArchiveUnavailable(
        "the database of CELLBLOCK_ARCHIVE_URL is not the archive that this store's jobs were written to: "
        "their results, records and idempotency keys are not in it. Name that archive again, or move its "
        "tables here; to go on without them: cellblock archive accept"
    )


@contextmanager
def archive_errors(doing: str, engine: Engine) -> Iterator[None]:
    """Raises :class:`ArchiveUnavailable` instead, which names the place, the cause and the remedy."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        is_file = engine.url.get_backend_name() == "sqlite"
        why = _of_file(engine.url.database or "", cause) if is_file else _of_server(cause)
        place = engine.url.database if is_file else _server(engine)
        raise ArchiveUnavailable(
            f"the archive failed while {doing}: {place}: {why} (CELLBLOCK_ARCHIVE_URL)"
        ) from None


def _server(engine: Engine) -> str:
    url = engine.url
    return f"{url.host or 'localhost'}:{url.port or 5432}/{url.database or ''}"


def _of_server(cause: BaseException) -> str:
    code, words = str(getattr(cause, "sqlstate", None) or ""), str(cause).lower()
    for beginning, why in _BY_CODE.items():
        if code.startswith(beginning):
            return why
    for word, why in _BY_WORDS.items():
        if not code and word in words:
            return why
    return f"{type(cause).__name__} {code}".strip()


def _of_file(name: str, cause: BaseException) -> str:
    file, words = Path(name), str(cause).lower()
    try:
        if not file.parent.is_dir():
            return "its folder does not exist; if it is of a fleet that has ended, unset the variable"
        if file.is_dir():
            return "it is a folder, and has to be a file"
    except PermissionError:
        return f"user {os.geteuid()} cannot enter its folder"
    if "not a database" in words:
        return "it is not a SQLite database"
    if "locked" in words:
        return "another process has it locked"
    if "open" in words or "readonly" in words:
        return f"user {os.geteuid()} cannot write to it, or to its folder"
    if "full" in words:
        return "its disk is full"
    return type(cause).__name__
