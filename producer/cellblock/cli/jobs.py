"""Commands for jobs: run, submit, status, result, cancel, events."""

from __future__ import annotations

import json
import math
import re
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console

from cellblock.admission.costs import Estimate
from cellblock.admission.intake import Intake
from cellblock.admission.sealing import open_if_fitting
from cellblock.cli import display, entry_points, payloads
from cellblock.client import Client
from cellblock.contract.models import (
    PRIORITY_CLASSES,
    Counts,
    JobResult,
    JobSpec,
    JobState,
    JobStatus,
)
from cellblock.errors import InvalidJob, ResultTimeout
from cellblock_config import LEVELS, Settings, load_settings
from cellblock_config.plans import MICROS

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", re.IGNORECASE)
_FACTOR = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_QUEUED_HINT_S = 5.0

FileArg = Annotated[
    Path,
    typer.Argument(
        metavar="FILE|DIR|-", help="Python source, or a folder with __main__.py; - reads standard input."
    ),
]
ArgsArg = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ARG]...", help="The program's arguments; its options go after --."),
]
LevelOpt = Annotated[str, typer.Option(help=f"Isolation level: {', '.join(LEVELS)}.")]
TenantOpt = Annotated[str, typer.Option(help="On whose account.")]
PlanOpt = Annotated[str | None, typer.Option(help="The tenant's plan, such as casual.")]
MaxCostOpt = Annotated[
    float | None,
    typer.Option("--max-cost", help="Stop it when it has cost this much; the plan's by default."),
]
EstimateOpt = Annotated[bool, typer.Option("--estimate", help="Say what it may cost, and run nothing.")]
ParentOpt = Annotated[
    str | None, typer.Option(help="The running job it is part of: it has its slot, its limits, its money.")
]
RoleOpt = Annotated[str | None, typer.Option(help="Whose run it is, within the plan.")]
ImageOpt = Annotated[str | None, typer.Option(help="Image name from the settings.")]
TimeoutOpt = Annotated[float | None, typer.Option(help="Wall-clock seconds; the level's by default.")]
MemoryOpt = Annotated[str | None, typer.Option(help="Memory limit, such as 256M; the level's by default.")]
StdinOpt = Annotated[Path | None, typer.Option(metavar="FILE", help="What the program reads on stdin.")]
EntrypointOpt = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Which file of DIR to run; __main__.py by default."),
]
FilesOpt = Annotated[
    list[str] | None,
    typer.Option("--file", metavar="[NAME=]PATH", help="Put this file beside the program."),
]
EnvOpt = Annotated[
    list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="An environment variable.")
]
InputOpt = Annotated[
    list[str] | None, typer.Option("--input", metavar="NAME=JSON", help="A global variable of the job.")
]
ContextOpt = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A file of any size, on the worker's host, seen as ctx.")
]
ArtifactOpt = Annotated[
    list[str] | None,
    typer.Option("--artifact", metavar="GLOB", help="Files to bring back, such as 'out/**/*.csv'."),
]
OutOpt = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Where to write the artifacts; created if missing."),
]
OverwriteOpt = Annotated[
    bool, typer.Option("--overwrite", help="With --out: replace files that are there, and write hidden ones.")
]
ConfidentialOpt = Annotated[
    bool, typer.Option("--confidential", help="Seal program and result; see cellblock seal-key new.")
]
PriorityOpt = Annotated[str, typer.Option(help=f"Among your own jobs: {', '.join(PRIORITY_CLASSES)}.")]
RetriesOpt = Annotated[
    int, typer.Option(help="How often to run again what the program itself failed; at most 10.")
]
ExpiresOpt = Annotated[
    float | None, typer.Option("--expires", metavar="SECONDS", help="Reject it if not started by then.")
]
KeyOpt = Annotated[str | None, typer.Option(help="Submitting the same key again returns the first job.")]
JsonOpt = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
JobArg = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the root."""
    for command in (run, submit, status, result, cancel, events):
        app.command()(command)


def run(
    file: FileArg,
    args: ArgsArg = None,
    level: LevelOpt = "standard",
    tenant: TenantOpt = "default",
    plan: PlanOpt = None,
    role: RoleOpt = None,
    max_cost: MaxCostOpt = None,
    image: ImageOpt = None,
    timeout: TimeoutOpt = None,
    memory: MemoryOpt = None,
    stdin: StdinOpt = None,
    entrypoint: EntrypointOpt = None,
    file_option: FilesOpt = None,
    env: EnvOpt = None,
    input_option: InputOpt = None,
    context: ContextOpt = None,
    artifact: ArtifactOpt = None,
    out: OutOpt = None,
    overwrite: OverwriteOpt = False,
    confidential: ConfidentialOpt = False,
    priority: PriorityOpt = "normal",
    retries: RetriesOpt = 0,
    expires: ExpiresOpt = None,
    estimate: EstimateOpt = False,
    json_output: JsonOpt = False,
) -> None:
    """Run one program and show what came back.

    Without CELLBLOCK_REDIS_URL it runs on this machine, with the same admission, sandbox and filters.
    The exit code is 0 if the program ended with 0, 1 if it failed, 2 for a bad request, 3 if it was
    refused, 4 if the fault was ours.

    Example: echo 'print(6*7)' | cellblock run -
    """
    _check_out(artifact, out, json_output)
    payload = payloads.read(file, entrypoint, file_option, env, input_option, context, artifact, stdin)
    spec = _spec(
        payload,
        args,
        timeout,
        memory,
        max_cost,
        level=level,
        tenant=tenant,
        plan=plan,
        role=role,
        image=image,
        priority=priority,
        confidential=confidential,
        retries=retries,
        expires_s=expires,
    )
    settings = load_settings()
    if estimate:
        display.show_estimate(_estimate(spec, settings), json_output)
        return
    console = Console(stderr=True)
    with console.status("running…") if console.is_terminal else _silent():
        outcome = _run_embedded(spec, settings) if settings.redis.url is None else _run_on_fleet(spec)
    display.show(outcome, json_output, out, overwrite)
    sys.exit(display.exit_code(outcome))


def submit(
    file: FileArg,
    args: ArgsArg = None,
    level: LevelOpt = "standard",
    tenant: TenantOpt = "default",
    plan: PlanOpt = None,
    role: RoleOpt = None,
    max_cost: MaxCostOpt = None,
    image: ImageOpt = None,
    timeout: TimeoutOpt = None,
    memory: MemoryOpt = None,
    stdin: StdinOpt = None,
    entrypoint: EntrypointOpt = None,
    file_option: FilesOpt = None,
    env: EnvOpt = None,
    input_option: InputOpt = None,
    context: ContextOpt = None,
    artifact: ArtifactOpt = None,
    confidential: ConfidentialOpt = False,
    priority: PriorityOpt = "normal",
    retries: RetriesOpt = 0,
    expires: ExpiresOpt = None,
    idempotency_key: KeyOpt = None,
    parent: ParentOpt = None,
    json_output: JsonOpt = False,
) -> None:
    """Enqueue one program and print its job id at once.

    Example: cellblock submit program.py --idempotency-key order-17
    """
    payload = payloads.read(file, entrypoint, file_option, env, input_option, context, artifact, stdin)
    spec = _spec(
        payload,
        args,
        timeout,
        memory,
        max_cost,
        level=level,
        tenant=tenant,
        plan=plan,
        role=role,
        image=image,
        priority=priority,
        confidential=confidential,
        retries=retries,
        expires_s=expires,
        idempotency_key=idempotency_key,
        parent=parent,
    )
    with Client() as client:
        job = client.submit(spec)
    typer.echo(json.dumps({"job_id": job.id}) if json_output else job.id)


def status(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="The job's id; all of them without.")
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
        shown[name] = at and time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(at))
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
        outcome = client.result(job, timeout_s=timeout)
    display.show(outcome, json_output, out, overwrite)
    sys.exit(display.exit_code(outcome))


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
    after: Annotated[str, typer.Option(help="Start after this event id; 0 is the oldest kept.")] = "0",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing as events happen.")] = False,
    group: Annotated[
        str | None, typer.Option(help="Read as this consumer group, and acknowledge what was printed.")
    ] = None,
    rewind: Annotated[bool, typer.Option("--rewind", help="The group reads again, from --after on.")] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="Remove the group: nobody reads in it any more.")
    ] = False,
    json_output: JsonOpt = False,
) -> None:
    """Print the event stream, oldest first.

    With --group each event is printed to one reader of the group only, and a new group starts after --after;
    with --rewind an old one does too.

    Example: cellblock events --follow --json
    """
    if rewind and group is None:
        raise InvalidJob("--rewind", "only a group has a place to go back from: name it with --group")
    if forget:
        if rewind or follow:
            raise InvalidJob("--forget", "removes the group and reads nothing: leave out --rewind, --follow")
        _forget_group(group)
        return
    with Client() as client:
        if rewind and group is not None:
            client.rewind(group, after)
        while True:
            batch = client.events(after, wait_s=1.0 if follow else 0, group=group)
            for event in batch:
                after = event.id if group is None else after
                typer.echo(
                    event.model_dump_json()
                    if json_output
                    else f"{event.id}  {event.type:<20} {event.job_id}  {event.outcome or ''}"
                )
            if group is not None:
                sys.stdout.flush()
                client.acknowledge(group, batch)
            if not batch and not follow:
                return


def _forget_group(group: str | None) -> None:
    if group is None:
        raise InvalidJob("--forget", "only a group can be forgotten: name it with --group")
    with Client() as client:
        if not client.forget_group(group):
            raise InvalidJob("--group", f"there is no group {group!r}")


def _spec(
    payload: dict[str, Any],
    args: list[str] | None,
    timeout: float | None,
    memory: str | None,
    max_cost: float | None,
    **fields: Any,
) -> JobSpec:
    """The options as a job; ``fields`` are those that need no translation."""
    return JobSpec(
        **payload,
        args=tuple(args or ()),
        limits=cast(Any, {"timeout_s": timeout, "memory_bytes": _size(memory) if memory else None}),
        max_cost_micros=None if max_cost is None else _micros(max_cost),
        **fields,
    )


def _estimate(spec: JobSpec, settings: Settings) -> Estimate:
    if settings.redis.url is None:
        return Intake(settings).estimate(spec)
    with Client(settings=settings) as client:  # with what governance set at run time
        return client.estimate(spec)


def _micros(amount: float) -> int:
    if not math.isfinite(amount):
        raise InvalidJob("max_cost_micros", f"{amount} is no amount; write one such as 0.02")
    return round(amount * MICROS)


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InvalidJob("limits.memory_bytes", f"{text!r} is not a size; write bytes or 256M, 1G")
    return round(float(match[1]) * _FACTOR[match[2].upper()])


def _run_embedded(spec: JobSpec, settings: Settings) -> JobResult:
    try:
        found = cast(JobResult, entry_points.load("embedded")(spec, settings))
    except KeyboardInterrupt:
        typer.echo("cellblock: cancelled; the sandbox is gone", err=True)
        sys.exit(130)
    return open_if_fitting(found, settings.sealing)


_WAITS_FOR = {
    JobState.QUEUED: "a worker; is one running? (cellblock worker)",
    JobState.PARKED: "a slot: its tenant runs all it may at once",
}


def _run_on_fleet(spec: JobSpec) -> JobResult:
    with Client() as client:
        job = client.submit(spec)
        try:
            with suppress(ResultTimeout):
                return job.result(timeout_s=_QUEUED_HINT_S)
            why = _WAITS_FOR.get(job.status().state)
            if why is not None:
                typer.echo(f"cellblock: job {job.id} still waits for {why}", err=True)
            return job.result()
        except KeyboardInterrupt:
            job.cancel()
            typer.echo(f"cellblock: cancelled {job.id}", err=True)
            sys.exit(130)


class _silent:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def _check_out(artifact: list[str] | None, out: Path | None, json_output: bool) -> None:
    if artifact and out is None and not json_output:
        raise InvalidJob("artifacts", "where to? give --out DIR, or --json to have them in the result")
    if out is not None and not artifact:
        raise InvalidJob("artifacts", "--out has nothing to write; give --artifact GLOB as well")
