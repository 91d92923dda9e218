"""The command's root: subcommands, and how errors become messages and exit codes.

Exit codes: 0 outcome ok · 1 job failed, or an artifact was not written · 2 usage · 3 refused · 4 our fault ·
5 not yet ended · 130 stopped.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, NoReturn

import typer

from cellblock.cli.commands import COMMANDS, ImportedCommands
from cellblock.cli.option_groups import SectionedGroup


class RootGroup(SectionedGroup):
    """All commands. Its help comes from the table; a command's module is imported when it is used."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands: Any = ImportedCommands()

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names."""
        return list(COMMANDS)

    def summaries(self, ctx: Any) -> list[tuple[str, str, str]]:
        """Section, name and summary of each."""
        return [(one.section, name, one.summary) for name, one in COMMANDS.items()]


app = typer.Typer(
    name="cellblock",
    help="Run code nobody trusts, one throw-away sandbox per job.",
    epilog="Example: echo 'print(6*7)' | cellblock run -",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    cls=RootGroup,
)


def _print_version(asked: bool) -> None:
    if asked:
        from cellblock.version import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run code nobody trusts, one throw-away sandbox per job."""


#: The options of the limits that errors name by their fields.
_OPTIONS = {"limits.timeout_s": "--timeout", "limits.memory_bytes": "--memory"}


def run_command() -> None:
    """Runs what the arguments say. An error of ours becomes a message and an exit code."""
    try:
        app()
    except Exception as error:
        _fail(error)


def _fail(error: Exception) -> NoReturn:
    """Ends the command with the message and exit code of an error of ours. Re-raises any other."""
    from cellblock.errors import (
        CallerError,
        InvalidJob,
        OperatorError,
        PolicyDenied,
        RateLimited,
        ResultTimeout,
    )
    from cellblock_config import SettingsError
    from cellblock_config.plans import PlansError
    from cellblock_config.prices import PricesError

    for kinds, code in (
        ((InvalidJob, SettingsError), 2),
        ((RateLimited, PolicyDenied), 3),
        ((ResultTimeout,), 5),
        ((CallerError,), 2),
        ((OperatorError, PlansError, PricesError), 4),
    ):
        if isinstance(error, kinds):
            option = _OPTIONS.get(getattr(error, "field", ""))
            typer.echo(f"cellblock: {error}{f' (option {option})' if option else ''}", err=True)
            sys.exit(code)
    raise error
