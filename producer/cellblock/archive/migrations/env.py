"""Run by Alembic: migrations on the connection that schema.py hands over."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"], version_table="cellblock_archive_version"
)
with context.begin_transaction():
    context.run_migrations()
