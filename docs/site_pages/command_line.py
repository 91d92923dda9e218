"""The command line: what ``--help`` shows of each command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from cellblock.cli.root import app

_HEAD = """# Command line

What `cellblock COMMAND --help` shows. `cellblock --install-completion` makes the shell complete it.
"""
_WIDTH = 100


def page(root: Path) -> str:
    """The whole page."""
    command = typer.main.get_command(app)
    return _HEAD + "".join(_sections(command, name="cellblock", parent=None))


def _sections(command: Any, *, name: str, parent: Any) -> Iterator[str]:
    context = command.context_class(
        command, info_name=name, parent=parent, terminal_width=_WIDTH, max_content_width=_WIDTH
    )
    yield f"\n## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    for child in getattr(command, "commands", {}).values():
        if not child.hidden:
            yield from _sections(child, name=child.name, parent=context)
