"""`cellblock jobs list`, `cellblock archive`, `cellblock archiver`: jobs that have left Redis."""

from __future__ import annotations

import sys
from contextlib import closing
from datetime import datetime
from typing import Annotated

import typer

from cellblock import Client
from cellblock.archive import open_archive
from cellblock.cli import entry_points
from cellblock.cli.display import local_time
from cellblock.contract.job_status import JobStatus
from cellblock.errors import NotConfigured
from cellblock.ledger import connect
from cellblock.ledger.archiving import Archiving
from cellblock.ledger.server import check_schema
from cellblock.ledger.store import Store
from cellblock_config import load_settings

_DATES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"]
JsonOpt = Annotated[bool, typer.Option("--json", help="Print one JSON object per job.")]


def register(app: typer.Typer) -> None:
    """Add these to the root."""
    jobs = typer.Typer(help="Jobs that have ended.", no_args_is_help=True)
    jobs.command("list")(list_jobs)
    app.add_typer(jobs, name="jobs")
    archive = typer.Typer(help="The database of CELLBLOCK_ARCHIVE_URL.", no_args_is_help=True)
    archive.command("upgrade")(upgrade)
    archive.command("accept")(accept)
    archive.command("detach")(detach)
    app.add_typer(archive, name="archive")
    app.command()(archiver)


def list_jobs(
    tenant: Annotated[
        str | None, typer.Option(help="Tenant whose jobs to list. Default: all tenants.")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            formats=_DATES,
            metavar="TIME",
            help="List jobs that ended at this time or later: 2026-11-26, 2026-11-26T15:10 (this "
            "host's time), 2026-11-26T15:10:00+01:00.",
        ),
    ] = None,
    before: Annotated[
        datetime | None,
        typer.Option(formats=_DATES, metavar="TIME", help="List jobs that ended before this time."),
    ] = None,
    outcome: Annotated[
        str | None, typer.Option(help="List jobs with this outcome, such as ok or wall_timeout.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Jobs on one page.")] = 100,
    cursor: Annotated[str | None, typer.Option(help="Go on where an earlier listing ended.")] = None,
    every: Annotated[bool, typer.Option("--all", help="List all pages.")] = False,
    json_output: JsonOpt = False,
) -> None:
    """List jobs that have ended, the last to end first; they come from the archive.

    Where there are more, the cursor of the next page stands on standard error.

    Example: cellblock jobs list --tenant acme --since 2026-11-01 --outcome wall_timeout --json
    """
    none = True
    with Client() as client:
        while True:
            page = client.jobs(
                tenant, since=since, before=before, outcome=outcome, limit=limit, cursor=cursor
            )
            for job in page.jobs:
                if none and not json_output:
                    typer.echo(f"{'ended':<25}  {'job':<32}  {'tenant':<16}  {'outcome':<14}  level")
                none = False
                typer.echo(job.model_dump_json() if json_output else _line(job))
            cursor = page.cursor
            if cursor is None or not every:
                break
    if none:
        typer.echo("cellblock: no such jobs", err=True)
    if cursor is not None:
        typer.echo(f"cellblock: there are more: --cursor {cursor}", err=True)


def _line(job: JobStatus) -> str:
    ended = local_time(job.timings.finished or 0)
    return f"{ended}  {job.job_id}  {job.tenant:<16}  {job.outcome or '':<14}  {job.level}"


def upgrade() -> None:
    """Bring the archive's schema to this version; stop archivers of the old one first.

    Example: CELLBLOCK_ARCHIVE_URL=postgresql://user:password@host/cellblock cellblock archive upgrade
    """
    archive = open_archive(load_settings().archive)
    if archive is None:
        raise NotConfigured("there is no archive: set CELLBLOCK_ARCHIVE_URL")
    from cellblock.archive.errors import archive_errors
    from cellblock.archive.schema import upgrade as upgraded

    with archive_errors("changing its schema", archive.engine):
        before, after = upgraded(archive.engine)
    typer.echo(f"the archive has schema {after} (before: {before or 'none'})")


def accept() -> None:
    """Let this store go on with another archive: the one of CELLBLOCK_ARCHIVE_URL.

    An archiver writes to no other database than the one that it wrote the store's jobs to, as their results
    would seem unknown, and their idempotency keys free. After this it does; jobs that only the earlier
    archive has are not found any more.

    Example: CELLBLOCK_ARCHIVE_URL=postgresql://user:password@host/cellblock cellblock archive accept
    """
    settings = load_settings()
    archive = open_archive(settings.archive)
    if archive is None:
        raise NotConfigured("there is no archive: set CELLBLOCK_ARCHIVE_URL")
    from cellblock.archive.errors import archive_errors
    from cellblock.archive.schema import is_empty
    from cellblock.archive.schema import upgrade as upgraded

    with closing(connect(settings)) as redis, closing(archive):
        store = Store.of(redis, settings)
        check_schema(redis, store.keys, claim=False)
        with archive_errors("looking at its schema", archive.engine):
            if is_empty(archive.engine):
                upgraded(archive.engine)
        is_another = Archiving(store).accept(archive.identity())
    typer.echo(
        "this store's jobs are written to this archive from now on"
        if is_another
        else "this store has no other archive: there is nothing to accept"
    )


def detach() -> None:
    """Let the store go on without an archive; what is in the database stays there.

    Without this, jobs that end go on waiting for an archiver. Stop it first, and take CELLBLOCK_ARCHIVE_URL
    from the settings of all workers.

    Example: cellblock archive detach
    """
    settings = load_settings()
    with closing(connect(settings)) as redis:
        store = Store.of(redis, settings)
        check_schema(redis, store.keys, claim=False)
        had_one = Archiving(store).detach()
    typer.echo("the archive is detached" if had_one else "no archiver has ever run on this store")


def archiver() -> None:
    """Write every job that ends into the archive, until TERM.

    Example: CELLBLOCK_ARCHIVE_URL=sqlite:////var/lib/cellblock/archive.db cellblock archiver
    """
    sys.exit(entry_points.load("archiver")())
