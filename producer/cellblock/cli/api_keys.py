"""`cellblock api-key`: keys for those who may run, and do nothing else."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cellblock.admission.policy.decision import RUN
from cellblock.cli.display import local_time
from cellblock.cli.option_groups import JsonOpt
from cellblock.cli.tenant_warnings import warn_of_tenant
from cellblock.client import Client
from cellblock.errors import InvalidJob
from cellblock_config import load_settings

KeyArg = Annotated[str, typer.Argument(metavar="KEY", help="A key's id, as list shows it.")]


def register(app: typer.Typer) -> None:
    """Add the group to the root."""
    group = typer.Typer(
        help="API keys: they carry agent.run.invoke and tools, nothing else.", no_args_is_help=True
    )
    for command in (create, rotate, revoke):
        group.command()(command)
    group.command("list")(list_keys)
    app.add_typer(group, name="api-key")


def create(
    tenant: Annotated[str, typer.Option(help="Tenant whose jobs the key may start.")],
    capability: Annotated[
        list[str] | None, typer.Option(help=f"What it may do; repeat for several. Default: {RUN}.")
    ] = None,
    json_output: JsonOpt = False,
) -> None:
    """Make a key and print it, this once: only its hash is kept.

    Example: (umask 077; cellblock api-key create --tenant acme > acme.key)
    """
    settings = load_settings()
    with Client(settings=settings) as client:
        token = client.api_keys.create(tenant, capability or [RUN])
        typer.echo(json.dumps({"key": token}) if json_output else token)  # first: it stands nowhere else
        warn_of_tenant(client, settings, tenant)


def list_keys(json_output: JsonOpt = False) -> None:
    """List keys: id, tenant, since when, capabilities.

    Example: cellblock api-key list
    """
    with Client() as client:
        found = client.api_keys.list()
    if found and not json_output:
        typer.echo(f"{'key':<16}  tenant  since  capabilities")
    for one in found:
        since = local_time(one.created)
        text = f"{one.id}  {one.tenant}  {since}  {' '.join(one.capabilities)}"
        typer.echo(one.model_dump_json() if json_output else text)
    if not found and not json_output:
        typer.echo("no keys")


def rotate(key: KeyArg, json_output: JsonOpt = False) -> None:
    """Give a key a new secret, print it, and refuse the old one from now on.

    Example: cellblock api-key rotate 6f9619ff8b86d011
    """
    with Client() as client:
        token = client.api_keys.rotate(key)
    typer.echo(json.dumps({"key": token}) if json_output else token)


def revoke(key: KeyArg, json_output: JsonOpt = False) -> None:
    """Refuse a key from now on. Jobs that it started go on.

    Example: cellblock api-key revoke 6f9619ff8b86d011
    """
    with Client() as client:
        if not client.api_keys.revoke(key):
            raise InvalidJob("KEY", "there is no key of this id; cellblock api-key list shows them")
    typer.echo(json.dumps({"revoked": True}) if json_output else "revoked")
