"""Options that several commands share: declared once, as the fields of a dataclass, and shown in sections.

``@takes(JobOptions)`` gives a command every option of the dataclass; its function gets one argument instead.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

JsonOpt = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
#: What has no section of its own.
_ARGUMENTS, _OPTIONS, _COMMANDS = "Arguments", "Options", "Commands"


def takes(*groups: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of these dataclasses.

    The function has a parameter annotated with each of them. Fields come behind its arguments and before its
    own options.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        own = list(inspect.signature(command).parameters.values())
        asked = {one.name: hints[one.name] for one in own if hints[one.name] in groups}

        @functools.wraps(command)
        def run(**given: Any) -> None:
            for name, group in asked.items():
                fields = {field.name: given.pop(field.name) for field in dataclasses.fields(group)}
                given[name] = group(**fields)
            command(**given)

        parameters = [
            part
            for one in own
            for part in (
                _parameters(asked[one.name])
                if one.name in asked
                else [one.replace(annotation=hints[one.name], kind=inspect.Parameter.KEYWORD_ONLY)]
            )
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def _parameters(group: type) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(group)
    ]


def _write_options(command: Any, ctx: typer.Context, formatter: Any) -> None:
    """Arguments first, then each section's options as they were declared, then those of no section."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(ctx):
        row = parameter.get_help_record(ctx)
        if row is not None:
            usual = _OPTIONS if isinstance(parameter, TyperOption) else _ARGUMENTS
            sections.setdefault(getattr(parameter, "rich_help_panel", None) or usual, []).append(row)
    rest = sections.pop(_OPTIONS, None)
    for title, rows in [*sections.items(), *([(_OPTIONS, rest)] if rest else [])]:
        with formatter.section(title):
            formatter.write_dl(rows)


class SectionedCommand(TyperCommand):
    """A command whose help shows its options in sections, by their ``rich_help_panel``."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """As :func:`_write_options`."""
        _write_options(self, ctx, formatter)


class SectionedGroup(TyperGroup):
    """A group whose help shows its commands in sections."""

    def invoke(self, ctx: Any) -> Any:
        """Runs a command. A wrong option's message is ours, and names the value."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            from pydantic import ValidationError

            from cellblock_config.names import problem_of

            if isinstance(error.__cause__, ValidationError):
                first = error.__cause__.errors(include_url=False)[0]
                given, problem = repr(first["input"]), problem_of(first)
                error.message = problem if given in problem else f"{problem} (got {given:.80})"
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The group's own options, and its commands."""
        _write_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """One section after the other, in the order of their first commands."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for title, name, summary in self.summaries(ctx):
            sections.setdefault(title, []).append((name, summary))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)

    def summaries(self, ctx: Any) -> list[tuple[str, str, str]]:
        """Section, name and summary of each command that help shows."""
        return [
            (_COMMANDS, name, command.get_short_help_str(limit=90))
            for name, command in self.commands.items()
            if not command.hidden
        ]
