"""The archive's tables, and the version of its schema."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Index, Integer, LargeBinary, MetaData, String, Table, text

#: The newest of migrations/versions.
HEAD = "0003"
#: The table of migrations that says which version a database has.
VERSIONS = "cellblock_archive_version"
METADATA = MetaData()


def _of_rows(name: str, *columns: str, where: str) -> Index:
    """An index of only the rows that meet a condition."""
    return Index(name, *columns, postgresql_where=text(where), sqlite_where=text(where))


#: Times are milliseconds since 1970 by the ledger's clock; money is in micros. output: the stored result,
#: until it is removed; output_bytes: its size, also in a blob; plan_until_ms: when its plan has it removed.
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
    Column("output", LargeBinary),
    Column("result_blob", String(80)),
    Column("output_bytes", BigInteger),
    Column("plan_until_ms", BigInteger),
    Index("cellblock_jobs_by_end", "finished_ms", "job_id"),
    Index("cellblock_jobs_by_tenant", "tenant", "finished_ms", "job_id"),
    Index("cellblock_jobs_by_key", "tenant", "idempotency"),
    _of_rows("cellblock_jobs_with_output", "finished_ms", where="output IS NOT NULL"),
    # Names the size too, so that adding sizes up reads no output.
    _of_rows(
        "cellblock_jobs_outputs",
        "tenant",
        "finished_ms",
        "job_id",
        "output_bytes",
        where="output IS NOT NULL",
    ),
    _of_rows("cellblock_jobs_by_plan_end", "plan_until_ms", where="output IS NOT NULL"),
    _of_rows("cellblock_jobs_with_plan", "admitted_ms", where="plan IS NOT NULL"),
)

#: One row: by which a store knows its archive again, wherever the database has moved to.
IDENTITY = Table("cellblock_archive", METADATA, Column("archive_id", String(32), primary_key=True))
