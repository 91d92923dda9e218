"""Run by Alembic: migrations on the connection that schema.py hands over."""

from alembic import context

from cellblock.archive.tables import VERSIONS

context.configure(connection=context.config.attributes["connection"], version_table=VERSIONS)
with context.begin_transaction():
    context.run_migrations()
