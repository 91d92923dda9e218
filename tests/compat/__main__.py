"""All of it, with a table: ``python -m compat [--way WAY]… [--suite NAME] [--target NAME]… [--quick]``.

Writes ``build/compat/<way>.json`` and ends with 1 for a case that passes bare, not inside, and is not listed
in ``expected.toml``, and for a listed case that passes. Cases that fail without a reason run once more when
the targets of their way are done. A target of which all pass then is unsteady, as a case is in
:mod:`suite.once_more`.
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
from suite.counts import Counts, Failure, forget, keep, print_unsteady
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
    forget("compat")
    began = time.monotonic()
    found = {way: _run_way(way, chosen) for way in options.way or WAYS}
    _print_table(found)
    counts = counts_of(found, round(time.monotonic() - began, 1))
    keep(counts, "compat")
    print_unsteady(counts)
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
        second = _look_again(host, way, inside)
    found = [
        compare(target, way, bare_of(target), inside[target], second.get(target, Found({})))
        for target in chosen
    ]
    for compared in found:
        for problem in compared.problems:
            print(problem, flush=True)
    minutes = (time.monotonic() - started) / 60
    content = {"way": way, "minutes": round(minutes, 1), "targets": [asdict(compared) for compared in found]}
    BUILD.joinpath(f"{way}.json").write_text(json.dumps(content, indent=1))
    return found


def _run_all(host: Host, way: str, chosen: list[Target]) -> dict[Target, Found]:
    """What came of each target, some of them side by side."""

    def run(target: Target) -> Found:
        began = time.monotonic()
        bare, inside = bare_of(target), run_target_inside(host, target)
        passed, took_s = len(bare.passed & inside.passed), time.monotonic() - began
        print(f"{way} {target.name}: {passed} of {len(bare.passed)} in {took_s:.0f} s", flush=True)
        return inside

    pool = ThreadPoolExecutor(SIDE_BY_SIDE)
    try:
        return dict(zip(chosen, pool.map(run, chosen), strict=True))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _look_again(host: Host, way: str, inside: dict[Target, Found]) -> dict[Target, Found]:
    """What came of the cases that failed without a reason, with nothing beside their target."""
    again = {target: second_look(target, way, bare_of(target), found) for target, found in inside.items()}
    if not any(again.values()):
        return {}
    with every_turn():
        return {target: run_target_inside(host, target, cases) for target, cases in again.items() if cases}


def counts_of(found: dict[str, list[Compared]], wall_s: float) -> Counts:
    """The counts as every tier leaves them, so that CI adds them up."""
    every = [compared for way in found.values() for compared in way]
    unsteady = [
        Failure(f"{compared.way} {compared.target}", _complaint(compared.unsteady), may_rerun=True)
        for compared in every
        if compared.unsteady and not compared.unlisted
    ]
    failed = sum(len(compared.problems) for compared in every)
    return Counts(
        passed=sum(compared.inside for compared in every),
        failed=failed,
        wall_s=wall_s,
        unsteady=tuple(unsteady),
    )


def _complaint(unsteady: dict[str, str]) -> str:
    """The first case in full. Where a job ended early there are dozens."""
    case, why = next(iter(unsteady.items()))
    return f"{case}: {why}" + (f", and {len(unsteady) - 1} others" if len(unsteady) > 1 else "")


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
