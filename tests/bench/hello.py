"""`make bench`: hello jobs through a whole fleet for each way of making a sandbox, against what a careful
user would type instead, in one run.

Every figure is the median of alternating rounds on the machine as it is; the ratios are what counts.
Baselines:
  docker run runsc    `docker run --rm --runtime=runsc`, the command line a careful user would type
  docker run runc     create, start, wait, logs, remove through the SDK, as epicbox does
  bare python         `python3 -c pass`, the image's own interpreter without any isolation
  bare pandas         `python3 -c 'import pandas'`, likewise

Settings: ROUNDS (15), WAYS (comma-separated; all but systemd).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import docker

from bench.report import Measured, report
from cellblock import Client, JobResult, JobSpec, Limits
from cellblock.admission.resolve import resolve
from cellblock_config import Settings, load_settings
from cellblock_workers.launcher.client import LauncherClient
from cellblock_workers.launcher.ownership import Ownership
from cellblock_workers.launcher.shelves import ASKED_OFTEN
from parts import WORKER, RedisServer, launcher_process, wait_until, worker_process
from suite.ways import WAYS, environment_of

IMAGE = "cellblock/python:latest"
HELLO = "print(6*7)"
PANDAS = "import pandas\nprint(6*7)"
ROUNDS = int(os.environ.get("ROUNDS", "15"))
#: A systemd of its own in a container, as the tests have it, would be measured with that container.
CHOSEN = os.environ.get("WAYS", ",".join(way for way in WAYS if way != "systemd")).split(",")
THROUGHPUT_ROUNDS = 3
THROUGHPUT_JOBS = 24
PLAIN_RUNS = 8
PANDAS_ROUNDS = 5
PARALLEL = 8


@dataclass(frozen=True)
class Fleet:
    """Private Redis, launcher and worker of one way; the same processes `cellblock up` starts."""

    client: Client
    launcher: LauncherClient
    settings: Settings

    def settle(self, idle: int = 2) -> None:
        """Wait, untimed, until this many sandboxes stand ready and nothing is being started or removed."""

        def ready() -> bool:
            counts = self.launcher.probe().counts or {}
            return counts.get("idle", 0) >= idle and not counts.get("starting") and not counts.get("in_use")

        wait_until(ready, 120, "warm sandboxes")

    def run(self, spec: JobSpec) -> None:
        """One job, submit to result."""
        result = self.client.submit(spec).result(timeout_s=60)
        assert result.stdout == "42\n", result


def main() -> int:
    """Measure way by way, print the tables, write build/bench/hello-<way>.json.

    One fleet at a time, as on any host: the timers of idle ones would be measured as the busy one's time.
    Each is compared with baselines that ran between its own rounds.
    """
    for way in CHOSEN:
        with fleet(way) as one:
            measured = Measured(
                rounds=ROUNDS,
                latency_ms=measure_latency(way, one),
                jobs_per_s=measure_throughput(way, one),
                idle_bytes={way: measure_memory(one)},
                pandas_ms=measure_pandas(way, one),
            )
        report(measured, Path(f"build/bench/hello-{way}.json"))
    return 0


@contextmanager
def fleet(way: str, workers: int = 1, program: Sequence[str] = WORKER, **environment: str) -> Iterator[Fleet]:
    """A fleet of one way, past its first probe and its first job.

    ``workers``: how many processes; ``program`` and ``environment``: what they run, and with which settings.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = RedisServer(folder)
        server.start()
        stack.callback(server.stop)
        launching = {**environment_of(way), "CELLBLOCK_LAUNCHER_WARM": "2"}
        path, _ = stack.enter_context(launcher_process(folder, **launching))
        for _ in range(workers):
            stack.enter_context(worker_process(folder, server.url, path, program=program, **environment))
        client = stack.enter_context(Client(server.url))
        launcher = LauncherClient(path, timeout_s=60)
        wait_until(lambda: launcher.probe().isolations, 60, f"{way} passing its probe")
        started = Fleet(client, launcher, load_settings(redis={"url": server.url}))
        started.run(JobSpec(code=HELLO))
        yield started


def measure_latency(way: str, one: Fleet) -> dict[str, list[float]]:
    """Milliseconds from asking to having the output, variant by variant in turn."""
    daemon = docker.from_env()
    variants: dict[str, Callable[[int], object]] = {
        "docker run runsc": lambda _: docker_run_runsc(),
        "docker run runc": lambda _: docker_sdk_runc(daemon),
        "bare python": lambda _: bare("python", "pass"),
        f"{way} warm": lambda _: one.run(JobSpec(code=HELLO)),
        # A memory limit no pool holds: the sandbox is started for this job.
        f"{way} cold": lambda number: one.run(
            JobSpec(code=HELLO, limits=Limits(memory_bytes=200_000_000 + 4096 * number))
        ),
    }
    took: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(ROUNDS):
        for name, variant in variants.items():
            one.settle()
            took[name].append(timed(lambda variant=variant, number=number: variant(number)))  # type: ignore[misc]
    daemon.close()
    return took


def measure_throughput(way: str, one: Fleet) -> dict[str, list[float]]:
    """Jobs per second with several at once, in turn with plain runs."""
    rates: dict[str, list[float]] = {"docker run runsc": [], way: []}
    for _ in range(THROUGHPUT_ROUNDS):
        one.settle()
        started = time.monotonic()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda _: docker_run_runsc(), range(PLAIN_RUNS)))
        rates["docker run runsc"].append(PLAIN_RUNS / (time.monotonic() - started))
        started = time.monotonic()
        specs = (JobSpec(code=HELLO) for _ in range(THROUGHPUT_JOBS))
        results = list(one.client.map(specs, ordered=False, window=PARALLEL))
        rates[way].append(len(results) / (time.monotonic() - started))
        assert all(isinstance(result, JobResult) and result.ok for result in results)
    return rates


def measure_memory(one: Fleet) -> float:
    """Bytes of an idle warm sandbox: what its cgroup holds that is not cached files, median of three.

    With Docker, the daemon's shim for each container (some 10 MB) comes on top.
    """
    manifest = resolve(JobSpec(code=HELLO), one.settings)
    samples = []
    for _ in range(3):
        one.settle()
        lent = one.launcher.acquire(
            job_id="bench", fence=1, level=manifest.level, image=manifest.image, limits=manifest.limits
        )
        samples.append(anonymous_bytes(cgroup_of(lent.id)))
        one.launcher.kill(lent)
    return statistics.median(samples)


def measure_pandas(way: str, one: Fleet) -> dict[str, list[float]]:
    """Milliseconds of a job that imports pandas, in a warm sandbox of the datascience image."""
    took: dict[str, list[float]] = {"bare pandas": [], way: []}
    spec = JobSpec(code=PANDAS, image="datascience")
    for _ in range(ASKED_OFTEN):  # only then it is kept ready
        one.run(spec)
    for _ in range(PANDAS_ROUNDS):
        one.settle(idle=4)  # two of each image
        took["bare pandas"].append(timed(lambda: bare("datascience", "import pandas")))
        one.settle(idle=4)
        took[way].append(timed(lambda: one.run(spec)))
    return took


def cgroup_of(sandbox_id: str) -> Path:
    """Where a sandbox's memory is counted, with or without Docker."""
    roots = [root for root in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")) if root.is_dir()]
    for root in roots:
        if (root / "cellblock" / sandbox_id).is_dir():
            return root / "cellblock" / sandbox_id
    daemon = docker.from_env()
    try:
        (container,) = daemon.containers.list(filters={"label": f"{Ownership.LABEL_SANDBOX}={sandbox_id}"})
    finally:
        daemon.close()
    places = [root / place for root in roots for place in (f"docker/{container.id}",)]
    places += [root / "system.slice" / f"docker-{container.id}.scope" for root in roots]
    return next(place for place in places if place.is_dir())


def anonymous_bytes(cgroup: Path) -> int:
    """Memory that cannot be dropped: v1's rss and shmem, v2's anon and shmem."""
    lines = (line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    return sum(int(value) for name, value in lines if name in {"total_rss", "total_shmem", "anon", "shmem"})


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


def bare(image: str, code: str) -> None:
    """The image's interpreter on the host, with no isolation at all."""
    root = load_settings().launcher.image_roots / image / "rootfs"
    subprocess.run(["chroot", root, "/usr/bin/python3", "-c", code], check=True)


def timed(call: Callable[[], object]) -> float:
    """Milliseconds."""
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1000


if __name__ == "__main__":
    sys.exit(main())
