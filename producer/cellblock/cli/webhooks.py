"""`cellblock webhooks`: events posted to the addresses an operator names, and what became of them."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cellblock.cli import extras

JsonOpt = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def register(app: typer.Typer) -> None:
    """Add the group to the root."""
    group = typer.Typer(help="Post events to the addresses of CELLBLOCK_WEBHOOKS_URLS.", no_args_is_help=True)
    for command in (run, dead, retry):
        group.command()(command)
    app.add_typer(group, name="webhooks")


def run() -> None:
    """Post events, signed, until TERM.

    Example: CELLBLOCK_WEBHOOKS_URLS='["https://example.org/hook"]' cellblock webhooks run
    """
    extras.load("webhooks")()


def dead(
    limit: Annotated[int, typer.Option(min=1, help="At most so many, latest first.")] = 50,
    json_output: JsonOpt = False,
) -> None:
    """List deliveries that failed for good: id, event, receiver's host, tries, why.

    Example: cellblock webhooks dead
    """
    sys.exit(extras.load("webhooks-dead")(limit=limit, json_output=json_output))


def retry(
    deliveries: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of deliveries.")],
    json_output: JsonOpt = False,
) -> None:
    """Let failed deliveries be tried again from the start.

    Example: cellblock webhooks retry 1795282613989-0-1f0c
    """
    sys.exit(extras.load("webhooks-retry")(deliveries, json_output=json_output))
