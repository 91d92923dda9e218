"""A group of commands that is a command itself: ``eval SAMPLES`` beside ``eval compare A B``."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

#: What runs where no subcommand is named; hidden, as it is the group's own name that calls it.
OWN = "own"


class CommandGroup(TyperGroup):
    """Hands everything that does not begin with a subcommand's name to its own command, help as well: that
    command then stands where the group did, for messages and for the shell's completion."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> Any:
        """The context of the own command, or of the group where a subcommand is named."""
        named = self.commands.get(args[0]) if args else None
        if named is None or named.hidden:
            return self.commands[OWN].make_context(info_name, args, *rest, **extra)
        return super().make_context(info_name, args, *rest, **extra)
