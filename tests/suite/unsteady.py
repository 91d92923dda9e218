"""How often one case fails on a busy host: ``python -m suite.unsteady CASE [--times 20]``.

One process for each processor computes without a pause meanwhile. The exit code is 1 if the case failed at
all, 2 if nothing can be said.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from suite.once_more import Stopped, run_alone

#: Until the process that started it has ended, however that ends.
_COMPUTES = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"


def main(arguments: list[str]) -> int:
    """Run the case under load and tell what came of it; the exit code."""
    parser = argparse.ArgumentParser(prog="suite.unsteady", description=__doc__)
    parser.add_argument("case", help="as pytest names it: tests/FILE::CASE")
    parser.add_argument("--times", type=int, default=20, help="how often (20)")
    options = parser.parse_args(arguments)
    if "::" not in options.case:
        parser.error(f"{options.case!r} is not one case: name it as tests/FILE::CASE")
    try:
        with busy_processors():
            messages = _failures(options.case, options.times)
    except Stopped:
        return 2
    if messages is None:
        return 2
    print(f"{options.case} failed {messages.total()} of {options.times} times, with every processor busy")
    for message, count in messages.most_common():
        print(f"{count:>4} x {message}")
    return 1 if messages else 0


def _failures(case: str, times: int) -> Counter[str] | None:
    """What the case complained of, each with its number; None where it is not one case."""
    messages: Counter[str] = Counter()
    for number in range(1, times + 1):
        counts = run_alone(case)
        if counts is None:
            messages["pytest did not come to its end"] += 1
        elif (counts.passed + counts.failed, counts.skipped) != (1, 0):
            print(f"{case} names {counts.passed + counts.failed} cases that run, not one", file=sys.stderr)
            return None
        else:
            messages.update(failure.message for failure in counts.failures)
        print(f"{number} of {times}: failed {messages.total()} times", flush=True)
    return messages


@contextmanager
def busy_processors() -> Iterator[None]:
    """A process for each processor that keeps it busy."""
    command = [sys.executable, "-c", _COMPUTES]
    processes = [subprocess.Popen(command) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
