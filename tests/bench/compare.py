"""`tests/bench/compare.py BEFORE [AFTER]`: what people wait for, of one commit or of two, in one run.

Rounds alternate between the commits and the yardstick, so that a host whose speed moves moves all of them.
Each is installed into build/bench/installed, without its dependencies: those of this checkout serve all.

    config/host/with-docker.sh env PYTHONPATH=tests .venv/bin/python tests/bench/compare.py f41a7d1 HEAD

HEAD is the commit: what is not committed is not measured.
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


#: One run: the figure, the commit and its variables.
Timed = tuple["Figure", str, Mapping[str, str]]


@dataclass(frozen=True)
class Figure:
    """One command. ``wanted``: the goal, in the figure's unit if the command ``prints`` it, else in
    yardsticks."""

    name: str
    command: Sequence[str]
    wanted: str
    variables: Mapping[str, str] = field(default_factory=dict)
    prints: bool = False


def figures(program: Path, only: str) -> list[Figure]:
    """What is measured: the first commands of somebody new, and what a fleet does with its processors."""
    run = (*COMMAND, "run", str(program))
    found = [
        Figure("cellblock --help, ms", (*COMMAND, "--help"), "at most 4"),
        Figure("import cellblock, ms", (sys.executable, "-c", "import cellblock"), "at most 5"),
        Figure("cellblock run, namespaces, ms", run, "at most 20", isolated("namespaces")),
        Figure("cellblock run, gvisor, ms", run, "at most 28", isolated("gvisor")),
        printed("gvisor-start", "start under gVisor, CPU s", "at most 0.32"),
        printed("strict-hello", "hello under gVisor, jobs/s of docker run's", "at least 2.2"),
        printed("lines", "300,000 lines under gVisor, bare CPU times", "at most 4"),
        printed("evaluation", "evaluation under gVisor, samples/s", "at least 15"),
        printed("filter", "honest text through the filter, MB/s", "at least 0.4"),
    ]
    return [one for one in found if only in one.name]


def printed(figure: str, name: str, wanted: str) -> Figure:
    """One of printed_figures.py."""
    command = (sys.executable, str(REPOSITORY / "tests/bench/printed_figures.py"), figure)
    return Figure(name, command, wanted, prints=True)


YARD = Figure("yardstick", YARDSTICK, "")


def isolated(isolation: str) -> dict[str, str]:
    """The variables that leave a host this isolation."""
    return {"CELLBLOCK_SANDBOX_ISOLATIONS": json.dumps([isolation])}


def installed(commit: str) -> Path:
    """The folder with this commit's packages."""
    name = ["git", "rev-parse", "--short=12", commit]
    sha = subprocess.check_output(name, cwd=REPOSITORY, text=True).strip()
    target = FOLDER / "installed" / sha
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
            (Path(folder) / "tests").rename(made / "tests")  # a fleet is driven by the tests of its commit
            compileall.compile_dir(made, quiet=1)
            made.rename(target)
    return target


def measured(figure: Figure, variables: Mapping[str, str]) -> float:
    """The figure that one run prints, or its wall time in milliseconds, to its exit."""
    began = time.perf_counter()
    environment = {**os.environ, **figure.variables, **variables}
    done = subprocess.run(figure.command, env=environment, capture_output=True, text=True, check=False)
    elapsed_ms = 1000 * (time.perf_counter() - began)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(figure.command)} ended with {done.returncode}: {done.stderr}")
    return float(done.stdout) if figure.prints else elapsed_ms


def measure(commits: Sequence[str], rounds: int, only: str) -> dict[str, dict[str, list[float]]]:
    """By figure and commit, the values of every round; the yardstick's are by its own name."""
    folders = {commit: installed(commit) for commit in commits}
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "hello.py"
        program.write_text("print(6*7)")
        for round_ in range(rounds + 1):
            print(f"round {round_} of {rounds}", file=sys.stderr)
            timed: list[Timed] = [(YARD, "", {})]
            for one in figures(program, only):
                if round_ or not one.prints:  # those that print their figure do not time their own first run
                    timed += [
                        (one, commit, {"PYTHONPATH": f"{folders[commit]}{os.pathsep}{folders[commit]}/tests"})
                        for commit in commits
                    ]
            for one, commit, variables in timed:
                value = measured(one, variables)
                if round_:  # the first one fills caches
                    found.setdefault(one.name, {}).setdefault(commit, []).append(value)
    return found


def table(found: Mapping[str, Mapping[str, Sequence[float]]], commits: Sequence[str], only: str) -> Table:
    """Medians with their spread, wall times also as ratios to the yardstick of the run, and the goals."""
    base = statistics.median(found[YARD.name][""])
    headers = [column for commit in commits for column in (commit, "least to most", "of yardstick")]
    shown = Table("", *headers, "wanted", title=f"yardstick: import json, asyncio, {base:.0f} ms")
    for one in figures(Path(), only):
        cells = []
        for commit in commits:
            values = found[one.name][commit]
            middle, least, most = (
                f"{value:.2f}" if one.prints else f"{value:.0f}"
                for value in (statistics.median(values), min(values), max(values))
            )
            ratio = "" if one.prints else f"{statistics.median(values) / base:.1f}"
            cells += [middle, f"{least} to {most}", ratio]
        shown.add_row(one.name, *cells, one.wanted)
    return shown


def main() -> None:
    """Measure, print the table, write build/bench/compare.json."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("commits", nargs="+", metavar="COMMIT")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", metavar="TEXT", help="figures with this in their name")
    arguments = parser.parse_args()
    if not figures(Path(), arguments.only):
        known = "; ".join(one.name for one in figures(Path(), ""))
        parser.error(f"no figure has {arguments.only!r} in its name; there are: {known}")
    found = measure(arguments.commits, arguments.rounds, arguments.only)
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "compare.json").write_text(json.dumps(found, indent=2) + "\n")
    Console(width=None if sys.stdout.isatty() else 140).print(table(found, arguments.commits, arguments.only))


if __name__ == "__main__":
    main()
