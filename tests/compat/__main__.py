"""All of it, with a table: ``python -m compat [--way WAY]… [--suite NAME] [--target NAME]… [--quick]``.

Writes ``build/compat/<way>.json`` and ends with 1 for a case that passes bare, not inside, and is not listed
in ``expected.toml``, and for a listed case that passes.
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
from compat.expected import Compared, run_and_compare
from compat.inside import compat_host
from compat.targets import Target, targets
from parts import REPOSITORY
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
    found = {way: _run_way(way, chosen) for way in options.way or WAYS}
    _print_table(found)
    return 1 if any(one.problems for compared in found.values() for one in compared) else 0


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

        def one(target: Target) -> Compared:
            began = time.monotonic()
            compared = run_and_compare(host, target, way, bare_of(target))
            for problem in compared.problems:
                print(problem, flush=True)
            took = time.monotonic() - began
            print(f"{way} {target.name}: {compared.inside} of {compared.bare} in {took:.0f} s", flush=True)
            return compared

        pool = ThreadPoolExecutor(SIDE_BY_SIDE)
        try:
            found = list(pool.map(one, chosen))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    minutes = (time.monotonic() - started) / 60
    content = {"way": way, "minutes": round(minutes, 1), "targets": [asdict(compared) for compared in found]}
    BUILD.joinpath(f"{way}.json").write_text(json.dumps(content, indent=1))
    return found


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
