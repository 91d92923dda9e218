"""Where does each millisecond of a hello job go? One job at a time through a whole fleet, stage by stage.

Settings: JOBS (300), WAY (namespaces).
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from bench.hello import HELLO, fleet
from bench.timed_worker import STAGES, note_all
from cellblock import JobSpec
from cellblock.admission.intake import Intake
from cellblock.ledger.admissions import Admissions
from cellblock.queue import Publisher

JOBS = int(os.environ.get("JOBS", "300"))
WAY = os.environ.get("WAY", "namespaces")
WARM_UP = 20
OURS = (("prepare", Intake, "prepare"), ("admit", Admissions, "admit_many"), ("publish", Publisher, "wake"))
#: What lies between stages, and from whose end to whose begin.
BETWEEN = (("broker and Celery", "publish", "task"), ("notify", "finish", "whole"))
#: What the worker's task is made of, as far as it is measured by itself.
OF_THE_TASK = {stage for stage, _, _ in STAGES} - {"task"}


def main() -> int:
    """Print the median of each stage in milliseconds; write build/bench/stages-<way>.json."""
    notes = note_all(OURS)
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "stages.json"
        with fleet(WAY, program=("-m", "bench.timed_worker"), BENCH_STAGES=str(kept)) as one:
            for _ in range(WARM_UP):
                one.run(JobSpec(code=HELLO))
            notes.clear()
            for _ in range(JOBS):
                one.settle()
                began = time.monotonic()
                one.run(JobSpec(code=HELLO))
                notes.append(("whole", began, time.monotonic()))
        found = medians([*notes, *json.loads(kept.read_text())])
    missing = {stage for stage, _, _ in (*OURS, *STAGES)} - set(found)
    if missing:
        raise SystemExit(f"no job went through {', '.join(sorted(missing))}: the code calls another function")
    for stage, ms in found.items():
        print(f"{stage:<18} {ms:7.2f} ms")
    path = Path(f"build/bench/stages-{WAY}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=2) + "\n")
    return 0


def medians(notes: list[tuple[str, float, float]]) -> dict[str, float]:
    """The median of each stage, and of the time between stages, job by job."""
    wholes = sorted((began, ended) for stage, began, ended in notes if stage == "whole")
    took: dict[str, list[float]] = defaultdict(list)
    for began, ended in wholes:
        job = {stage: (a, b) for stage, a, b in notes if began <= a <= ended and stage != "whole"}
        for stage, (a, b) in job.items():
            took[stage].append(b - a)
        for name, before, after in BETWEEN:
            if before in job and (after in job or after == "whole"):
                took[name].append((ended if after == "whole" else job[after][0]) - job[before][1])
        inner = sum(b - a for stage, (a, b) in job.items() if stage in OF_THE_TASK)
        took["rest of the task"].append(job["task"][1] - job["task"][0] - inner)
        took["whole"].append(ended - began)
    return {stage: round(1000 * statistics.median(each), 2) for stage, each in took.items()}


if __name__ == "__main__":
    sys.exit(main())
