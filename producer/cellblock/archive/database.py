"""Writes to the archive, and questions to it."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellblock.archive.database_files import close_database
from cellblock.archive.errors import another_archive, archive_errors
from cellblock.errors import InvalidJob, NotConfigured
from cellblock_config.archive import ArchiveSettings

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Select

_EPOCH = date(1970, 1, 1)
_DAY_MS = 86_400_000
_BUSY_S = 15
_CONNECT_S = 5
_STATEMENT_MS = 20_000
_CURSOR_MOST = 200
#: The address leads to the same database for as long, unless an operator exchanges it.
_CHECKED_FOR_S = 60.0


@dataclass(frozen=True, slots=True)
class ArchivedJob:
    """One job: its record as the ledger had it, and its result as ``ledger/stored_results.py`` stores it.

    ``output``: that stored result; None if it has left.
    """

    job_id: str
    record: Mapping[str, str]
    output: bytes | None


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Selects jobs: of this tenant, ended since and before (Unix seconds), with this outcome."""

    tenant: str | None = None
    since: float | None = None
    before: float | None = None
    outcome: str | None = None


def open_archive(
    settings: ArchiveSettings, written_to: Callable[[], str | None] = lambda: None
) -> Archive | None:
    """The archive of these settings; None without one. It does not connect yet.

    Args:
        settings: Where it is.
        written_to: Gives the identity of the archive that the store's jobs were written to, which this one
            has to be; None where any will do.

    Raises :class:`NotConfigured` without the extra, or for an address that the library does not accept.
    """
    if settings.url is None:
        return None
    try:
        from sqlalchemy import create_engine
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError
    except ModuleNotFoundError as error:
        raise NotConfigured(
            "CELLBLOCK_ARCHIVE_URL is set, and the archive's library is missing: "
            "pip install 'cellblock[archive]'"
        ) from error
    try:
        url = make_url(settings.url.get_secret_value())
    except (ArgumentError, ValueError):  # its text can hold the password
        raise NotConfigured(
            "CELLBLOCK_ARCHIVE_URL is not the address of a database: write sqlite:////folder/jobs.db or "
            "postgresql://user:password@host:5432/database, with one host, and with %40 for @ in a password"
        ) from None
    if url.get_backend_name() == "sqlite":
        # SQLite's cached statements would hold on to the last outputs they wrote.
        engine = create_engine(url, connect_args={"timeout": _BUSY_S, "cached_statements": 0})
        _tune_sqlite(engine)
    else:
        try:
            engine = create_engine(
                url.set(drivername="postgresql+psycopg"),
                pool_pre_ping=True,
                connect_args={
                    "connect_timeout": _CONNECT_S,
                    "options": f"-c statement_timeout={_STATEMENT_MS}",
                },
            )
        except ModuleNotFoundError as error:
            raise NotConfigured(
                "CELLBLOCK_ARCHIVE_URL is PostgreSQL's, and psycopg is missing: "
                "pip install 'cellblock[archive]'"
            ) from error
    return Archive(engine, settings, written_to)


def _tune_sqlite(engine: Engine) -> None:
    """Sets SQLite up so that readers do not wait for the writer, and other users cannot read."""
    from sqlalchemy import event

    @event.listens_for(engine, "do_connect")
    def _close(*_: object) -> None:
        close_database(Path(engine.url.database or ""))

    @event.listens_for(engine, "connect")
    def _set_journal(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL")


class Archive:
    """An archive. Thread-safe. Raises :class:`ArchiveUnavailable`, when reading also for another archive than
    the store's; reading raises :class:`SchemaMismatch` for a database of another version."""

    def __init__(
        self, engine: Engine, settings: ArchiveSettings, written_to: Callable[[], str | None]
    ) -> None:
        self.engine = engine
        self.settings = settings
        self._written_to = written_to
        self._check_again_at = float("-inf")

    def identity(self) -> str:
        """The name of this archive, which it keeps wherever its tables are moved to.

        Raises :class:`SchemaMismatch` unless the database has this version's schema.
        """
        from cellblock.archive.schema import check_version
        from cellblock.archive.tables import IDENTITY

        with archive_errors("looking at its schema", self.engine), self.engine.connect() as connection:
            check_version(connection)
            return str(connection.execute(IDENTITY.select()).scalar_one())

    def check(self) -> None:
        """Raises :class:`SchemaMismatch` unless the database has this version's schema, and
        :class:`ArchiveUnavailable` unless it is the archive that the store's jobs were written to."""
        identity, written_to = self.identity(), self._written_to()
        if written_to not in {None, identity}:
            raise another_archive()
        self._check_again_at = time.monotonic() + _CHECKED_FOR_S

    @contextmanager
    def _reading(self, doing: str) -> Iterator[Connection]:
        if time.monotonic() > self._check_again_at:
            self.check()
        with archive_errors(doing, self.engine), self.engine.connect() as connection:
            yield connection

    def write(self, jobs: Sequence[Mapping[str, Any]]) -> None:
        """Stores rows of tables.JOBS. A later end of a job replaces its earlier row."""
        from sqlalchemy.dialects import postgresql, sqlite

        from cellblock.archive.tables import JOBS

        if not jobs:
            return
        insert = postgresql.insert if self.engine.dialect.name == "postgresql" else sqlite.insert
        statement = insert(JOBS)
        names = [column.name for column in JOBS.columns if not column.primary_key]
        others = {name: statement.excluded[name] for name in names}
        statement = statement.on_conflict_do_update(
            index_elements=[JOBS.c.job_id],
            set_=others,
            where=statement.excluded.finished_ms > JOBS.c.finished_ms,
        )
        with archive_errors("writing jobs", self.engine), self.engine.begin() as connection:
            connection.execute(statement, list(jobs))

    def job(self, job_id: str) -> ArchivedJob | None:
        """The job of this id; None if there is none."""
        from cellblock.archive.tables import JOBS

        with self._reading("looking for a job") as connection:
            row = connection.execute(JOBS.select().where(JOBS.c.job_id == job_id)).mappings().first()
        return None if row is None else _archived(dict(row))

    def accepted(self, tenant: str, key: str) -> tuple[str, str] | None:
        """The last job accepted under an idempotency key of a tenant's: its id and digest.

        A key is free once its job's output has had its whole time. Where the output left earlier, for want of
        room, the key still holds, or the job would run and be paid a second time.
        """
        from sqlalchemy import and_, or_, select

        from cellblock.archive.tables import JOBS

        now_ms, settings = round(1000 * time.time()), self.settings
        kept_well = and_(
            JOBS.c.state == "succeeded", JOBS.c.finished_ms > now_ms - 1000 * settings.output_ttl_s
        )
        kept_failed = and_(
            JOBS.c.state != "succeeded", JOBS.c.finished_ms > now_ms - 1000 * settings.failed_output_ttl_s
        )
        query = (
            select(JOBS.c.job_id, JOBS.c.digest)
            .where(JOBS.c.tenant == tenant, JOBS.c.idempotency == key)
            .where(or_(kept_well, kept_failed))
            .where(or_(JOBS.c.plan_until_ms.is_(None), JOBS.c.plan_until_ms > now_ms))
            .order_by(JOBS.c.finished_ms.desc())
            .limit(1)
        )
        with self._reading("looking for an idempotency key") as connection:
            row = connection.execute(query).mappings().first()
        return None if row is None else (str(row["job_id"]), str(row["digest"]))

    def jobs(self, asked: JobFilter, limit: int, cursor: str | None) -> tuple[list[ArchivedJob], str | None]:
        """Jobs without their results, the last to end first, and the next page's cursor, None at the end.

        Raises :class:`InvalidJob` for a malformed cursor.
        """
        from sqlalchemy import select, tuple_

        from cellblock.archive.tables import JOBS

        columns = [column for column in JOBS.columns if column.name != "output"]
        query = _filtered(select(*columns), asked)
        if cursor is not None:
            at_ms, job_id = _read_cursor(cursor)
            query = query.where(tuple_(JOBS.c.finished_ms, JOBS.c.job_id) < tuple_(at_ms, job_id))
        query = query.order_by(JOBS.c.finished_ms.desc(), JOBS.c.job_id.desc()).limit(limit + 1)
        with self._reading("listing jobs") as connection:
            rows = [dict(row) for row in connection.execute(query).mappings()]
        more = len(rows) > limit
        rows = rows[:limit]
        on = _cursor(rows[-1]["finished_ms"], rows[-1]["job_id"]) if more else None
        return [_archived(row) for row in rows], on

    def usage(
        self, tenant: str | None, since: date, until: date | None = None
    ) -> list[tuple[str, date, int, int]]:
        """The use of jobs with a plan that were admitted from one day (UTC) to another, both included.

        Returns a row for each tenant and day: tenant, day, number of runs, micros.
        """
        from sqlalchemy import func, select

        from cellblock.archive.tables import JOBS

        day = JOBS.c.admitted_ms // _DAY_MS
        query = (
            select(JOBS.c.tenant, day, func.count(), func.coalesce(func.sum(JOBS.c.cost_micros), 0))
            .where(JOBS.c.plan.is_not(None), JOBS.c.admitted_ms >= (since - _EPOCH).days * _DAY_MS)
            .group_by(JOBS.c.tenant, day)
        )
        if until is not None:
            query = query.where(JOBS.c.admitted_ms < ((until - _EPOCH).days + 1) * _DAY_MS)
        if tenant is not None:
            query = query.where(JOBS.c.tenant == tenant)
        with self._reading("adding up what tenants used") as connection:
            rows = connection.execute(query).all()
        return [(str(who), _EPOCH + timedelta(days=int(n)), runs, int(cost)) for who, n, runs, cost in rows]

    def close(self) -> None:
        """Closes every connection."""
        self.engine.dispose()


_MAYBE = ("plan", "parent", "worker", "idempotency", "digest", "result_blob")


def row_of(
    job_id: str, record: Mapping[str, str], result: bytes | bytearray | None, output_bytes: int
) -> dict[str, Any]:
    """A row of tables.JOBS, from the ledger's record and result of an ended job.

    Args:
        job_id: The job.
        record: Its record.
        result: Its stored result; None to keep the record alone.
        output_bytes: The size of the result, also where it is in the blob store.
    """
    plan_ttl_s = record.get("result_ttl_s")

    def number(field: str) -> int | None:
        return int(record[field]) if field in record else None

    return {
        "job_id": job_id,
        **{name: record.get(name) for name in _MAYBE},
        **{name: record[name] for name in ("tenant", "level", "state", "outcome", "trace_id")},
        "attempt": number("attempt"),
        "losses": number("losses") or 0,
        "submitted": float(record["submitted"]),
        **{name: number(name) for name in ("admitted_ms", "started_ms", "finished_ms")},
        "cost_micros": number("cost"),
        "output": result,
        "output_bytes": output_bytes,
        "plan_until_ms": int(record["finished_ms"]) + 1000 * int(plan_ttl_s) if plan_ttl_s else None,
    }


def _archived(row: dict[str, Any]) -> ArchivedJob:
    """A row as a job with a record in the ledger's form."""
    row["cost"] = row.pop("cost_micros")
    for internal in ("output_bytes", "plan_until_ms"):
        del row[internal]
    job_id, output = str(row.pop("job_id")), row.pop("output", None)
    return ArchivedJob(job_id, {name: str(value) for name, value in row.items() if value is not None}, output)


def _filtered(query: Select[Any], asked: JobFilter) -> Select[Any]:
    from cellblock.archive.tables import JOBS

    if asked.tenant is not None:
        query = query.where(JOBS.c.tenant == asked.tenant)
    if asked.outcome is not None:
        query = query.where(JOBS.c.outcome == asked.outcome)
    if asked.since is not None:
        query = query.where(JOBS.c.finished_ms >= round(1000 * asked.since))
    if asked.before is not None:
        query = query.where(JOBS.c.finished_ms < round(1000 * asked.before))
    return query


def _cursor(finished_ms: int, job_id: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([finished_ms, job_id]).encode()).decode().rstrip("=")


def _read_cursor(cursor: str) -> tuple[int, str]:
    try:
        if len(cursor) > _CURSOR_MOST:
            raise ValueError
        at_ms, job_id = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if not isinstance(at_ms, int) or not 0 <= at_ms < 2**53 or not re.fullmatch(r"[\w-]{1,64}", job_id):
            raise ValueError
        return at_ms, job_id
    except (ValueError, TypeError):
        raise InvalidJob("cursor", f"{cursor!r:.80} is not a cursor of a listing") from None
