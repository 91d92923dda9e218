"""How results and estimates look on a screen, and what exit code they mean."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import typer

from cellblock.cli import save_artifacts
from cellblock.contract.outcomes import OUR_FAULT, Outcome
from cellblock.contract.results import JobResult
from cellblock.egress.controls import KIND as CONTROL_KIND
from cellblock_config import Unisolated
from cellblock_config.plans import MICROS
from cellblock_config.prices import BUILT_IN, default_file

if TYPE_CHECKING:
    from cellblock.admission.costs import Estimate


def show(result: JobResult, json_output: bool, out: Path | None, overwrite: bool) -> int:
    """A result on the screen, and its files in a folder where one is named. Returns the exit code, as the
    root's docstring has it: 1 as well where a file could not be written."""
    _print(result, json_output)
    unwritten = {}
    if out is not None and result.sealed is None:
        unwritten = save_artifacts.save(result.artifacts, out, overwrite=overwrite)
        count = len(result.artifacts) - len(unwritten)
        typer.echo(f"cellblock: {count} artifact{'s' * (count != 1)} written to {out}", err=True)
        for path, why in unwritten.items():
            typer.echo(f"cellblock: not written {path!r}: {why}", err=True)
    return _exit_code(result) or (1 if unwritten else 0)


def _print(result: JobResult, json_output: bool) -> None:
    if json_output:
        typer.echo(result.model_dump_json())
        return
    if result.sealed is not None:
        _print_summary(result)
    sys.stdout.write(result.stdout)
    sys.stdout.flush()
    sys.stderr.write(result.stderr)
    if not result.ok:
        why = result.error.message if result.error else ""
        if result.error and result.outcome is Outcome.EXIT and result.error.type != "Exit":
            # Elsewhere the type repeats the outcome.
            why = f"{result.error.type}: {why}"
        took = f"{result.usage.wall_ms / 1000:.2f} s"
        unheard = "no result of it" if result.outcome is Outcome.WORKER_LOST else "not run"
        where = f"{result.isolation}, {took}" if result.isolation else unheard
        typer.echo(f"cellblock: {result.outcome}: {why} ({where})", err=True)
    if result.outcome in OUR_FAULT and result.worker != "embedded":
        typer.echo(f"cellblock: why each attempt failed: cellblock dead show {result.job_id}", err=True)
    if result.isolation in get_args(Unisolated):
        typer.echo(
            f"cellblock: not isolated ({result.isolation}): the job could do what its user on this host can",
            err=True,
        )
    for taken in result.redactions:
        if taken.kind != CONTROL_KIND:
            typer.echo(f"cellblock: {taken.stream}: {taken.kind} taken out ({taken.count})", err=True)
    for skipped in result.artifacts_skipped:
        typer.echo(f"cellblock: left out {skipped.path!r}: {skipped.reason}", err=True)


def _print_summary(result: JobResult) -> None:
    for name, size in result.summary or ():
        typer.echo(f"{name:<17} {'-' if size is None else size}")
    typer.echo(
        "cellblock: sealed to its tenant; to read it, set CELLBLOCK_SEALING_PRIVATE_KEY to the key that fits",
        err=True,
    )


def local_time(unix_s: float) -> str:
    """A time as every listing shows it: this host's, with its zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(unix_s))


def show_estimate(found: Estimate, json_output: bool) -> None:
    """What a job may cost."""
    if json_output:
        typer.echo(found.model_dump_json())
        return
    least, worst, held = (
        micros / MICROS for micros in (found.least_micros, found.worst_micros, found.reserve_micros)
    )
    typer.echo(f"{least:g} to {worst:g} {found.unit}; {held:g} would be held for it (prices: {found.prices})")
    if found.prices == BUILT_IN:
        typer.echo(f"cellblock: using built-in prices; put yours into {default_file()}", err=True)
    if found.warning:
        typer.echo(f"cellblock: {found.warning}", err=True)


def _exit_code(result: JobResult) -> int:
    if result.ok:
        return 0
    if result.outcome is Outcome.REJECTED:
        return 3
    return 4 if result.outcome in OUR_FAULT else 1
