"""What ``cellblock eval`` shows: progress while it runs, and its figures at the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cellblock.evaluation import Scores
from cellblock.evaluation.results import FILE

_LOOK_S = 2.0
#: Before that no time left is told: what comes first is the beginning of many jobs.
_FORETOLD_S = 15.0
_NAMED = 20


@contextmanager
def progress_of(total: int, scores: Scores) -> Iterator[Callable[[], None]]:
    """What is seen while it runs: a bar for people, a line every two seconds for logs."""
    console = Console(stderr=True)
    if not console.is_terminal:
        with _lines(total, scores):
            yield lambda: None
        return
    # All of it fits into 80 columns, with seven digits on both sides.
    columns = (
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=total, completed=scores.done)
        began, before = time.monotonic(), scores.done

        def look() -> None:
            rate = (scores.done - before) / max(0.001, time.monotonic() - began)
            words = f"{scores.passed / scores.done:.1%} passed, {rate:.0f}/s"
            progress.update(task, completed=scores.done, description=words)

        yield look


@contextmanager
def _lines(total: int, scores: Scores) -> Iterator[None]:
    """Says every two seconds how far it is, also before the first result."""
    over, began, before = threading.Event(), time.monotonic(), scores.done

    def say() -> None:
        while not over.wait(_LOOK_S):
            took_s = time.monotonic() - began
            typer.echo(_line(total, scores, before, took_s), err=True)

    thread = threading.Thread(target=say, name="cellblock-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _line(total: int, scores: Scores, before: int, took_s: float) -> str:
    done, rate = scores.done, (scores.done - before) / took_s
    line = f"{done} of {total} judged"
    if done:
        line += f", {scores.passed / done:.1%} passed, {rate:.3g}/s"
    if rate and took_s > _FORETOLD_S:
        line += f", {(total - done) / rate:.0f} s left"
    return line


def show_summary(summary: dict[str, Any], out: Path) -> None:
    """Prints the figures of a run for people."""
    for k, found in summary["pass_at"].items():
        if found is None and summary["not_run"]:
            typer.echo(f"pass@{k:<4} is not known: {summary['not_run']} samples were not run")
        elif found is None:
            typer.echo(f"pass@{k:<4} not every problem has {k} judged samples")
        else:
            typer.echo(f"pass@{k:<4} {found['value']:.2%}  (95%: {found['low']:.2%} to {found['high']:.2%})")
    words = ", ".join(f"{count} {name}" for name, count in summary["verdicts"].items())
    typer.echo(f"{summary['samples']} samples of {summary['problems_judged']} problems: {words}")
    _show_account(summary)
    typer.echo(f"{summary['problems_solved']} of {summary['problems']} problems have a sample that passed")
    if missing := summary["problems"] - summary["problems_judged"]:
        typer.echo(
            f"{missing} of {summary['problems']} problems have no judged sample, and no part in pass@k"
        )
    if summary["unusable"]:
        names = ", ".join(summary["unusable"][:_NAMED])
        typer.echo(f"tests that cannot be used, see error in {FILE}: {names}", err=True)
    if summary["needs_inline"]:
        # An object that says it equals everything comes here too: no verdict that it could forge is advised.
        names = ", ".join(summary["needs_inline"])
        typer.echo(
            "not passed: a test or a returned object there needs more than plain values (needs_inline); read "
            f"these before you trust any: {names}"
        )
    for bad in summary["bad_lines"]:
        typer.echo(f"cellblock: left out {bad}", err=True)
    if (more := summary["left_out"] - len(summary["bad_lines"])) > 0:
        typer.echo(f"cellblock: left out {more} lines more", err=True)
    typer.echo(f"cellblock: results in {out}", err=True)


def _show_account(summary: dict[str, Any]) -> None:
    account, invalid = summary["account"], summary["invalid"]
    parts = [f"{account['judged']} judged"]
    parts += [
        f"{account[name]} {name.replace('_', ' ')}"
        for name in ("unjudged", "unusable_tests", "not_run", "left_out")
        if account[name]
    ]
    typer.echo(f"{account['given']} samples given: {', '.join(parts)}")
    if invalid:
        reasons = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in invalid.items())
        typer.echo(f"{account['invalid']} of the judged cannot be run and have failed ({reasons})")
