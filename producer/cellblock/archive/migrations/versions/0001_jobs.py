"""Ended jobs, one row each."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes the table and its indices."""
    op.create_table(
        "cellblock_jobs",
        sa.Column("job_id", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("plan", sa.String(128)),
        sa.Column("parent", sa.String(64)),
        sa.Column("level", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("outcome", sa.String(32), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("losses", sa.Integer, nullable=False),
        sa.Column("worker", sa.String(256)),
        sa.Column("trace_id", sa.String(32), nullable=False),
        sa.Column("submitted", sa.Float(53), nullable=False),
        sa.Column("admitted_ms", sa.BigInteger, nullable=False),
        sa.Column("started_ms", sa.BigInteger),
        sa.Column("finished_ms", sa.BigInteger, nullable=False),
        sa.Column("cost_micros", sa.BigInteger),
        sa.Column("idempotency", sa.String(256)),
        sa.Column("digest", sa.String(64)),
        sa.Column("result", sa.Text),
        sa.Column("result_blob", sa.String(80)),
    )
    op.create_index("cellblock_jobs_by_end", "cellblock_jobs", ["finished_ms", "job_id"])
    op.create_index("cellblock_jobs_by_tenant", "cellblock_jobs", ["tenant", "finished_ms", "job_id"])
    op.create_index("cellblock_jobs_by_key", "cellblock_jobs", ["tenant", "idempotency"])
    for name, column, where in (
        ("cellblock_jobs_with_output", "finished_ms", sa.text("result IS NOT NULL")),
        ("cellblock_jobs_with_plan", "admitted_ms", sa.text("plan IS NOT NULL")),
    ):
        op.create_index(name, "cellblock_jobs", [column], postgresql_where=where, sqlite_where=where)


def downgrade() -> None:
    """Drops the table: this is the first version."""
    op.drop_table("cellblock_jobs")
