"""`python tests/bench/compare.py BEFORE [AFTER]`: what people wait for, of one commit or of two, in one run.

Rounds alternate between the commits and the yardstick, so that a host whose speed moves moves all of them.
Each commit is installed into build/bench/commits, without its dependencies: those of this checkout serve all.

    python tests/bench/compare.py f41a7d1 HEAD --rounds 5
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from parts import REPOSITORY

FOLDER = REPOSITORY / "build/bench"
COMMAND = (sys.executable, "-c", "from cellblock.cli import main; main()")
#: What an interpreter takes that imports what nearly every program does.
YARDSTICK = (sys.executable, "-c", "import json, asyncio")


#: One run: the figure, the commit, the command and its variables.
Timed = tuple[str, str, Sequence[str], Mapping[str, str]]


@dataclass(frozen=True)
class Figure:
    """One command. ``at_most``: the ratio to the yardstick that is wanted."""

    name: str
    command: Sequence[str]
    at_most: float
    variables: Mapping[str, str] = field(default_factory=dict)


def figures(program: Path) -> list[Figure]:
    """What is measured: the first commands of somebody new."""
    run = (*COMMAND, "run", str(program))
    return [
        Figure("cellblock --help", (*COMMAND, "--help"), 4),
        Figure("import cellblock", (sys.executable, "-c", "import cellblock"), 5),
        Figure("cellblock run, namespaces", run, 20, isolated("namespaces")),
        Figure("cellblock run, gvisor", run, 28, isolated("gvisor")),
    ]


def isolated(isolation: str) -> dict[str, str]:
    """The variables that leave a host this isolation."""
    return {"CELLBLOCK_SANDBOX_ISOLATIONS": json.dumps([isolation])}


def installed(commit: str) -> Path:
    """The folder with this commit's packages."""
    name = ["git", "rev-parse", "--short=12", commit]
    sha = subprocess.check_output(name, cwd=REPOSITORY, text=True).strip()
    target = FOLDER / "commits" / sha
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            archive = subprocess.check_output(["git", "archive", sha], cwd=REPOSITORY)
            subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
            made = Path(folder) / "made"
            options = ("--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
            subprocess.run(
                [sys.executable, "-m", "pip", "install", *options, "--target", made, folder], check=True
            )
            compileall.compile_dir(made, quiet=1)
            made.rename(target)
    return target


def took_ms(command: Sequence[str], variables: Mapping[str, str]) -> float:
    """The wall time of one run, in milliseconds, to its exit."""
    began = time.perf_counter()
    done = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    elapsed_ms = 1000 * (time.perf_counter() - began)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return elapsed_ms


def measure(commits: Sequence[str], rounds: int) -> dict[str, dict[str, list[float]]]:
    """By figure and commit, the milliseconds of every round; the yardstick's are by its own name."""
    folders = {commit: installed(commit) for commit in commits}
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "hello.py"
        program.write_text("print(6*7)")
        for round_ in range(rounds + 1):
            print(f"round {round_} of {rounds}", file=sys.stderr)
            timed: list[Timed] = [("yardstick", "", YARDSTICK, {})]
            for one in figures(program):
                timed += [
                    (one.name, commit, one.command, {**one.variables, "PYTHONPATH": str(folders[commit])})
                    for commit in commits
                ]
            for name, commit, command, variables in timed:
                elapsed_ms = took_ms(command, variables)
                if round_:  # the first one fills caches
                    found.setdefault(name, {}).setdefault(commit, []).append(elapsed_ms)
    return found


def table(found: Mapping[str, Mapping[str, Sequence[float]]], commits: Sequence[str]) -> Table:
    """Medians with their spread, as ratios to the yardstick of the same run, and what is wanted."""
    base = statistics.median(found["yardstick"][""])
    headers = [column for commit in commits for column in (f"{commit}, ms", "least to most", "of yardstick")]
    shown = Table("", *headers, "wanted", title=f"yardstick: import json, asyncio, {base:.0f} ms")
    for one in figures(Path()):
        cells = []
        for commit in commits:
            values = found[one.name][commit]
            middle = statistics.median(values)
            cells += [f"{middle:.0f}", f"{min(values):.0f} to {max(values):.0f}", f"{middle / base:.1f}"]
        shown.add_row(one.name, *cells, f"at most {one.at_most:g}")
    return shown


def main() -> None:
    """Measure, print the table, write build/bench/compare.json."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("commits", nargs="+", metavar="COMMIT")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    found = measure(arguments.commits, arguments.rounds)
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "compare.json").write_text(json.dumps(found, indent=2) + "\n")
    Console(width=None if sys.stdout.isatty() else 120).print(table(found, arguments.commits))


if __name__ == "__main__":
    main()
