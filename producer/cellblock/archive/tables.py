"""The archive's one table, and the version of its schema."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Index, Integer, MetaData, String, Table, Text, text

#: The newest of migrations/versions.
HEAD = "0001"
#: The table of migrations that says which version a database has.
VERSIONS = "cellblock_archive_version"
METADATA = MetaData()


def _of_rows(name: str, column: str, *, where: str) -> Index:
    """An index of only the rows that meet a condition."""
    return Index(name, column, postgresql_where=text(where), sqlite_where=text(where))


#: Times are milliseconds since 1970 by the ledger's clock; money is in micros.
JOBS = Table(
    "cellblock_jobs",
    METADATA,
    Column("job_id", String(64), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("plan", String(128)),
    Column("parent", String(64)),
    Column("level", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("outcome", String(32), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("losses", Integer, nullable=False),
    Column("worker", String(256)),
    Column("trace_id", String(32), nullable=False),
    Column("submitted", Float(53), nullable=False),
    Column("admitted_ms", BigInteger, nullable=False),
    Column("started_ms", BigInteger),
    Column("finished_ms", BigInteger, nullable=False),
    Column("cost_micros", BigInteger),
    Column("idempotency", String(256)),
    Column("digest", String(64)),
    Column("result", Text),
    Column("result_blob", String(80)),
    Index("cellblock_jobs_by_end", "finished_ms", "job_id"),
    Index("cellblock_jobs_by_tenant", "tenant", "finished_ms", "job_id"),
    Index("cellblock_jobs_by_key", "tenant", "idempotency"),
    _of_rows("cellblock_jobs_with_output", "finished_ms", where="result IS NOT NULL"),
    _of_rows("cellblock_jobs_with_plan", "admitted_ms", where="plan IS NOT NULL"),
)
