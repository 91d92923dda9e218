"""How often one case fails on a busy host: ``python -m suite.unsteady CASE [--times 20]``.

Each processor has a process beside it that never rests. Ends with 1 if the case failed at all.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from suite.once_more import run_alone


def main(arguments: list[str]) -> int:
    """Run the case under load and tell what came of it; the exit code."""
    parser = argparse.ArgumentParser(prog="suite.unsteady", description=__doc__)
    parser.add_argument("case", help="as pytest names it: tests/FILE::CASE")
    parser.add_argument("--times", type=int, default=20, help="how often (20)")
    options = parser.parse_args(arguments)
    messages: Counter[str] = Counter()
    with busy_processors():
        for number in range(1, options.times + 1):
            counts = run_alone(options.case)
            if counts is None or counts.passed + counts.failed == 0:
                print(f"{options.case}: pytest ran no such case", file=sys.stderr)
                return 2
            messages.update(failure.message for failure in counts.failures)
            print(f"{number} of {options.times}: failed {messages.total()} times", flush=True)
    print(f"{options.case} failed {messages.total()} of {options.times} times, with every processor busy")
    for message, count in messages.most_common():
        print(f"{count:>4} x {message}")
    return 1 if messages else 0


@contextmanager
def busy_processors() -> Iterator[None]:
    """A process for each processor that keeps it busy."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
