"""One worker with many threads, or several with few? Hello jobs and HumanEval's references, per second.

Rounds alternate between the shapes; figures are medians.

Settings: ROUNDS (3), WAY (namespaces).
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path

from bench.evaluation import judge, references
from bench.hello import HELLO, fleet
from cellblock import Client, JobResult, JobSpec

ROUNDS = int(os.environ.get("ROUNDS", "3"))
WAY = os.environ.get("WAY", "namespaces")
#: Worker processes, and threads of each.
SHAPES = ((1, 2), (1, 4), (1, 8), (1, 16), (2, 1), (2, 2), (2, 4))
HELLOS = 400


def main() -> int:
    """Print both figures for every shape; write build/bench/threads-<way>.json."""
    samples = references(3)
    rates: dict[tuple[int, int], list[tuple[float, float]]] = {shape: [] for shape in SHAPES}
    for _ in range(ROUNDS):
        for shape in SHAPES:
            processes, threads = shape
            with fleet(WAY, processes, CELLBLOCK_WORKER_CONCURRENCY=str(threads)) as one:
                _hellos(one.client, 50)
                judge(one.client, samples[:164])
                rates[shape].append((_hellos(one.client, HELLOS), judge(one.client, samples)))
    found = {}
    print("workers x threads   hello/s   HumanEval/s")
    for (processes, threads), measured in rates.items():
        hello, judged = (round(statistics.median(each), 1) for each in zip(*measured, strict=True))
        found[f"{processes} x {threads}"] = {"hello_per_s": hello, "humaneval_per_s": judged}
        print(f"{processes} x {threads:<14} {hello:8.1f} {judged:12.1f}")
    path = Path(f"build/bench/threads-{WAY}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=2) + "\n")
    return 0


def _hellos(client: Client, count: int) -> float:
    started = time.monotonic()
    found = list(client.map((JobSpec(code=HELLO) for _ in range(count)), ordered=False, window=32))
    assert all(isinstance(one, JobResult) and one.stdout == "42\n" for one in found)
    return count / (time.monotonic() - started)


if __name__ == "__main__":
    sys.exit(main())
