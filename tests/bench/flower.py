"""What Flower costs a fleet that it watches: hello jobs a second in namespaces, with it and without, in turn.

Flower follows the events of the ledger, so workers do nothing for it: what it takes is its own CPU time, here
on their cores. Settings: ROUNDS (5), JOBS (600).
"""

from __future__ import annotations

import os
import statistics
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.hello import HELLO, Fleet, fleet
from cellblock import JobSpec
from parts import CELLBLOCK, descendants, free_port, wait_until
from suite.warm import WarmPopen

ROUNDS = int(os.environ.get("ROUNDS", "5"))
JOBS = int(os.environ.get("JOBS", "600"))
_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Prints jobs/s with and without Flower, their ratio, and the CPU time of both a job."""
    with fleet("namespaces") as one:
        rates: dict[str, list[float]] = {"without": [], "with": []}
        flower_ms, fleet_ms = [], []
        hello(one, JOBS // 4)
        for _ in range(ROUNDS):
            rates["without"].append(hello(one, JOBS))
            with watching(one) as pid:
                before_s, all_before_s = cpu_s(pid), all_cpu_s()
                rates["with"].append(hello(one, JOBS))
                time.sleep(1.0)  # untimed: until it has followed
                flower_ms.append(1000 * (cpu_s(pid) - before_s) / JOBS)
                fleet_ms.append(1000 * (all_cpu_s() - all_before_s) / JOBS - flower_ms[-1])
        without, watched = (statistics.median(rates[name]) for name in ("without", "with"))
        print(f"hello jobs/s: {without:.1f} without Flower, {watched:.1f} with it: {watched / without:.3f}")
        flower, fleet_itself = statistics.median(flower_ms), statistics.median(fleet_ms)
        print(f"CPU time a job: fleet and client {fleet_itself:.2f} ms, Flower {flower:.2f} ms", end="")
        print(f", {flower / fleet_itself:.3f} of that")
    return 0


def hello(one: Fleet, count: int) -> float:
    """Jobs a second, from the first submission to the last result."""
    began = time.perf_counter()
    for job in one.client.submit_many([JobSpec(code=HELLO)] * count):
        assert not isinstance(job, Exception), job
        job.result(timeout_s=120)
    return count / (time.perf_counter() - began)


@contextmanager
def watching(one: Fleet) -> Iterator[int]:
    """A Flower that has read the past. Yields its process id."""
    port = free_port()
    variables = {
        "CELLBLOCK_REDIS_URL": str(
            one.settings.redis.url.get_secret_value() if one.settings.redis.url else ""
        ),
        "CELLBLOCK_MONITOR_PASSWORD": "observing",
        "CELLBLOCK_MONITOR_PORT": str(port),
    }
    process = WarmPopen([CELLBLOCK, "monitor"], env={**os.environ, **variables})
    try:
        wait_until(lambda: answers(port) and rests(process.pid), 60, "Flower at rest")
        yield process.pid
    finally:
        process.terminate()
        process.wait(timeout=30)


def answers(port: int) -> bool:
    """Whether it serves pages."""
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/healthcheck", timeout=5).close()
    except OSError:
        return False
    return True


def rests(pid: int) -> bool:
    """Whether it computes next to nothing in a second."""
    before_s = cpu_s(pid)
    time.sleep(1.0)
    return cpu_s(pid) - before_s < 0.05


def cpu_s(pid: int, *, with_ended: bool = False) -> float:
    """The CPU time of a process so far. ``with_ended``: also that of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended: its parent has its time
        return 0.0
    return sum(map(int, fields[11 : 15 if with_ended else 13])) / _TICKS


def all_cpu_s() -> float:
    """The CPU time of this process and all below it so far."""
    return sum(cpu_s(pid, with_ended=True) for pid in (os.getpid(), *descendants(os.getpid())))


if __name__ == "__main__":
    raise SystemExit(main())
