"""The archive's schema: which version a database has, and how it gets this one."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Engine, inspect

from cellblock.archive.tables import HEAD, JOBS
from cellblock.errors import SchemaMismatch

_VERSIONS = "cellblock_archive_version"


def version_of(connection: Connection) -> str | None:
    """The version a database has; None for one that is empty."""
    context = MigrationContext.configure(connection, opts={"version_table": _VERSIONS})
    return context.get_current_revision()


def check_version(engine: Engine) -> None:
    """Raises :class:`SchemaMismatch` for a database that is not of this version."""
    with engine.connect() as connection:
        found = version_of(connection)
    if found != HEAD:
        has = f"schema {found}" if found is not None else "no schema yet"
        raise SchemaMismatch(
            f"the archive has {has}, and this version of cellblock speaks {HEAD}: run cellblock archive "
            "upgrade (the archiver does it by itself for a database that is empty)"
        )


def upgrade(engine: Engine) -> tuple[str | None, str]:
    """Bring the database to this version. Returns the version before and after.

    Raises :class:`SchemaMismatch` for one that a later version wrote.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    with engine.begin() as connection:
        before = version_of(connection)
        if before is not None and before > HEAD:
            raise SchemaMismatch(
                f"the archive has schema {before}, and this version of cellblock speaks {HEAD}: run the "
                "version that wrote it"
            )
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    return before, HEAD


def is_empty(engine: Engine) -> bool:
    """Whether nobody has made the table yet."""
    with engine.connect() as connection:
        return version_of(connection) is None and not inspect(connection).has_table(JOBS.name)
