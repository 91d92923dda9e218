"""Commands for anyone who runs the fleet: worker, launcher, monitor, up, doctor."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cellblock.cli import entry_points


def register(app: typer.Typer) -> None:
    """Add these commands to the root."""
    app.command()(worker)
    app.command()(launcher)
    app.command()(monitor)
    app.command()(up)
    app.command()(doctor)


def worker(
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Run no worker. Exit with 0 if the workers of this host consume, else with 1."
        ),
    ] = False,
    silent_s: Annotated[
        float | None,
        typer.Option(
            "--silent",
            min=0.1,
            metavar="SECONDS",
            help="With --check: how long jobs may wait; by default CELLBLOCK_WORKER_SILENT_S, 30.",
        ),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="With --check: print JSON.")] = False,
) -> None:
    """Run a worker on this host, with a launcher beside it.

    Needs CELLBLOCK_REDIS_URL. Set CELLBLOCK_LAUNCHER_SOCKET to use a launcher that runs already.
    TERM lets running jobs finish for CELLBLOCK_WORKER_DRAIN_S and gives the others back; a second
    TERM, or QUIT, gives them back at once.

    Example: CELLBLOCK_REDIS_URL=redis://127.0.0.1:6379/0 cellblock worker
    """
    if check:
        sys.exit(entry_points.load("worker-check")(silent_s=silent_s, json_output=json_output))
    if silent_s is not None or json_output:
        raise typer.BadParameter("--silent and --json belong to --check")
    sys.exit(entry_points.load("worker")())


def launcher() -> None:
    """Run only this host's launcher.

    The half that needs the Docker socket; a worker elsewhere names its socket.

    Example: CELLBLOCK_LAUNCHER_SOCKET=/run/cellblock/launcher.sock cellblock launcher
    """
    entry_points.load("launcher")()


def monitor() -> None:
    """Run Flower: read-only, behind CELLBLOCK_MONITOR_PASSWORD.

    Example: CELLBLOCK_MONITOR_PASSWORD=… cellblock monitor
    """
    entry_points.load("monitor")()


def up(
    json_output: Annotated[
        bool, typer.Option("--json", help="Say where everything is as one JSON line.")
    ] = False,
) -> None:
    """Run a whole fleet on this machine.

    Launcher, worker and Flower, until Ctrl-C; running jobs finish first. Where no Redis is configured also
    one of its own, with a folder for long payloads and an archive: all three are gone at the end. Where an
    archive is configured, an archiver.

    Example: cellblock up
    """
    sys.exit(entry_points.load("up")(json_output=json_output))


def doctor(
    attack: Annotated[
        bool, typer.Option("--attack", help="Attack every way this host makes sandboxes, control by control.")
    ] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Check this host: what it offers to hold a job, and what to do about what it lacks.

    The exit code is 0 if a standard job can run and there is no problem; with --attack, if at least one
    isolation works and nothing got out of any; else 1.

    Example: cellblock doctor --attack
    """
    sys.exit(entry_points.load("doctor")(attacks=attack, json_output=json_output))
