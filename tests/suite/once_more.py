"""Runs pytest, and each case that failed once more alone: ``python -m suite.once_more TIER PYTEST…``.

A busy host fails cases that are right. So each case that failed runs again while no other case of any suite
on this host does. Failed twice is red. Failed once is *unsteady*: named at the end, kept in
``build/tests/unsteady.json``, and red where there are more than :data:`suite.counts.UNSTEADY_MAX`.

Red at once is what a second run would not make good: a case marked ``no_rerun`` (an attack that got out), a
teardown, which may be other cases' too, a process that ended at its case, a run that stopped early, and a run
of a single case, which was alone. The exit code is pytest's, or 0 where every failure was unsteady.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest

from suite.counts import Counts, Failure, forget, keep, print_unsteady
from suite.turns import every_turn

#: More failures than this have one cause, and none of them runs again.
_RERUN_MAX = 10
_ALONE = ("-q", "-n", "0", "-p", "no:cacheprovider", "-p", "no:suite.times", "--tier", "all")


class Stopped(Exception):
    """Somebody ended this process: what failed since then says nothing."""


def main(arguments: Sequence[str]) -> int:
    """Run the tests and judge what failed; the exit code."""
    tier, *command = arguments
    forget(tier)
    try:
        code, counts = _run(command)
        if counts is None:  # a process that ended pytest with 0 has failed too
            return code or pytest.ExitCode.TESTS_FAILED
        if code == pytest.ExitCode.TESTS_FAILED and counts.failures and counts.whole:
            counts = judge(counts)
            code = pytest.ExitCode.OK if counts.green else code
    except Stopped:
        return pytest.ExitCode.INTERRUPTED
    keep(counts, tier)
    print_unsteady(counts)
    return code


def judge(counts: Counts) -> Counts:
    """The counts after a second run of each failure that may have one, with the unsteady cases apart."""
    was_alone = counts.passed + counts.failed == 1
    again = [failure for failure in counts.failures if failure.may_rerun and not was_alone]
    for failure in counts.failures:
        if not failure.may_rerun:
            print(f"red at once: {failure.case}: {failure.message}", flush=True)
    if len(again) > _RERUN_MAX:
        print(f"{len(again)} cases failed, more than {_RERUN_MAX}: none runs again", flush=True)
        return counts
    with every_turn():
        unsteady = tuple(failure for failure in again if _passes_alone(failure))
    red = tuple(failure for failure in counts.failures if failure not in unsteady)
    for failure in red:
        if failure.may_rerun:
            print(f"red: {failure.case}: {failure.message}")
    return replace(
        counts,
        passed=counts.passed + len(unsteady),
        failed=counts.failed - len(unsteady),
        failures=red,
        unsteady=unsteady,
    )


def run_alone(case: str) -> Counts | None:
    """One case in a process of its own; None if that did not come to its end. Raises :class:`Stopped`."""
    code, counts = _run([sys.executable, "-m", "pytest", *_ALONE, case])
    ended = code == (pytest.ExitCode.TESTS_FAILED if counts and counts.failed else pytest.ExitCode.OK)
    return counts if ended else None


def _passes_alone(failure: Failure) -> bool:
    print(f"\nonce more: {failure.case}", flush=True)
    counts = run_alone(failure.case)
    return counts is not None and (counts.passed, counts.failed, counts.skipped) == (1, 0, 0)


def _run(command: Sequence[str]) -> tuple[int, Counts | None]:
    """The exit code of a run of pytest, and its counts if it came to its end. Raises :class:`Stopped`.

    Ctrl-C reaches the run from the terminal, TERM through this process.
    """
    signals: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "counts.json"
        process = subprocess.Popen([*command, "--counts", str(file)])

        def pass_on(number: int, frame: FrameType | None) -> None:
            signals.append(number)
            if number != signal.SIGINT:
                process.send_signal(number)

        before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            code = process.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if signals:
            raise Stopped
        return code, Counts.read(file) if file.exists() else None


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)  # it is how this module is found, and no part of what is tested
    sys.exit(main(sys.argv[1:]))
