"""All of it, with a table: ``python -m compat [--way WAY]… [--suite NAME] [--target NAME]… [--quick]``.

Writes ``build/compat/<way>.json`` and ends with 1 for a case that passes bare, not inside, and is not listed
in ``expected.toml``, and for a listed case that passes. A case that fails runs once more when the others of
its way are done: if it passes then it is unsteady, as in :mod:`suite.once_more`.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import structlog

from compat.baseline import bare_of
from compat.expected import Compared, compare, second_look
from compat.inside import compat_host
from compat.targets import Found, Target, run_target_inside, targets
from parts import REPOSITORY
from sandbox.harness import Host
from suite.closing import FOLDER, Counts, Failure, tell_unsteady
from suite.once_more import keep_unsteady
from suite.turns import every_turn
from suite.ways import WAYS

BUILD = REPOSITORY / "build" / "compat"
#: Targets at work side by side.
SIDE_BY_SIDE = 2


def main() -> int:
    """Run what is chosen; the exit code."""
    options = _options()
    chosen = [target for target in targets() if _is_chosen(target, options)]
    BUILD.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended too
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    began = time.monotonic()
    found = {way: _run_way(way, chosen) for way in options.way or WAYS}
    _print_table(found)
    counts = _counts(found, round(time.monotonic() - began, 1))
    counts.write(FOLDER / "compat.json")
    keep_unsteady(counts.unsteady, "compat")
    tell_unsteady(counts)
    return 0 if counts.green else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="compat")
    parser.add_argument("--way", action="append", choices=[*WAYS, "process"])
    parser.add_argument("--suite", choices=["cpython", "data"])
    parser.add_argument("--target", action="append", help="a module, or a group of files in selection.toml")
    parser.add_argument("--quick", action="store_true", help="the part of a few minutes")
    return parser.parse_args()


def _is_chosen(target: Target, options: argparse.Namespace) -> bool:
    return (
        (not options.suite or target.suite == options.suite)
        and (not options.target or target.name in options.target)
        and (not options.quick or target.quick)
    )


def _run_way(way: str, chosen: list[Target]) -> list[Compared]:
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix=f"compat-{way}-") as folder,
        compat_host(Path(folder), way) as host,
    ):
        inside = _run_all(host, way, chosen)
        with every_turn():
            found = [_look_again(host, way, target, inside[target.name]) for target in chosen]
    minutes = (time.monotonic() - started) / 60
    content = {"way": way, "minutes": round(minutes, 1), "targets": [asdict(compared) for compared in found]}
    BUILD.joinpath(f"{way}.json").write_text(json.dumps(content, indent=1))
    return found


def _run_all(host: Host, way: str, chosen: list[Target]) -> dict[str, Found]:
    """What came of each target, by name, some side by side."""

    def run(target: Target) -> Found:
        began = time.monotonic()
        bare, inside = bare_of(target), run_target_inside(host, target)
        passed, took_s = len(bare.passed & inside.passed), time.monotonic() - began
        print(f"{way} {target.name}: {passed} of {len(bare.passed)} in {took_s:.0f} s", flush=True)
        return inside

    pool = ThreadPoolExecutor(SIDE_BY_SIDE)
    try:
        return dict(zip([target.name for target in chosen], pool.map(run, chosen), strict=True))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _look_again(host: Host, way: str, target: Target, inside: Found) -> Compared:
    """Compare, after the cases that failed without a reason have run once more, with nothing beside them."""
    bare = bare_of(target)
    again = second_look(target, way, bare, inside)
    second = run_target_inside(host, target, again) if again else Found({})
    compared = compare(target, way, bare, inside, second)
    for problem in compared.problems:
        print(problem, flush=True)
    return compared


def _counts(found: dict[str, list[Compared]], wall_s: float) -> Counts:
    """The same as `make test` leaves behind, so that CI adds it up."""
    every = [compared for way in found.values() for compared in way]
    failures = [Failure(problem, "", may_rerun=False) for compared in every for problem in compared.problems]
    unsteady = [
        Failure(f"{compared.way} {compared.target} {case}", why, may_rerun=True)
        for compared in every
        for case, why in compared.unsteady.items()
    ]
    passed = sum(compared.inside for compared in every)
    return Counts(passed, len(failures), 0, wall_s, tuple(failures), tuple(unsteady))


def _print_table(found: dict[str, list[Compared]]) -> None:
    head = ("way", "pass bare", "pass inside", "listed", "without reason", "stale")
    print("".join(f"{word:>16}" for word in head))
    for way, compared in found.items():
        figures = (
            sum(one.bare for one in compared),
            sum(one.inside for one in compared),
            sum(len(one.listed) for one in compared),
            sum(len(one.unlisted) for one in compared),
            sum(len(one.stale) for one in compared),
        )
        print("".join(f"{word:>16}" for word in (way, *figures)))


if __name__ == "__main__":
    sys.exit(main())
