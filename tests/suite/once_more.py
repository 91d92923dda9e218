"""Runs pytest, and each case that failed once more by itself: ``python -m suite.once_more TIER PYTEST…``.

A busy host fails cases that are right; a defect fails them alone as well. So each case that failed runs
again when no other case of any suite runs on this host. Failed twice is red. Failed once is *unsteady*: named
at the end and kept in ``build/tests/unsteady.json``; of more than :data:`suite.closing.UNSTEADY_MAX` all are
red. What is marked ``no_rerun`` is red at once: an attack that got out is not made good by one that did not.

A run of a single case was alone: its failure is red. The exit code is pytest's, or 0 where all failures
were unsteady.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

from suite.closing import FOLDER, Counts, Failure, tell_unsteady
from suite.turns import every_turn

_FAILED = 1  #: pytest's exit code for cases that failed; what any other one means is no case's fault
#: More failures than this have one cause, and none of them is run again.
_RERUN_MAX = 10
_KEPT_MAX = 500
_ALONE = ("-q", "-n", "0", "-p", "no:cacheprovider", "-p", "no:suite.times", "--tier", "all")


def main(arguments: Sequence[str]) -> int:
    """Run the tests and judge what failed; the exit code."""
    tier, *command = arguments
    file = FOLDER / f"{tier}.json"
    file.unlink(missing_ok=True)
    code = _run([*command, "--counts", str(file)])
    if code != _FAILED:
        return code
    counts = Counts.read(file)
    if counts.passed + counts.failed > 1:
        counts = judge(counts, tier)
        counts.write(file)
    return 0 if counts.green else _FAILED


def judge(counts: Counts, tier: str) -> Counts:
    """The counts after each failure that may be was run again, with the unsteady ones apart."""
    again = [failure for failure in counts.failures if failure.may_rerun]
    print(f"\n{tier}: {counts.failed} failed; each that may runs once more, alone", flush=True)
    for failure in counts.failures:
        if not failure.may_rerun:
            print(f"red at once: {failure.case}: {failure.message}", flush=True)
    if len(again) > _RERUN_MAX:
        print(f"{len(again)} are too many to be the moment's: none is run again", flush=True)
        return counts
    with every_turn():
        unsteady = tuple(failure for failure in again if _passes_alone(failure))
    counts = replace(
        counts,
        passed=counts.passed + len(unsteady),
        failed=counts.failed - len(unsteady),
        failures=tuple(failure for failure in counts.failures if failure not in unsteady),
        unsteady=unsteady,
    )
    keep_unsteady(unsteady, tier)
    for failure in counts.failures:
        print(f"red: {failure.case}: {failure.message}")
    tell_unsteady(counts)
    return counts


def keep_unsteady(unsteady: Sequence[Failure], tier: str) -> None:
    """Add these cases to ``build/tests/unsteady.json``, which remembers earlier runs too."""
    if not unsteady:
        return
    file = FOLDER / "unsteady.json"
    known = json.loads(file.read_text()) if file.exists() else []
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    describe = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(describe, capture_output=True, text=True, check=False).stdout.strip()
    for failure in unsteady:
        known.append(
            {"case": failure.case, "message": failure.message, "tier": tier, "commit": commit, "at": when}
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(known[-_KEPT_MAX:], indent=1))


def run_alone(case: str) -> Counts | None:
    """One case in a process of its own; None where pytest did not come to its end."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "counts.json"
        _run([sys.executable, "-m", "pytest", *_ALONE, "--counts", str(file), case])
        return Counts.read(file) if file.exists() else None


def _passes_alone(failure: Failure) -> bool:
    print(f"\nonce more: {failure.case}", flush=True)
    counts = run_alone(failure.case)
    return counts is not None and (counts.passed, counts.failed, counts.skipped) == (1, 0, 0)


def _run(command: Sequence[str]) -> int:
    """A command's exit code. Ctrl-C reaches it from the terminal, TERM through this process."""
    process = subprocess.Popen(command)

    def pass_on(number: int, frame: FrameType | None) -> None:
        if number != signal.SIGINT:
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
