"""Jobs without a server: the same ledger scripts on an in-process Redis, the same execution."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import fakeredis

from cellblock.admission.gates import Gates
from cellblock.admission.intake import Intake
from cellblock.admission.resolve import Manifest
from cellblock.contract.job_ids import new_job_id
from cellblock.contract.job_spec import JobSpec
from cellblock.contract.results import JobResult
from cellblock.errors import InvalidJob, SandboxUnavailable
from cellblock.ledger import Ledger
from cellblock_config import LevelName, Settings
from cellblock_workers.launcher.client import LauncherClient
from cellblock_workers.launcher.contexts import ContextRefused, resolve_context
from cellblock_workers.launcher.spawn import running_launcher
from cellblock_workers.lease import Heart
from cellblock_workers.telemetry import configure_logging
from cellblock_workers.worker.runner import JobRunner

_WORKER = "embedded"
_LOOK_S = 0.005
#: Threads beyond one for each processor: some wait for sandboxes while others work.
_MORE_THREADS = 1


def in_process_redis() -> fakeredis.FakeRedis:
    """A Redis in this process, for any number of its threads."""
    redis = fakeredis.FakeRedis(server=fakeredis.FakeServer(), decode_responses=True)
    redis.ping()  # makes its database: threads that begin together would each have their own
    return redis


@dataclass(frozen=True, slots=True)
class _Asked:
    """A job that may be admitted."""

    job_id: str
    manifest: Manifest
    gates: Gates | None

    @classmethod
    def of(cls, spec: JobSpec, intake: Intake) -> _Asked:
        """The job of a spec. Raises what :meth:`cellblock.Client.submit` raises."""
        job_id = new_job_id(spec.tenant)
        return cls(job_id, *intake.prepare(job_id, spec))


class _Host:
    """Ledger, runner and launcher of this process."""

    def __init__(self, settings: Settings, socket: Path) -> None:
        self.ledger = Ledger(in_process_redis(), settings, embedded=True)
        self.launcher = LauncherClient(socket, timeout_s=settings.sandbox.start_timeout_s + 10)
        self.heart = Heart(
            ledger=self.ledger,
            worker=_WORKER,
            settings=settings.ledger,
            status=lambda: {"state": "ready"},
            renew=self.launcher.renew,
        )
        self._reasons: list[str] = []
        self._runner = JobRunner(
            self.ledger,
            self.launcher,
            self.heart,
            settings,
            worker=_WORKER,
            on_wake=lambda wakes: None,
            on_unavailable=self._reasons.append,
        )

    def start(self) -> None:
        """Begins to keep leases, and to get the filter ready while the first sandbox starts."""
        self._runner.start()
        self.heart.start()

    def stop(self) -> None:
        """Ends all three."""
        self.heart.stop()
        self._runner.close()
        self.launcher.close()

    def run(self, asked: _Asked) -> JobResult:
        """Admits the job and runs whatever is next until it ends. Raises :class:`SandboxUnavailable`."""
        self.ledger.admissions.admit(asked.job_id, asked.manifest, gates=asked.gates)
        while True:
            ran = self._runner.run(asked.job_id)
            if (result := self.ledger.reads.result(asked.job_id)) is not None:
                return result
            if (pause_s := self.ledger.reads.due_in_s(asked.job_id)) is not None:  # a failure is tried again
                time.sleep(pause_s)
                self.ledger.upkeep.wake_delayed()
            elif ran == asked.job_id:
                raise SandboxUnavailable("; ".join(dict.fromkeys(self._reasons)) or "the job was given back")
            elif ran is None:  # another thread has it
                time.sleep(_LOOK_S)


def run_embedded(spec: JobSpec, settings: Settings) -> JobResult:
    """Admits, runs and finishes one job in this process, with a launcher of its own.

    Raises what :meth:`cellblock.Client.submit` raises, and :class:`SandboxUnavailable`.
    """
    configure_logging(settings.telemetry.model_copy(update={"log_level": "error"}))
    roots, asked = _context_roots(spec, settings), _Asked.of(spec, Intake(settings))
    with _host(settings, spec.level, roots) as host:
        return host.run(asked)


@contextmanager
def embedded_fleet(settings: Settings, level: LevelName) -> Iterator[Callable[[JobSpec], Future[JobResult]]]:
    """A function that starts jobs of this level here; as many run at once as this machine has processors
    for."""
    configure_logging(settings.telemetry.model_copy(update={"log_level": "error"}))
    threads, intake = len(os.sched_getaffinity(0)) + _MORE_THREADS, Intake(settings)
    with _host(settings, level, settings.launcher.context_roots) as host:
        pool = ThreadPoolExecutor(threads, thread_name_prefix="embedded")
        try:
            yield lambda spec: pool.submit(host.run, _Asked.of(spec, intake))
        finally:
            host.heart.drain()
            pool.shutdown(cancel_futures=True)


@contextmanager
def _host(settings: Settings, level: LevelName, roots: tuple[Path, ...]) -> Iterator[_Host]:
    with running_launcher(settings, level, roots) as socket:
        host = _Host(settings, socket)
        host.start()
        if settings.sandbox.chain(level):  # else there is nothing to wait for, and the launcher says so
            host.launcher.await_probe(settings.sandbox.start_timeout_s)
        try:
            yield host
        finally:
            host.stop()


def _context_roots(spec: JobSpec, settings: Settings) -> tuple[Path, ...]:
    """The folders in which this run's context may lie. The caller operates this host: the file's folder will
    do.

    Raises :class:`InvalidJob` for a file that cannot be a context.
    """
    roots = settings.launcher.context_roots
    if spec.context_path is None:
        return roots
    if not roots and "socket" not in settings.launcher.model_fields_set:
        roots = (Path(os.path.realpath(spec.context_path)).parent,)
    try:
        resolve_context(spec.context_path, roots)
    except ContextRefused as refusal:
        raise InvalidJob("context_path", str(refusal)) from None
    return roots
