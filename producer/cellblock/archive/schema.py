"""The archive's schema: reads the version of a database, and upgrades it to this one."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from cellblock.archive.tables import HEAD, JOBS, VERSIONS
from cellblock.errors import NotConfigured, SchemaMismatch


def version_of(connection: Connection) -> str | None:
    """The version of a database; None for an empty one."""
    if not inspect(connection).has_table(VERSIONS):
        return None
    found = connection.execute(text(f"SELECT version_num FROM {VERSIONS}")).scalar()  # noqa: S608 - a constant
    return None if found is None else str(found)


def check_version(connection: Connection) -> None:
    """Raises :class:`SchemaMismatch` for a database of another version."""
    found = version_of(connection)
    if found != HEAD:
        raise _mismatch(found)


def _mismatch(found: str | None) -> SchemaMismatch:
    has = f"schema {found}" if found is not None else "no schema yet"
    remedy = (
        "run the version that wrote it"
        if found is not None and found > HEAD
        else "run cellblock archive upgrade (the archiver does it by itself for a database that is empty)"
    )
    return SchemaMismatch(f"the archive has {has}, and this version of cellblock speaks {HEAD}: {remedy}")


def upgrade(engine: Engine) -> tuple[str | None, str]:
    """Upgrades the database to this version. Returns the version before and after.

    Raises :class:`SchemaMismatch` for a database of a later version, :class:`NotConfigured` without Alembic.
    """
    try:
        from alembic import command  # heavy, and reading does not need it
        from alembic.config import Config
    except ModuleNotFoundError as error:
        raise NotConfigured(
            f"the package {error.name} changes the archive's schema, and is missing: "
            "pip install 'cellblock[archive]'"
        ) from error

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    with engine.begin() as connection:
        before = version_of(connection)
        if before is not None and before > HEAD:
            raise _mismatch(before)
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    return before, HEAD


def is_empty(engine: Engine) -> bool:
    """Whether the database does not have the table yet."""
    with engine.connect() as connection:
        return version_of(connection) is None and not inspect(connection).has_table(JOBS.name)
