"""`make bench`: who waits for how long, and who gets what share, when tenants want more than the fleet has.

A real client, Redis and Celery worker; injected: a sandbox that takes as long as it is told (JOB_MS, 5). All
jobs are there before the worker starts. Read from the events, by the server's clock. A baseline is in the
same run: the same jobs in one line, first come first served, as a plain Celery queue has them.

Settings: JOBS (10000), the backlog of the largest tenant.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cellblock import Client, JobSpec
from cellblock_config import load_settings
from parts import NAMESPACES, RedisServer, launcher_process, wait_until, worker_process

JOBS = int(os.environ.get("JOBS", "10000"))
JOB_MS = int(os.environ.get("JOB_MS", "5"))
THREADS = 4
NEWCOMERS = 20
#: A worker whose sandboxes only pass the time.
WORKER = (
    "import sys, time; sys.path.insert(0, sys.argv[1])\n"
    "from cellblock_workers.worker import main, runner\n"
    "from ledger.kit import result_of\n"
    "def execute(lease, **_):\n"
    "    time.sleep(float(sys.argv[2]) / 1000)\n"
    "    return result_of(lease.claim)\n"
    "runner.execute = execute\n"
    "main.main()\n"
)
PLAN = """
[plans.{name}]
parallel = 100
rate_per_s = 10000
burst = 1000000
runs_per_day = 1000000
queue_depth = 1000000
timeout_s = 60
cpus = 1
memory = "1G"
levels = ["standard"]
images = ["*"]
cost_per_run = 1
cost_per_day = 1000000
result_ttl_s = 600
weight = {weight}
"""


@dataclass
class Starts:
    """When jobs were admitted and started, in the order of their starts."""

    order: list[tuple[str, str]] = field(default_factory=list)  #: (tenant, job id)
    queued_ms: dict[str, int] = field(default_factory=dict)
    started_ms: dict[str, int] = field(default_factory=dict)

    def waits_s(self, tenant: str, began_ms: int) -> list[float]:
        """How long each of the tenant's jobs waited for its start, from when the worker began to claim."""
        return [
            (self.started_ms[job_id] - max(began_ms, self.queued_ms[job_id])) / 1000
            for name, job_id in self.order
            if name == tenant
        ]


def main() -> int:
    """Measure, print the tables, write build/bench/fairness.json. 1 if a promise was not kept."""
    demands = {"many": JOBS, "some": JOBS // 100, "one": 1}
    with tempfile.TemporaryDirectory() as name:
        tenants = within_a_plan(Path(name), demands)
    with tempfile.TemporaryDirectory() as name:
        weights = between_plans(Path(name), {"light": JOBS // 5, "heavy": JOBS // 5})
    with tempfile.TemporaryDirectory() as name:
        newcomers = first_of_a_newcomer(Path(name))
    found = {"within_a_plan": tenants, "between_plans": weights, "newcomers": newcomers}
    Path("build/bench").mkdir(parents=True, exist_ok=True)
    Path("build/bench/fairness.json").write_text(json.dumps(found, indent=2))
    _print(found)
    kept = (
        tenants["jain"] >= 0.95
        and abs(weights["heavy"]["share"] - 0.8) < 0.02
        and newcomers["most_started_before"] <= THREADS
    )
    return 0 if kept else 1


def within_a_plan(folder: Path, demands: Mapping[str, int]) -> dict[str, Any]:
    """Tenants of one plan: their waits, and Jain's index of what each got of what it should have.

    Until the second largest is served, each should have got its max-min fair share of all starts. Jain's
    index of n shares x is (sum x)² / (n · sum x²): 1 if all are equal, 1/n if one has everything.
    """
    with fleet(folder, {"even": 1}) as (client, start):
        for tenant, count in demands.items():
            submit(client, tenant, "even", count)
        began_ms = start()
        starts = drain(client, sum(demands.values()))
    second = sorted(demands, key=lambda name: -demands[name])[1]
    window = max(n for n, (tenant, _) in enumerate(starts.order, start=1) if tenant == second)
    got = Counter(tenant for tenant, _ in starts.order[:window])
    fair = max_min(demands, window)
    took_s = (max(starts.started_ms.values()) - began_ms) / 1000
    per_start_s = took_s / sum(demands.values())
    table = {}
    ahead = 0
    for tenant, count in demands.items():
        waits = starts.waits_s(tenant, began_ms)
        table[tenant] = {
            "jobs": count,
            "wait_p50_s": round(statistics.median(waits), 3),
            "wait_last_s": round(max(waits), 3),
            # In one line, in the order of admission, at the same rate.
            "line_last_s": round((ahead + count) * per_start_s, 3),
            "got": got[tenant],
            "fair": fair[tenant],
        }
        ahead += count
    return {"tenants": table, "jain": round(jain([got[name] / fair[name] for name in demands]), 4)}


def between_plans(folder: Path, demands: Mapping[str, int]) -> dict[str, Any]:
    """One tenant on a plan of weight 1, one on a plan of weight 4: shares of the starts while both wait."""
    with fleet(folder, {"light": 1, "heavy": 4}) as (client, start):
        for plan, count in demands.items():
            submit(client, f"on-{plan}", plan, count)
        start()
        starts = drain(client, sum(demands.values()))
    window = demands["heavy"]  # by then neither is served
    got = Counter(tenant for tenant, _ in starts.order[:window])
    return {
        plan: {"weight": weight, "got": got[f"on-{plan}"], "share": round(got[f"on-{plan}"] / window, 3)}
        for plan, weight in (("light", 1), ("heavy", 4))
    }


def first_of_a_newcomer(folder: Path) -> dict[str, Any]:
    """Behind a backlog of another tenant of the plan: how many jobs start before a newcomer's first."""
    with fleet(folder, {"even": 1}) as (client, start):
        submit(client, "many", "even", 2000)
        start()
        for number in range(NEWCOMERS):
            client.submit(JobSpec(code="1", tenant=f"new{number}", plan="even"))
            time.sleep(0.1)
        starts = drain(client, 2000 + NEWCOMERS)
    before, waits = [], []
    for number in range(NEWCOMERS):
        ((_, mine),) = [one for one in starts.order if one[0] == f"new{number}"]
        queued, started = starts.queued_ms[mine], starts.started_ms[mine]
        others = [at for job_id, at in starts.started_ms.items() if job_id != mine and queued < at < started]
        before.append(len(others))
        waits.append(started - queued)
    return {
        "jobs_ahead": 2000,
        "most_started_before": max(before),
        "wait_p50_ms": statistics.median(waits),
        "wait_most_ms": max(waits),
    }


@contextmanager
def fleet(folder: Path, weights: Mapping[str, int]) -> Iterator[tuple[Client, Any]]:
    """A fleet with these plans whose worker starts when it is told to; the start returns the server's ms."""
    plans = folder / "plans.toml"
    plans.write_text("".join(PLAN.format(name=name, weight=weight) for name, weight in weights.items()))
    server = RedisServer(folder)
    server.start()
    bounds = {"events_kept": 10 * JOBS, "queue_depth": 10 * JOBS}
    settings = load_settings(redis={"url": server.url}, ledger=bounds, plans={"file": str(plans)})
    variables = {f"CELLBLOCK_LEDGER_{name.upper()}": str(value) for name, value in bounds.items()}
    variables["CELLBLOCK_WORKER_CONCURRENCY"] = str(THREADS)
    program = ("-c", WORKER, str(Path(__file__).parent.parent), str(JOB_MS))
    with launcher_process(folder, **NAMESPACES) as (socket, _), Client(settings=settings) as client:
        worker = worker_process(folder, server.url, socket, program=program, **NAMESPACES, **variables)

        def start() -> int:
            worker.__enter__()
            wait_until(lambda: any(e.type.endswith("started") for e in client.events("0", limit=10**6)), 60)
            return next(
                round(1000 * e.at) for e in client.events("0", limit=10**6) if e.type.endswith("started")
            )

        try:
            yield client, start
        finally:
            worker.__exit__(None, None, None)
            server.stop()


def submit(client: Client, tenant: str, plan: str, count: int) -> None:
    """From four threads: it is the fleet that is measured."""

    def some(n: int) -> None:
        for _ in range(n):
            client.submit(JobSpec(code="1", tenant=tenant, plan=plan))

    parts = [threading.Thread(target=some, args=(count // 4 + (n < count % 4),)) for n in range(4)]
    for part in parts:
        part.start()
    for part in parts:
        part.join()


def drain(client: Client, jobs: int) -> Starts:
    """Wait until all have ended; what the events tell of them."""
    wait_until(lambda: client.counts().waiting + client.counts().running == 0, 900, "the end of all jobs")
    starts, after = Starts(), "0"
    while batch := client.events(after, limit=5000):
        after = batch[-1].id
        for event in batch:
            if event.type == "agent.run.queued":
                starts.queued_ms[event.job_id] = round(1000 * event.at)
            elif event.type == "agent.run.started":
                starts.order.append((event.tenant, event.job_id))
                starts.started_ms[event.job_id] = round(1000 * event.at)
    assert len(starts.order) == jobs, "each started once"
    return starts


def max_min(demands: Mapping[str, int], total: int) -> dict[str, float]:
    """Who wants less than an equal share has it all; the others share the rest alike."""
    fair: dict[str, float] = {}
    left, open_ = float(total), sorted(demands, key=lambda name: demands[name])
    while open_:
        name = open_.pop(0)
        fair[name] = min(demands[name], left / (len(open_) + 1))
        left -= fair[name]
    return fair


def jain(shares: Sequence[float]) -> float:
    """Jain, Chiu, Hawe 1984: (sum x)² / (n · sum x²)."""
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


def _print(found: Mapping[str, Any]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 110)
    table = Table(title=f"tenants of one plan; Jain's index {found['within_a_plan']['jain']}")
    for title in ("", "jobs", "got", "fair", "wait p50", "wait of the last", "in one line"):
        table.add_column(title, justify="right" if title else "left")
    for tenant, row in found["within_a_plan"]["tenants"].items():
        times = (f"{row[name]:.2f} s" for name in ("wait_p50_s", "wait_last_s", "line_last_s"))
        table.add_row(tenant, str(row["jobs"]), str(row["got"]), f"{row['fair']:.0f}", *times)
    console.print(table)
    table = Table("", "weight", "starts", "share", title="two plans, while both have jobs")
    for plan, row in found["between_plans"].items():
        table.add_row(plan, str(row["weight"]), str(row["got"]), f"{row['share']:.1%}")
    console.print(table)
    new = found["newcomers"]
    console.print(
        f"a newcomer's first job behind {new['jobs_ahead']} of another: at most "
        f"{new['most_started_before']} started before it ({THREADS} threads); it waited "
        f"{new['wait_p50_ms']:.0f} ms (median), {new['wait_most_ms']} ms (most)"
    )


if __name__ == "__main__":
    sys.exit(main())
