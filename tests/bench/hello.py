"""`make bench`: a hello job through the whole fleet, against plain `docker run`, in one run.

Every figure is the median of alternating rounds on the machine as it is; the ratios are what counts.
Baselines:
  docker run runsc   `docker run --rm --runtime=runsc`, the command line a careful user would type
  docker run runc    create, start, wait, logs, remove through the SDK, as epicbox does
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import docker
from rich.console import Console
from rich.table import Table

from cellblock import Client, JobSpec, Limits
from cellblock_workers.launcher.client import LauncherClient
from parts import RedisServer, launcher_process, wait_until, worker_process

IMAGE = "cellblock/python:latest"
HELLO = "print(6*7)"
ROUNDS = int(os.environ.get("ROUNDS", "15"))
THROUGHPUT_JOBS = 40
PARALLEL = 8
TARGET = 0.1  # warm p50 through the queue, of `docker run --runtime=runsc`


def main() -> int:
    """Measure, print the table, write build/bench/hello.json."""
    with fleet() as (client, launcher):
        latency = measure_latency(client, launcher)
        rate = measure_throughput(client)
    report(latency, rate)
    return 0


@contextmanager
def fleet() -> Iterator[tuple[Client, LauncherClient]]:
    """Private Redis, launcher and worker; the same processes `cellblock up` starts."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = RedisServer(folder)
        server.start()
        try:
            with (
                launcher_process(folder) as (path, _),
                worker_process(folder, server.url, path),
                Client(server.url) as client,
            ):
                launcher = LauncherClient(path, timeout_s=60)
                wait_until(lambda: launcher.probe().isolation, 60, "an isolation passing its probe")
                client.submit(JobSpec(code=HELLO)).result(timeout_s=60)
                yield client, launcher
        finally:
            server.stop()


def measure_latency(client: Client, launcher: LauncherClient) -> dict[str, list[float]]:
    """Milliseconds from asking to having the output, variant by variant in turn."""
    daemon = docker.from_env()
    variants: dict[str, Callable[[], object]] = {
        "docker run runsc": docker_run_runsc,
        "docker run runc": lambda: docker_sdk_runc(daemon),
        "cellblock warm": lambda: run(client, JobSpec(code=HELLO)),
    }
    took: dict[str, list[float]] = {name: [] for name in [*variants, "cellblock cold"]}
    for number in range(ROUNDS):
        for name, variant in variants.items():
            if name == "cellblock warm":
                settle(launcher)
            took[name].append(timed(variant))
        # A memory limit no pool holds: the sandbox is started for this job.
        odd = JobSpec(code=HELLO, limits=Limits(memory_bytes=200_000_000 + 4096 * number))
        settle(launcher)
        took["cellblock cold"].append(timed(lambda spec=odd: run(client, spec)))  # type: ignore[misc]
    daemon.close()
    return took


def measure_throughput(client: Client) -> dict[str, float]:
    """Jobs per second with several at once."""
    started = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: docker_run_runsc(), range(THROUGHPUT_JOBS // 4)))
    plain = THROUGHPUT_JOBS // 4 / (time.monotonic() - started)
    started = time.monotonic()
    specs = (JobSpec(code=HELLO) for _ in range(THROUGHPUT_JOBS))
    results = list(client.map(specs, ordered=False, window=PARALLEL))
    ours = len(results) / (time.monotonic() - started)
    assert all(result.ok for result in results)
    return {"docker run runsc": plain, "cellblock": ours}


def settle(launcher: LauncherClient) -> None:
    """Wait, untimed, until warm sandboxes stand ready and nothing is being started."""

    def ready() -> bool:
        counts = launcher.probe().counts or {}
        return counts.get("idle", 0) >= 2 and not counts.get("starting") and not counts.get("in_use")

    wait_until(ready, 60, "warm sandboxes")


def run(client: Client, spec: JobSpec) -> None:
    """One job, submit to result."""
    result = client.submit(spec).result(timeout_s=60)
    assert result.stdout == "42\n", result


def docker_run_runsc() -> None:
    """The baseline a user types."""
    command = ["docker", "run", "--rm", "--runtime=runsc", "--network=none", IMAGE, "python3", "-c", HELLO]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout == b"42\n"


def docker_sdk_runc(daemon: docker.DockerClient) -> None:
    """What epicbox and its like do per run."""
    container = daemon.containers.create(IMAGE, ["python3", "-c", HELLO], network_mode="none", runtime="runc")
    container.start()
    container.wait()
    assert container.logs() == b"42\n"
    container.remove(force=True)


def timed(call: Callable[[], object]) -> float:
    """Milliseconds."""
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1000


def report(latency: dict[str, list[float]], rate: dict[str, float]) -> None:
    """The table for people, the JSON for comparisons."""
    base = statistics.median(latency["docker run runsc"])
    table = Table(
        "hello job", "p50 ms", "p95 ms", "of docker run runsc", title=f"{ROUNDS} alternating rounds"
    )
    for name, values in latency.items():
        p50 = statistics.median(values)
        table.add_row(name, f"{p50:.1f}", f"{percentile(values, 95):.1f}", f"{p50 / base:.3f}")
    console = Console(width=None if sys.stdout.isatty() else 100)
    console.print(table)
    plain, ours = rate["docker run runsc"], rate["cellblock"]
    console.print(f"throughput under gVisor: docker run, 2 at once, {plain:.2f} jobs/s")
    console.print(f"                         cellblock {ours:.2f} jobs/s ({ours / plain:.2f}x)")
    ratio = statistics.median(latency["cellblock warm"]) / base
    console.print(f"target: warm p50 at most {TARGET:.2f} of docker run runsc; measured {ratio:.3f}")
    folder = Path("build/bench")
    folder.mkdir(parents=True, exist_ok=True)
    summary = {
        "rounds": ROUNDS,
        "latency_ms": {name: summary_of(values) for name, values in latency.items()},
        "jobs_per_s": rate,
        "warm_ratio": ratio,
        "target_ratio": TARGET,
    }
    (folder / "hello.json").write_text(json.dumps(summary, indent=2) + "\n")


def summary_of(values: list[float]) -> dict[str, object]:
    """What is kept of one variant."""
    return {"p50": statistics.median(values), "p95": percentile(values, 95), "all": values}


def percentile(values: list[float], percent: int) -> float:
    """Nearest rank."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, round(percent / 100 * (len(ranked) - 1)))]


if __name__ == "__main__":
    sys.exit(main())
