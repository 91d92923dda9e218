"""`cellblock dead`: jobs that ended through our fault, looked at, tried again or dropped."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from cellblock.cli.display import local_time
from cellblock.cli.option_groups import JsonOpt
from cellblock.client import Client
from cellblock.contract.job_status import DeadLetter
from cellblock.errors import InvalidJob, UnknownJob

JobsArg = Annotated[list[str] | None, typer.Argument(metavar="JOB...", help="Job ids.")]
AllOpt = Annotated[bool, typer.Option("--all", help="All dead letters.")]
_WIDE = 200


def register(app: typer.Typer) -> None:
    """Add the group to the root."""
    group = typer.Typer(help="Jobs that ended through our fault: look, retry, drop.", no_args_is_help=True)
    for command in (show, retry, drop):
        group.command()(command)
    group.command("list")(list_letters)
    app.add_typer(group, name="dead")


def list_letters(
    limit: Annotated[int, typer.Option(min=1, help="How many to list at most, latest first.")] = 50,
    json_output: JsonOpt = False,
) -> None:
    """List dead letters, latest first.

    Example: cellblock dead list
    """
    with Client() as client:
        letters = client.dead(limit=limit)
    if json_output:
        for letter in letters:
            typer.echo(letter.model_dump_json())
        return
    table = Table(box=box.SIMPLE, show_edge=False)
    for header in ("job", "tenant", "ended", "outcome", "attempts"):
        table.add_column(header, no_wrap=True, overflow="ignore" if header == "job" else "ellipsis")
    table.add_column("why", overflow="fold")
    for one in letters:
        why = one.error.message if one.error else ""
        table.add_row(one.job_id, one.tenant, local_time(one.ended), one.outcome, str(len(one.attempts)), why)
    console = Console(width=None if sys.stdout.isatty() else _WIDE)  # a pipe is no reason to cut ids
    console.print(table if letters else "no dead letters")


def show(job: Annotated[str, typer.Argument(help="Job id.")], json_output: JsonOpt = False) -> None:
    """Show one with the history of its attempts.

    Example: cellblock dead show 6f9619ff8b86d011b42d00c04fc964ff
    """
    with Client() as client:
        letter = client.dead_letter(job)
    if json_output:
        typer.echo(letter.model_dump_json())
        return
    typer.echo(_in_words(letter))


def retry(jobs: JobsArg = None, every: AllOpt = False, json_output: JsonOpt = False) -> None:
    """Let dead letters run again, with their counts at zero.

    Example: cellblock dead retry --all
    """
    with Client() as client:
        _each(_chosen(client, jobs, every), client.retry_dead, "will run again", json_output)


def drop(jobs: JobsArg = None, every: AllOpt = False, json_output: JsonOpt = False) -> None:
    """Forget dead letters and their payloads; their results stay.

    Example: cellblock dead drop --all
    """
    with Client() as client:
        _each(_chosen(client, jobs, every), client.drop_dead, "dropped", json_output)


def _chosen(client: Client, jobs: list[str] | None, every: bool) -> list[str]:
    if bool(jobs) == every:
        raise InvalidJob("JOB", "name some, or give --all; one of the two")
    return jobs or client.dead_ids()


def _each(jobs: list[str], act: Callable[[str], object], what: str, json_output: bool) -> None:
    """Do it to each, say what became of it; exit code 2 if it could not be done to all."""
    refused = 0
    for job_id in jobs:
        problem = None
        try:
            act(job_id)
        except UnknownJob as error:
            problem, refused = str(error), refused + 1
        if json_output:
            typer.echo(json.dumps({"job_id": job_id, "done": problem is None, "error": problem}))
        elif problem:
            typer.echo(f"cellblock: {problem}", err=True)
    if not json_output:
        typer.echo(f"{len(jobs) - refused} {what}")
    if refused:
        raise typer.Exit(2)


def _in_words(letter: DeadLetter) -> str:
    why = letter.error.message if letter.error else ""
    lines = [
        f"job      {letter.job_id}",
        f"tenant   {letter.tenant}  level {letter.level}  priority {letter.priority}",
        f"trace    {letter.trace_id}",
        f"ended    {local_time(letter.ended)} as {letter.outcome}: {why}",
        "attempts",
    ]
    for past in letter.attempts:
        took_s = past.ended - past.started
        lines.append(
            f"  {past.fence:>3}  {local_time(past.started)}  {took_s:8.2f} s  {past.worker}  {past.why}"
        )
    return "\n".join(lines)
