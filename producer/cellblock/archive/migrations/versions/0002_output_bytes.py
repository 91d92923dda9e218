"""Outputs as bytes, with their size and the end that their plan gives them."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_TABLE = "cellblock_jobs"


def upgrade() -> None:
    """Turns outputs from text into bytes, and adds the columns."""
    casts = {"postgresql": "convert_to(result, 'UTF8')", "sqlite": "CAST(result AS BLOB)"}
    _turn("result", "output", sa.LargeBinary(), casts)
    op.add_column(_TABLE, sa.Column("output_bytes", sa.BigInteger))
    op.add_column(_TABLE, sa.Column("plan_until_ms", sa.BigInteger))
    op.execute(f"UPDATE {_TABLE} SET output_bytes = length(output) WHERE output IS NOT NULL")  # noqa: S608
    _index("cellblock_jobs_outputs", "output", "tenant", "finished_ms", "job_id", "output_bytes")
    _index("cellblock_jobs_by_plan_end", "output", "plan_until_ms")


def downgrade() -> None:
    """Turns outputs back into text, and drops the columns."""
    op.drop_index("cellblock_jobs_outputs", _TABLE)
    op.drop_index("cellblock_jobs_by_plan_end", _TABLE)
    casts = {"postgresql": "convert_from(output, 'UTF8')", "sqlite": "CAST(output AS TEXT)"}
    _turn("output", "result", sa.Text(), casts)
    op.drop_column(_TABLE, "output_bytes")
    op.drop_column(_TABLE, "plan_until_ms")


def _turn(before: str, after: str, kind: sa.types.TypeEngine[Any], casts: dict[str, str]) -> None:
    """Puts a column of another type and name in the place of one."""
    cast = casts[op.get_bind().dialect.name]
    op.drop_index("cellblock_jobs_with_output", _TABLE)
    op.add_column(_TABLE, sa.Column(after, kind))
    op.execute(f"UPDATE {_TABLE} SET {after} = {cast} WHERE {before} IS NOT NULL")  # noqa: S608 - constants
    op.drop_column(_TABLE, before)
    _index("cellblock_jobs_with_output", after, "finished_ms")


def _index(name: str, output: str, *columns: str) -> None:
    """An index of only the rows that have an output."""
    where = sa.text(f"{output} IS NOT NULL")
    op.create_index(name, _TABLE, list(columns), postgresql_where=where, sqlite_where=where)
