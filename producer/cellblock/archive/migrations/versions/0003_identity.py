"""A name of the archive, by which a store knows it again."""

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes the table, with a name by chance."""
    table = op.create_table("cellblock_archive", sa.Column("archive_id", sa.String(32), primary_key=True))
    op.bulk_insert(table, [{"archive_id": secrets.token_hex(16)}])


def downgrade() -> None:
    """Drops the table."""
    op.drop_table("cellblock_archive")
