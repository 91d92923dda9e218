"""`cellblock webhooks`: events posted to the addresses an operator names, and what became of them."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cellblock.cli import entry_points
from cellblock.cli.option_groups import JsonOpt
from cellblock.errors import InvalidJob

IdsArg = Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Ids of deliveries.")]
AllOpt = Annotated[bool, typer.Option("--all", help="All deliveries that failed for good.")]


def register(app: typer.Typer) -> None:
    """Add the group to the root."""
    group = typer.Typer(help="Post events to the addresses of CELLBLOCK_WEBHOOKS_URLS.", no_args_is_help=True)
    for command in (run, dead, retry, drop):
        group.command()(command)
    app.add_typer(group, name="webhooks")


def run() -> None:
    """Post events, signed, until TERM.

    Example: CELLBLOCK_WEBHOOKS_URLS='["https://example.org/hook"]' cellblock webhooks run
    """
    entry_points.load("webhooks")()


def dead(
    limit: Annotated[int, typer.Option(min=1, help="How many to list at most, latest first.")] = 50,
    json_output: JsonOpt = False,
) -> None:
    """List deliveries that failed for good: id, event, receiver's host, tries, why.

    Example: cellblock webhooks dead
    """
    sys.exit(entry_points.load("webhooks-dead")(limit=limit, json_output=json_output))


def retry(deliveries: IdsArg = None, every: AllOpt = False, json_output: JsonOpt = False) -> None:
    """Let failed deliveries be tried again from the start.

    Example: cellblock webhooks retry 1795282613989-0-1f0c
    """
    sys.exit(entry_points.load("webhooks-retry")(_chosen(deliveries, every), json_output=json_output))


def drop(deliveries: IdsArg = None, every: AllOpt = False, json_output: JsonOpt = False) -> None:
    """Forget failed deliveries.

    Example: cellblock webhooks drop --all
    """
    sys.exit(entry_points.load("webhooks-drop")(_chosen(deliveries, every), json_output=json_output))


def _chosen(deliveries: list[str] | None, every: bool) -> list[str] | None:
    if bool(deliveries) == every:
        raise InvalidJob("ID", "name some, or give --all; one of the two")
    return deliveries
