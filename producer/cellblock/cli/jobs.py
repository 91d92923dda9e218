"""Commands for jobs of a fleet: submit, status, result, cancel, events."""

from __future__ import annotations

import json
import sys
from typing import Annotated, get_args

import typer

from cellblock.cli import display
from cellblock.cli.awaiting import awaited, progress
from cellblock.cli.display import local_time
from cellblock.cli.job_options import (
    AccountOptions,
    ArgsArg,
    FileArg,
    JobOptions,
    OutOpt,
    OverwriteOpt,
    PayloadOptions,
    job_spec,
)
from cellblock.cli.option_groups import JsonOpt, SectionedCommand, takes
from cellblock.client import Client
from cellblock.contract.events import GAP, Event, EventType
from cellblock.contract.job_status import Counts, JobStatus
from cellblock.errors import InvalidJob, ResultTimeout
from cellblock.interrupts import interrupts_held

_AT_ONCE_S = 2.0

ParentOpt = Annotated[
    str | None,
    typer.Option(help="Running job that this one is part of: it shares that job's slot, limits and money."),
]
KeyOpt = Annotated[str | None, typer.Option(help="Submitting the same key again returns the first job.")]
JobArg = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]


_RUN = "agent.run."
#: The types of events about jobs, without what they all begin with.
_RUN_EVENTS = [name.removeprefix(_RUN) for name in get_args(EventType) if name != GAP]


def _run_event(word: str) -> str:
    """The type of event that a word names. Raises :class:`typer.BadParameter`."""
    if word not in _RUN_EVENTS:
        raise typer.BadParameter(f"{word!r} is not one of {', '.join(map(repr, _RUN_EVENTS))}.")
    return _RUN + word


def register(app: typer.Typer) -> None:
    """Add these commands to the root."""
    for command in (submit, status, result, cancel, events):
        app.command(cls=SectionedCommand)(command)


@takes(AccountOptions, PayloadOptions, JobOptions)
def submit(
    file: FileArg,
    payload: PayloadOptions,
    account: AccountOptions,
    job: JobOptions,
    args: ArgsArg = None,
    idempotency_key: KeyOpt = None,
    parent: ParentOpt = None,
    json_output: JsonOpt = False,
) -> None:
    """Enqueue one program and print its job id at once.

    Example: cellblock submit program.py --idempotency-key order-17
    """
    spec = job_spec(
        file=file,
        args=args,
        account=account,
        payload=payload,
        job=job,
        idempotency_key=idempotency_key,
        parent=parent,
    )
    with Client() as client, interrupts_held():  # the id of an accepted job must not be lost
        submitted = client.submit(spec)
        typer.echo(json.dumps({"job_id": submitted.id}) if json_output else submitted.id)


def status(
    job: Annotated[
        str | None, typer.Argument(metavar="JOB", help="The job's id; without it, counts of all jobs.")
    ] = None,
    json_output: JsonOpt = False,
) -> None:
    """Say where a job is, or how many there are of each kind.

    Example: cellblock status 0f3c…
    """
    with Client() as client:
        found: Counts | JobStatus = client.counts() if job is None else client.status(job)
    if json_output:
        typer.echo(found.model_dump_json())
        return
    shown = found.model_dump(mode="json")
    for name, at in shown.pop("timings", {}).items():
        shown[name] = at and local_time(at)
    if job is None:
        shown["parked"] = ", ".join(f"{tenant} {count}" for tenant, count in shown["parked"].items()) or 0
    for name, value in shown.items():
        typer.echo(f"{name:<17} {'-' if value is None else value}")


def result(
    job: JobArg,
    timeout: Annotated[float, typer.Option(min=0, help="How many seconds to wait for the end.")] = 60.0,
    out: OutOpt = None,
    overwrite: OverwriteOpt = False,
    json_output: JsonOpt = False,
) -> None:
    """Wait for a job's end and show its result; exit codes as for run.

    Example: cellblock result 0f3c… --timeout 10 --json
    """
    with Client() as client:
        at_once_s = min(_AT_ONCE_S, timeout)  # most have ended, or are about to: nothing moves for them
        try:
            ended = client.result(job, timeout_s=at_once_s)
        except ResultTimeout:
            with progress("waiting…"):
                ended = awaited(client, job, timeout, waited_s=at_once_s)
    sys.exit(display.show(ended, json_output, out, overwrite))


def cancel(job: JobArg, json_output: JsonOpt = False) -> None:
    """Stop a waiting or running job.

    A waiting job ends at once, a running one through its worker.

    Example: cellblock cancel 0f3c…
    """
    with Client() as client:
        answer = client.cancel(job)
    words = {
        "cancelled": "cancelled before it ran",
        "requested": "its worker was asked to stop it",
        "terminal": "had ended already",
    }
    typer.echo(json.dumps({"job_id": job, "cancel": answer}) if json_output else f"{job}: {words[answer]}")


def events(
    after: Annotated[
        str | None, typer.Option(help="Start after this event id. Default: with the oldest that is kept.")
    ] = None,
    new: Annotated[bool, typer.Option("--new", help="Start with events that happen from now on.")] = False,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            parser=_run_event,
            metavar=f"[{'|'.join(_RUN_EVENTS)}]",
            help="Print events of this type only; repeat for several.",
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing as events happen.")] = False,
    group: Annotated[
        str | None, typer.Option(help="Read as this consumer group, and acknowledge what was printed.")
    ] = None,
    rewind: Annotated[
        bool, typer.Option("--rewind", help="Have the group read again, from --after on.")
    ] = False,
    forget: Annotated[bool, typer.Option("--forget", help="Remove the group.")] = False,
    json_output: JsonOpt = False,
) -> None:
    """Print the event stream, oldest first.

    With --group each event is printed to one reader of the group only, and a new group starts after --after;
    with --rewind an old one does too.

    Example: cellblock events --follow --new --type failed --json
    """
    if rewind and group is None:
        raise InvalidJob("--rewind", "only a group has a place to go back from: name it with --group")
    if new and after is not None:
        raise InvalidJob("--new", "and --after both say where to start: give one of them")
    if new and group is None and not follow:
        raise InvalidJob("--new", "prints nothing without --follow")
    if types and group is not None:
        raise InvalidJob("--type", "would acknowledge events of the group that nobody saw: leave it out")
    if forget:
        if rewind or follow:
            raise InvalidJob("--forget", "removes the group and reads nothing: leave out --rewind, --follow")
        _forget_group(group)
        return
    with Client() as client:
        if new:
            after = "$" if group is not None else client.last_event_id()
        if rewind and group is not None:
            client.rewind(group, after or "0")
        chosen = set(types) | {GAP} if types else set(get_args(EventType))
        _print_events(client, after or "0", chosen, group, follow=follow, json_output=json_output)


def _print_events(
    client: Client, after: str, types: set[str], group: str | None, *, follow: bool, json_output: bool
) -> None:
    headed = json_output
    while True:
        batch = client.events(after, wait_s=1.0 if follow else 0, group=group)
        for event in batch:
            after = event.id if group is None else after
            if event.type not in types:
                continue
            if not headed:
                typer.echo(f"{'time':<25}  {'id':<17}  {'type':<20} {'job':<32}  outcome")
                headed = True
            typer.echo(event.model_dump_json() if json_output else _event_line(event))
        if group is not None:
            sys.stdout.flush()
            client.acknowledge(group, batch)
        if not batch and not follow:
            return


def _event_line(event: Event) -> str:
    return (
        f"{local_time(event.at)}  {event.id:<17}  {event.type:<20} {event.job_id:<32}  {event.outcome or ''}"
    )


def _forget_group(group: str | None) -> None:
    if group is None:
        raise InvalidJob("--forget", "only a group can be forgotten: name it with --group")
    with Client() as client:
        if not client.forget_group(group):
            raise InvalidJob("--group", f"there is no group {group!r}")
