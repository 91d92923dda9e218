"""What ``cellblock eval`` shows: progress while it runs, and its figures at the end."""

from __future__ import annotations

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
        yield _LineByLine(total, scores)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=total, completed=scores.done)
        began, before = time.monotonic(), scores.done

        def look() -> None:
            rate = (scores.done - before) / max(0.001, time.monotonic() - began)
            others = ", ".join(
                f"{name} {n}" for name, n in sorted(scores.verdicts.items()) if name != "passed"
            )
            share = scores.passed / scores.done
            words = f"{share:.1%} passed, {rate:.0f}/s{', ' + others if others else ''}"
            progress.update(task, completed=scores.done, description=words)

        yield look


class _LineByLine:
    def __init__(self, total: int, scores: Scores) -> None:
        self._total, self._scores = total, scores
        self._began = self._said = time.monotonic()
        self._before = scores.done

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self._said < _LOOK_S:
            return
        self._said = now
        scores, rate = self._scores, (self._scores.done - self._before) / (now - self._began)
        said = (
            f"{scores.done} of {self._total} judged, {scores.passed / scores.done:.1%} passed, {rate:.3g}/s"
        )
        if now - self._began > _FORETOLD_S:
            said += f", {(self._total - scores.done) / rate:.0f} s left"
        typer.echo(said, err=True)


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
