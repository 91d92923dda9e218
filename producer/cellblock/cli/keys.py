"""Commands for whoever holds the keys that sign jobs."""

from __future__ import annotations

import json
import secrets
from typing import Annotated

import typer

from cellblock.signing import new_key

sign_key = typer.Typer(
    help="Keys that sign jobs.", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None
)


def register(app: typer.Typer) -> None:
    """Add these commands to the root."""
    app.add_typer(sign_key, name="sign-key")


@sign_key.callback()
def root() -> None:
    """Keys that sign jobs."""


@sign_key.command()
def new(
    ed25519: Annotated[
        bool, typer.Option("--ed25519", help="A pair: workers get a public key, which cannot sign.")
    ] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON instead of settings.")] = False,
) -> None:
    """Make a key and print the settings of both sides; nothing is stored.

    The output holds secrets: what it is redirected to should be nobody else's to read (umask 077).

    Example: (umask 077; cellblock sign-key new > signing.env)
    """
    signs, checks = new_key("ed25519" if ed25519 else "hmac")
    key_id = f"key-{secrets.token_hex(4)}"
    trusted = {key_id: checks}
    if json_output:
        typer.echo(json.dumps({"key_id": key_id, "key": signs, "trusted": trusted}))
        return
    typer.echo(
        "# Where jobs are submitted. Secret.\n"
        f"CELLBLOCK_SIGNING_KEY={signs}\n"
        f"CELLBLOCK_SIGNING_KEY_ID={key_id}\n"
        f"# On every worker, before the first job is signed. {'Public.' if ed25519 else 'Secret.'}\n"
        f"CELLBLOCK_SIGNING_TRUSTED='{json.dumps(trusted)}'\n"
        "# On every worker, once all producers sign.\n"
        "#CELLBLOCK_SIGNING_REQUIRE_SIGNATURE=true"
    )
