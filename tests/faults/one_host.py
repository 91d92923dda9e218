"""One host of a test: a launcher, and workers beside it that come and go."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cellblock import Client, Job, JobSpec, JobState
from cellblock_workers.launcher.client import LauncherClient
from parts import NAMESPACES, launcher_process, wait_until, worker_process

QUICK = {"CELLBLOCK_LEDGER_LEASE_S": "3", "CELLBLOCK_LEDGER_BEAT_S": "0.5", "CELLBLOCK_LEDGER_REAP_S": "0.3"}
LONG = JobSpec(code="import time\nprint('begun', flush=True)\ntime.sleep(60)")


@dataclass
class Host:
    """One host of a test: a launcher, and room for workers beside it."""

    folder: Path
    url: str
    socket: Path
    client: Client

    @contextmanager
    def worker(self, name: str = "worker", **settings: str) -> Iterator[subprocess.Popen[bytes]]:
        """A worker that has been heard of."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        with worker_process(folder, self.url, self.socket, **{**NAMESPACES, **QUICK, **settings}) as process:
            try:
                wait_until(lambda: self.ready(process), 30, "the worker being ready")
                yield process
            except BaseException:
                print(self.log(name))
                raise

    def ready(self, process: subprocess.Popen[bytes]) -> bool:
        said = self.client._ledger.figures.workers()
        return any(name.endswith(f"-{process.pid}") and one["state"] == "ready" for name, one in said.items())

    def log(self, name: str = "worker") -> str:
        return (self.folder / name / "worker.log").read_text()

    def begun(self, spec: JobSpec = LONG) -> Job:
        """A job that has printed something."""
        job = self.client.submit(spec)
        wait_until(lambda: job.status().state is JobState.RUNNING, 20, "the job running")
        time.sleep(0.5)
        return job

    def sandboxes(self) -> int:
        """How many are lent."""
        with closing(LauncherClient(self.socket, timeout_s=10)) as launcher:
            return (launcher.probe().counts or {})["in_use"]


@contextmanager
def one_host(folder: Path, redis_url: str) -> Iterator[Host]:
    """A host on this store, without a worker yet."""
    with launcher_process(folder, **NAMESPACES) as (socket, _), Client(redis_url) as client:
        yield Host(folder, redis_url, socket, client)
