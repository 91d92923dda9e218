"""Tries a store as the user and with the variables of the service that uses it, in a process of its own.

What root can write, and what this process is told, says nothing about that service.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from cellblock.archive import Archive, open_archive
from cellblock.archive.errors import archive_errors
from cellblock.blobs import check_blobs, open_blobs
from cellblock.errors import ArchiveUnavailable, BlobLost, BlobsUnavailable, NotConfigured
from cellblock_config import Settings, load_settings
from cellblock_workers.host_services import ARCHIVER_ACCOUNT, WORKER_ACCOUNT, service_user
from cellblock_workers.process_environment import ARCHIVER, WORKER, environment_of
from cellblock_workers.supervisor import group_of
from cellblock_workers.telemetry import configure_logging

_TRIAL_S = 60.0
_UNUSABLE = 1


def blobs_problem(settings: Settings, variables: Mapping[str, str]) -> str | None:
    """Why the worker of this host cannot keep blobs; None if it can, or without a blob store."""
    user = service_user(WORKER_ACCOUNT, settings.worker.user)
    return _tried("blobs", environment_of(WORKER, variables), user)


def archive_problem(variables: Mapping[str, str]) -> str | None:
    """Why the archiver of this host cannot write the archive; None if it can, or without an archive."""
    return _tried("archive", environment_of(ARCHIVER, variables), service_user(ARCHIVER_ACCOUNT))


def _tried(store: str, environment: Mapping[str, str], user: int | None) -> str | None:
    command = [sys.executable, "-P", "-m", "cellblock_workers.store_trial", store]
    as_user: dict[str, Any] = {}
    if user is not None:
        as_user = {"user": user, "group": group_of(user), "extra_groups": []}
    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TRIAL_S,
            check=False,
            **as_user,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_TRIAL_S:g} s"
    if done.returncode == 0:
        return None
    said = done.stdout.strip() or done.stderr.strip().rpartition("\n")[2]
    return said if user is None else f"{said} (tried as user {user}, which the service runs as)"


def main() -> None:
    """``store_trial.py blobs|archive``: prints what is wrong, and exits with 1 then."""
    settings = load_settings()
    configure_logging(settings.telemetry)
    try:
        if sys.argv[1] == "blobs":
            _try_blobs(settings)
        else:
            _try_archive(settings)
    except (NotConfigured, BlobsUnavailable, BlobLost, ArchiveUnavailable) as error:
        print(error)  # noqa: T201 - the process's one line of output
        sys.exit(_UNUSABLE)


def _try_blobs(settings: Settings) -> None:
    if (blobs := open_blobs(settings.blobs)) is not None:
        check_blobs(blobs)


def _try_archive(settings: Settings) -> None:
    if (archive := open_archive(settings.archive)) is not None:
        with closing(archive):
            _lock_and_let_go(archive)


def _lock_and_let_go(archive: Archive) -> None:
    """Takes SQLite's write lock, for which the file has to be writable. PostgreSQL is only connected to."""
    is_file = archive.engine.dialect.name == "sqlite"
    with (
        archive_errors("trying it", archive.engine),
        archive.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
    ):
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_file else "BEGIN")
        connection.exec_driver_sql("ROLLBACK")


if __name__ == "__main__":
    main()
