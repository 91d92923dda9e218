"""Commands for anyone who holds the keys that sign jobs, or that open confidential ones."""

from __future__ import annotations

import json
import secrets
from typing import Annotated

import typer

from cellblock.admission.sealing import new_pair
from cellblock.admission.signing import new_key

sign_key = typer.Typer(
    help="Keys that sign jobs.", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None
)

seal_key = typer.Typer(
    help="Keys of confidential jobs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
JsonOpt = Annotated[bool, typer.Option("--json", help="Print JSON instead of settings.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the root."""
    app.add_typer(sign_key, name="sign-key")
    app.add_typer(seal_key, name="seal-key")


@sign_key.callback()
def root() -> None:
    """Keys that sign jobs."""


@sign_key.command()
def new(
    ed25519: Annotated[
        bool, typer.Option("--ed25519", help="A pair: workers get a public key, which cannot sign.")
    ] = False,
    json_output: JsonOpt = False,
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


@seal_key.callback()
def seal_root() -> None:
    """Keys of confidential jobs."""


@seal_key.command(name="new")
def new_seal_key(
    tenant: Annotated[str, typer.Option(help="Tenant whose results it opens.")] = "default",
    fleet: Annotated[
        bool, typer.Option("--fleet", help="The fleet's own pair, to which programs are sealed.")
    ] = False,
    json_output: JsonOpt = False,
) -> None:
    """Make a pair of keys and print the settings of both sides; nothing is stored.

    The output holds a secret: what it is redirected to should be nobody else's to read (umask 077).

    Example: (umask 077; cellblock seal-key new --tenant acme > acme.env)
    """
    private, public = new_pair()
    if json_output:
        typer.echo(json.dumps({"private": private, "public": public}))
    elif fleet:
        typer.echo(
            "# On every worker. Secret.\n"
            f"CELLBLOCK_SEALING_FLEET_PRIVATE_KEY={private}\n"
            "# Where jobs are submitted. Public.\n"
            f"CELLBLOCK_SEALING_FLEET_KEY={public}"
        )
    else:
        typer.echo(
            "# Where results are read. Secret.\n"
            f"CELLBLOCK_SEALING_PRIVATE_KEY={private}\n"
            "# Where jobs are submitted. Public.\n"
            f"CELLBLOCK_SEALING_TENANT_KEYS='{json.dumps({tenant: public})}'"
        )
