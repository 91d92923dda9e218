"""``cellblock run``: one program on this machine, or on the fleet that is configured."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cellblock.cli import INTERRUPTED, entry_points
from cellblock.cli.awaiting import awaited, progress
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
from cellblock.errors import CellblockError, InvalidJob
from cellblock.interrupts import interrupts_held
from cellblock_config import LevelName, Settings, load_settings

if TYPE_CHECKING:
    from cellblock.client import Job
    from cellblock.contract.job_spec import JobSpec
    from cellblock.contract.results import JobResult

EstimateOpt = Annotated[bool, typer.Option("--estimate", help="Say what it may cost, and run nothing.")]


def register(app: typer.Typer) -> None:
    """Add this command to the root."""
    app.command(cls=SectionedCommand)(run)


@takes(AccountOptions, PayloadOptions, JobOptions)
def run(
    file: FileArg,
    payload: PayloadOptions,
    account: AccountOptions,
    job: JobOptions,
    args: ArgsArg = None,
    out: OutOpt = None,
    overwrite: OverwriteOpt = False,
    estimate: EstimateOpt = False,
    json_output: JsonOpt = False,
) -> None:
    """Run one program and show what came back.

    Without CELLBLOCK_REDIS_URL it runs on this machine, with the same admission, sandbox and filters.
    The value of the last expression is in --json alone.
    The exit code is 0 if the program ended with 0, 1 if it failed, 2 for a bad request, 3 if it was
    refused, 4 if the fault was ours.

    Example: echo 'print(6*7)' | cellblock run -
    """
    _check_out(payload.artifacts, out, json_output)
    make_spec = partial(job_spec, file=file, args=args, account=account, payload=payload, job=job)
    prepare = partial(_prepare, out, payload.artifacts, overwrite)
    settings = load_settings()
    if estimate:
        _show_estimate(make_spec(), settings, json_output)
        return
    if settings.redis.url is None:
        ended = _run_here(make_spec, settings, account.level, payload.context, prepare)
    else:
        ended = _run_on_fleet(make_spec, prepare)
    with ended as result:
        with interrupts_held():
            from cellblock.cli import display
        code = display.show(result, json_output, out, overwrite)
    sys.exit(code)


def _show_estimate(spec: JobSpec, settings: Settings, json_output: bool) -> None:
    with interrupts_held():
        from cellblock.admission.intake import Intake
        from cellblock.cli import display
        from cellblock.client import Client
    if settings.redis.url is None:
        found = Intake(settings).estimate(spec)
    else:
        with Client(settings=settings) as client:  # with what governance set at run time
            found = client.estimate(spec)
    display.show_estimate(found, json_output)


@contextmanager
def _run_here(
    make_spec: Callable[[], JobSpec],
    settings: Settings,
    level: LevelName,
    context: Path | None,
    prepare: Callable[[], None],
) -> Iterator[JobResult]:
    """The result of a run on this machine; what was started for it ends with the block."""
    result = None
    try:
        # Launcher and filter start first: this process imports the rest while they get ready.
        with entry_points.load("embedded")(settings, level, context) as run_job:
            spec = make_spec()
            prepare()
            with progress(), entry_points.extra_named("embedded"):
                ended = run_job(spec)
            with interrupts_held():
                from cellblock.admission.sealing import open_if_fitting
            result = open_if_fitting(ended, settings.sealing)
            yield result
            # The job is over and its result shown: what is left takes everything down, and is not cut off.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        if result is None:
            typer.echo("cellblock: cancelled; the sandbox is gone", err=True)
        sys.exit(INTERRUPTED)


@contextmanager
def _run_on_fleet(make_spec: Callable[[], JobSpec], prepare: Callable[[], None]) -> Iterator[JobResult]:
    """The result of a run on the fleet that is configured."""
    with interrupts_held():
        from cellblock.client import Client
    spec = make_spec()
    prepare()
    with Client() as client:
        job = None
        try:
            with interrupts_held():  # a job whose id did not come back could not be cancelled
                job = client.submit(spec)
            with progress():
                result = awaited(client, job.id)
        except (KeyboardInterrupt, SystemExit) as stopped:
            with interrupts_held():
                if job is not None:
                    _cancel(job)
            sys.exit(stopped.code if isinstance(stopped, SystemExit) else INTERRUPTED)
    yield result


def _cancel(job: Job) -> None:
    try:
        ended = job.cancel() == "terminal"
    except CellblockError as error:
        typer.echo(f"cellblock: job {job.id} goes on ({error}): cellblock cancel {job.id}", err=True)
        return
    said = f"job {job.id} has ended: cellblock result {job.id}" if ended else f"cancelled {job.id}"
    typer.echo(f"cellblock: {said}", err=True)


def _prepare(out: Path | None, globs: list[str] | None, overwrite: bool) -> None:
    if out is not None:
        with interrupts_held():
            from cellblock.cli import save_artifacts
        save_artifacts.prepare(out, globs or (), overwrite=overwrite)


def _check_out(artifact: list[str] | None, out: Path | None, json_output: bool) -> None:
    if artifact and out is None and not json_output:
        raise InvalidJob("artifacts", "where to? give --out DIR, or --json to have them in the result")
    if out is not None and not artifact:
        raise InvalidJob("artifacts", "--out has nothing to write; give --artifact GLOB as well")
