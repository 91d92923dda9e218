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
from contextlib import ExitStack
from pathlib import Path

from bench.timed_worker import note_all
from cellblock import Client, JobSpec
from cellblock.broker import Publisher
from cellblock.intake import Intake
from cellblock.ledger import Ledger
from cellblock_workers.launcher.client import LauncherClient
from parts import RedisServer, launcher_process, wait_until, worker_process
from sandbox.harness import environment_of

JOBS = int(os.environ.get("JOBS", "300"))
WAY = os.environ.get("WAY", "namespaces")
OURS = (("prepare", Intake, "prepare"), ("admit", Ledger, "admit"), ("publish", Publisher, "wake"))
#: What lies between stages, and from whose end to whose begin.
BETWEEN = (("broker and Celery", "publish", "task"), ("notify", "finish", "whole"))


def main() -> int:
    """Print the median of each stage in milliseconds; write build/bench/stages-<way>.json."""
    notes = note_all(OURS)
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "stages.json"
        with ExitStack() as stack:
            server = RedisServer(Path(folder))
            server.start()
            stack.callback(server.stop)
            environment = {**environment_of(WAY), "CELLBLOCK_LAUNCHER_WARM": "2"}
            socket, _ = stack.enter_context(launcher_process(Path(folder), **environment))
            program = ("-m", "bench.timed_worker")
            stack.enter_context(
                worker_process(Path(folder), server.url, socket, program=program, BENCH_STAGES=str(kept))
            )
            launcher = LauncherClient(socket, timeout_s=60)
            wait_until(lambda: launcher.probe().isolations, 60, f"{WAY} passing its probe")
            client = stack.enter_context(Client(server.url))
            for _ in range(20):
                client.submit(JobSpec(code="print(6*7)")).result(timeout_s=60)
            notes.clear()
            for _ in range(JOBS):
                began = time.monotonic()
                client.submit(JobSpec(code="print(6*7)")).result(timeout_s=60)
                notes.append(("whole", began, time.monotonic()))
                wait_until(lambda: (launcher.probe().counts or {}).get("idle", 0) >= 2, 60, "warm sandboxes")
        found = medians([*notes, *json.loads(kept.read_text())])
    for stage, ms in found.items():
        print(f"{stage:<18} {ms:7.2f} ms")
    path = Path(f"build/bench/stages-{WAY}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=2) + "\n")
    return 0


def medians(notes: list[tuple[str, float, float]]) -> dict[str, float]:
    """Of each stage and of what lies between them, job by job."""
    wholes = sorted((began, ended) for stage, began, ended in notes if stage == "whole")
    took: dict[str, list[float]] = defaultdict(list)
    for began, ended in wholes:
        job = {stage: (a, b) for stage, a, b in notes if began <= a <= ended and stage != "whole"}
        for stage, (a, b) in job.items():
            took[stage].append(b - a)
        for name, before, after in BETWEEN:
            if before in job and (after in job or after == "whole"):
                took[name].append((ended if after == "whole" else job[after][0]) - job[before][1])
        took["whole"].append(ended - began)
    order = [*dict.fromkeys(stage for stage, _, _ in notes), *(name for name, _, _ in BETWEEN)]
    return {stage: round(1000 * statistics.median(took[stage]), 2) for stage in order if took[stage]}


if __name__ == "__main__":
    sys.exit(main())
