"""The command that makes users of Redis for a fleet."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from cellblock.errors import NotConfigured
from cellblock.ledger.access import new_access
from cellblock.ledger.connection import address_of
from cellblock.ledger.keys import Keys
from cellblock_config import load_settings

store_users = typer.Typer(
    help="Users of Redis, one for each kind of process.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add these commands to the root."""
    app.add_typer(store_users, name="store-users")


@store_users.callback()
def root() -> None:
    """Users of Redis, one for each kind of process."""


@store_users.command()
def new(
    acl: Annotated[Path, typer.Argument(help="The file to write, for the server's setting aclfile.")],
) -> None:
    """Write an ACL file for this fleet's key prefix, and print each user's password.

    The file holds digests only; what is printed is secret (umask 077).

    Example: (umask 077; cellblock store-users new users.acl > passwords)
    """
    settings = load_settings()
    known = settings.redis.url or settings.redis.broker_url
    db = address_of(settings, broker=True).db if known else 0
    access = new_access(Keys(settings.redis.key_prefix), db)
    try:
        file = os.open(acl, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise NotConfigured(
            f"{acl} cannot be written: {error.strerror}; name a file that is not there"
        ) from None
    with os.fdopen(file, "w") as out:
        out.write(access.acl)
    for name, password in access.passwords.items():
        typer.echo(f"{name} {password}")
