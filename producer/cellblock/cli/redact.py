"""``cellblock redact``: the filter that a job's output passes, for any text."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cellblock.egress import FilterReport, filter_text
from cellblock.errors import InvalidJob
from cellblock_config import load_settings

JsonOpt = Annotated[bool, typer.Option("--json", help="Print text and redactions as JSON.")]


def register(app: typer.Typer) -> None:
    """Add this command to the root."""
    app.command()(redact)


def redact(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="A text, or - for stdin.")],
    context: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A file, of any size, that the text must not repeat.")
    ] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Say on stderr what was taken out, where, and how it was hidden."),
    ] = False,
    json_output: JsonOpt = False,
) -> None:
    """Print a text as the filter lets a job's output leave.

    Secrets, random runs and control characters are taken out.
    The exit code is 1 if it repeats the context, of which nothing is printed then; else 0.

    Example: some-command 2>&1 | cellblock redact - --explain
    """
    text = _read(file)
    if context is not None and not context.is_file():
        raise InvalidJob("--context", f"there is no file {context}")
    report = filter_text(text, context=context, settings=load_settings().egress)
    if json_output:
        typer.echo(json.dumps(asdict(report)))
    else:
        sys.stdout.write(report.text)
        sys.stdout.flush()
    if explain:
        _explain(report, text)
    if report.blocked:
        typer.echo("cellblock: it repeats the context", err=True)
        sys.exit(1)


def _read(file: str) -> str:
    if file == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    try:
        return Path(file).read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise InvalidJob("FILE", f"{file} cannot be read: {error.strerror}") from None


def _explain(report: FilterReport, text: str) -> None:
    """Places and kinds; never what stood there."""
    for one in report.redactions:
        line = text.count("\n", 0, one.start) + 1
        column = one.start - (text.rfind("\n", 0, one.start) + 1) + 1
        hidden = f", read as {' → '.join(one.how)}" if one.how else ""
        what = f"{one.count} times" if one.count > 1 else f"{one.end - one.start} characters,"
        typer.echo(f"{line}:{column}: {what} {one.kind}{hidden}", err=True)
    if not report.redactions:
        typer.echo("nothing was taken out", err=True)
