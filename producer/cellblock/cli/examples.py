"""Moves the example of every command to the end of its help, where a reader looks for it.

A command's docstring ends in a paragraph ``Example: …``; a group shows the example of its first command.
"""

from __future__ import annotations

import inspect

import typer

_BEGINNING = "\n\nExample: "


def put_last(app: typer.Typer) -> str | None:
    """Does so for each command of this group and of those below it. Returns the group's own example."""
    found: list[str] = []
    for command in app.registered_commands:
        whole = command.help or inspect.getdoc(command.callback) or ""
        command.help, begun, example = whole.partition(_BEGINNING)
        if begun:
            command.epilog = begun.strip() + " " + example
            found.append(command.epilog)
    for group in app.registered_groups:
        if group.typer_instance is not None and (below := put_last(group.typer_instance)) is not None:
            group.epilog = below
            found.append(below)
    return found[0] if found else None
