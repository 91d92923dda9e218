"""A worker without Celery: real runner, client, launcher process and sandboxes, on an in-process ledger."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fakeredis

from cellblock import JobSpec
from cellblock.admission import resolve
from cellblock.ledger import Ledger
from cellblock.models import JobResult, JobStatus
from cellblock_config import Settings, load_settings
from cellblock_workers.launcher.client import LauncherClient
from cellblock_workers.worker.lease import Heart
from cellblock_workers.worker.runner import JobRunner
from parts import launcher_process, wait_until

ISOLATIONS = ("gvisor", "runc")
MIB = 1024 * 1024


class Host:
    """Everything of a worker but its queue. Jobs run in the calling thread."""

    def __init__(self, socket: Path, **groups: object) -> None:
        self.settings: Settings = load_settings(**{"launcher": {"socket": socket}, **groups})
        self.ledger = Ledger(
            fakeredis.FakeRedis(server=fakeredis.FakeServer(), decode_responses=True),
            self.settings,
            embedded=True,
        )
        self.launcher = LauncherClient(socket, timeout_s=60)
        self.heart = Heart(self.ledger, "test-worker", self.settings.ledger, lambda: {"state": "ready"})
        self.released: list[str] = []
        self.unavailable: list[str] = []
        self.runner = JobRunner(
            self.ledger,
            self.launcher,
            self.heart,
            self.settings,
            worker="test-worker",
            on_released=lambda job_id, _: self.released.append(job_id),
            on_unavailable=self.unavailable.append,
        )

    def admit(self, code: str, **spec: Any) -> str:
        """Put one job into the ledger; its id."""
        manifest = resolve(JobSpec(code=code, **spec), self.settings)
        return self.ledger.admit(uuid.uuid4().hex, manifest).job_id

    def run(self, code: str, **spec: Any) -> JobResult:
        """Admit, claim, run and finish one job."""
        job_id = self.admit(code, **spec)
        self.runner.run(job_id)
        result = self.ledger.result(job_id)
        assert result is not None, f"the job was given back: {self.unavailable}"
        return result

    def run_unfinished(self, code: str, **spec: Any) -> JobStatus:
        """Run one attempt of a job that is expected to be given back; where the ledger then has it."""
        job_id = self.admit(code, **spec)
        self.runner.run(job_id)
        assert self.ledger.result(job_id) is None
        return self.ledger.status(job_id)

    @contextmanager
    def running(self, code: str, **spec: Any) -> Iterator[tuple[str, Callable[[], JobResult]]]:
        """Run a job in a thread of its own: its id, and a call that waits for its result."""
        job_id = self.admit(code, **spec)

        def work() -> None:
            self.runner.run(job_id)
            self.launcher.close()

        thread = threading.Thread(target=work)

        def wait() -> JobResult:
            thread.join(timeout=30)
            result = self.ledger.result(job_id)
            assert result is not None
            return result

        thread.start()
        try:
            yield job_id, wait
        finally:
            thread.join(timeout=30)


@contextmanager
def hosts(folder: Callable[[str], Path]) -> Iterator[dict[str, Host]]:
    """One launcher process for each isolation, past its first probe, with a host on it."""
    with _host(folder("gvisor"), "gvisor") as gvisor, _host(folder("runc"), "runc") as runc:
        yield {"gvisor": gvisor, "runc": runc}


@contextmanager
def _host(folder: Path, isolation: str) -> Iterator[Host]:
    environment = {"CELLBLOCK_SANDBOX_ISOLATIONS": f'["{isolation}"]', "CELLBLOCK_LAUNCHER_WARM": "1"}
    with launcher_process(folder, **environment) as (path, _):
        host = Host(path)
        wait_until(lambda: host.launcher.probe().isolation, 60, f"{isolation} passing its probe")
        yield host
        host.launcher.close()


def peak_rss_bytes() -> int:
    """The most memory this process has held since :func:`forget_peak_rss`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def forget_peak_rss() -> int:
    """Begin to measure the peak anew; what is held now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_rss_bytes()
