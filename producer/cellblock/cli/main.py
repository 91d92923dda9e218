"""The command's root: subcommands, and how errors become messages and exit codes.

Exit codes: 0 outcome ok · 1 job failed · 2 usage · 3 refused · 4 our fault · 5 not yet ended · 130 stopped.
"""

from __future__ import annotations

import signal
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from cellblock.cli import (
    api_keys,
    archive,
    dead,
    evaluate,
    examples,
    fleet,
    jobs,
    keys,
    plans,
    redact,
    store,
    store_users,
    webhooks,
)
from cellblock.cli.option_groups import SectionedGroup
from cellblock.errors import CallerError, InvalidJob, OperatorError, PolicyDenied, RateLimited, ResultTimeout
from cellblock_config import SettingsError
from cellblock_config.plans import PlansError
from cellblock_config.prices import PricesError

app = typer.Typer(
    name="cellblock",
    help="Run code nobody trusts, one throw-away sandbox per job.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    cls=SectionedGroup,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(version("cellblock"))
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run code nobody trusts, one throw-away sandbox per job."""


jobs.register(app)
fleet.register(app)
keys.register(app)
dead.register(app)
webhooks.register(app)
plans.register(app)
api_keys.register(app)
store_users.register(app)
redact.register(app)
evaluate.register(app)
archive.register(app)
store.register(app)
app.info.epilog = examples.put_last(app)


def main() -> None:
    """Entry point of the console script."""
    # TERM ends a run by the way an interrupt takes: its sandbox and its folders are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        app()
    except (InvalidJob, SettingsError) as error:
        _fail(error, 2)
    except (RateLimited, PolicyDenied) as error:
        _fail(error, 3)
    except ResultTimeout as error:
        _fail(error, 5)
    except CallerError as error:
        _fail(error, 2)
    except (OperatorError, PlansError, PricesError) as error:
        _fail(error, 4)


def _fail(error: Exception, code: int) -> None:
    typer.echo(f"cellblock: {error}", err=True)
    sys.exit(code)
