"""``cellblock eval compare``: is one run better than the other, or would chance do as much?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from cellblock.evaluation.comparison import Comparison, Pair, compare, write_comparison

_NAMED = 10


def compare_runs(
    a: Annotated[Path, typer.Argument(metavar="A", help="Folder of one run: its --out.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Folder of the other run.")],
    seed: Annotated[int, typer.Option(help="Random seed of interval and test.")] = 0,
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write a page of the problems that changed."),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Compare two runs over the same problems: what got better or worse, and is that more than chance?

    Only problems judged in both count. The exit code is 0 whichever is better.

    Example: cellblock eval compare results-old results-new --page changes.html
    """
    found = compare(a, b, seed)
    typer.echo(json.dumps(_plain(found))) if json_output else _show(found, a, b)
    if page is not None:
        write_comparison(found, page, (str(a), str(b)))
        typer.echo(f"cellblock: the page is {page}", err=True)


def _show(found: Comparison, a: Path, b: Path) -> None:
    typer.echo(f"A          {found.rate_a:.2%} passed  ({a})")
    typer.echo(f"B          {found.rate_b:.2%} passed  ({b})")
    said = " to ".join(f"{100 * bound:+.2f}" for bound in (found.low, found.high))
    typer.echo(f"difference {100 * found.difference:+.2f} points  (95%: {said})")
    typer.echo(found.sentence)
    counts = f"{len(found.better)} better in B, {len(found.worse)} worse, {found.same} the same"
    typer.echo(f"{len(found.pairs)} problems judged in both: {counts}")
    for word, pairs in (("worse", found.worse), ("better", found.better)):
        for pair in pairs[:_NAMED]:
            typer.echo(f"{word:<6} {_rates(pair)}  {pair.task_id!r:.80}")
        if len(pairs) > _NAMED:
            typer.echo(f"{word:<6} and {len(pairs) - _NAMED} more: --page or --json has them")
    for name, tasks in (("A", found.only_a), ("B", found.only_b)):
        if tasks:
            typer.echo(f"cellblock: judged in {name} only: {_some(tasks)}", err=True)
    for field, (one, other) in found.differs.items():
        typer.echo(f"cellblock: the runs differ in {field}: {one!r:.80} in A, {other!r:.80} in B", err=True)


def _rates(pair: Pair) -> str:
    a, b = (f"{side.passed}/{side.judged}" for side in (pair.a, pair.b))
    return f"{a:>7} -> {b:<7}"


def _some(tasks: tuple[str, ...]) -> str:
    more = f" and {len(tasks) - _NAMED} more" if len(tasks) > _NAMED else ""
    return ", ".join(f"{task!r:.80}" for task in tasks[:_NAMED]) + more


def _plain(found: Comparison) -> dict[str, Any]:
    return {
        "problems": len(found.pairs),
        "rate_a": found.rate_a,
        "rate_b": found.rate_b,
        "difference": found.difference,
        "low": found.low,
        "high": found.high,
        "p": found.p,
        "conclusion": found.conclusion,
        "better": len(found.better),
        "worse": len(found.worse),
        "same": found.same,
        "only_a": found.only_a,
        "only_b": found.only_b,
        "differs": found.differs,
        "tasks": {pair.task_id: _counts(pair) for pair in found.pairs},
    }


def _counts(pair: Pair) -> dict[str, Any]:
    return {
        "judged_a": pair.a.judged,
        "passed_a": pair.a.passed,
        "judged_b": pair.b.judged,
        "passed_b": pair.b.passed,
        "difference": float(pair.difference),
    }
