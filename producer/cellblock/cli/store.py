"""`cellblock store`: a copy of the store, and a store from a copy."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cellblock import store_backup
from cellblock.cli.display import local_time
from cellblock.cli.option_groups import JsonOpt
from cellblock_config import load_settings

_SAYS_EVERY_S = 2.0


def register(app: typer.Typer) -> None:
    """Add the group to the root."""
    group = typer.Typer(help="Back up and restore the store of CELLBLOCK_REDIS_URL.", no_args_is_help=True)
    group.command()(backup)
    group.command()(restore)
    app.add_typer(group, name="store")


def backup(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder without a backup in it.")],
    json_output: JsonOpt = False,
) -> None:
    """Copy the store, as it is at one moment, into a folder. The fleet goes on meanwhile.

    The copy holds what jobs were given and what they said, and everything else on that server: keep it as you
    keep the store. Blobs and the archive are not in it. Needs redis-cli (apt-get install redis-tools).

    Example: cellblock store backup /var/backups/cellblock/2026-11-26
    """
    made = store_backup.back_up(load_settings(), folder)
    if json_output:
        typer.echo(json.dumps(asdict(made)))
        return
    typer.echo(f"{made.size_bytes} bytes in {folder}, schema {made.schema}, sha256 {made.sha256}")


def restore(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What `store backup` has made.")],
    json_output: JsonOpt = False,
) -> None:
    """Fill an empty store from a backup. Stop producers and workers first.

    Jobs that waited then wait again, jobs that ran then run again, and what happened later did not happen.
    Needs redis-server on this host.

    Example: cellblock store restore /var/backups/cellblock/2026-11-26
    """
    said = time.monotonic()

    def progress(count: int) -> None:
        nonlocal said
        if time.monotonic() - said > _SAYS_EVERY_S:
            said = time.monotonic()
            typer.echo(f"cellblock: {count} keys", err=True)

    made, count = store_backup.restore(load_settings(), folder, progress)
    if json_output:
        typer.echo(json.dumps({**asdict(made), "keys": count}))
        return
    when = local_time(made.at)
    typer.echo(f"{count} keys of {when} are back; start workers, and they go on")
