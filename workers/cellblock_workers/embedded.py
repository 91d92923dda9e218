"""Jobs without a server: the same ledger scripts on an in-process Redis, the same execution."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import fakeredis

from cellblock.errors import InvalidJob, SandboxUnavailable
from cellblock.intake import Intake
from cellblock.ledger import Ledger
from cellblock.models import JobResult, JobSpec
from cellblock_config import LevelName, Settings
from cellblock_workers.launcher.client import LauncherClient
from cellblock_workers.launcher.contexts import ContextRefused, resolve_context
from cellblock_workers.launcher.spawn import running_launcher
from cellblock_workers.telemetry import configure_logging
from cellblock_workers.worker.lease import Heart
from cellblock_workers.worker.runner import JobRunner

_WORKER = "embedded"
_LOOK_S = 0.005
#: Threads beyond one for each processor: some wait for sandboxes while others are at work.
_MORE_THREADS = 1


class _Host:
    """Ledger, runner and launcher of this process."""

    def __init__(self, settings: Settings, socket: Path) -> None:
        self.settings = settings
        self.intake = Intake(settings)
        self.ledger = Ledger(fakeredis.FakeRedis(decode_responses=True), settings, embedded=True)
        self.launcher = LauncherClient(socket, timeout_s=settings.sandbox.start_timeout_s + 10)
        self.heart = Heart(
            self.ledger, _WORKER, settings.ledger, lambda: {"state": "ready"}, self.launcher.renew
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

    def admit(self, spec: JobSpec) -> str:
        """Take a job in; its id. Raises what :meth:`cellblock.Client.submit` raises."""
        job_id = uuid.uuid4().hex
        manifest, gates = self.intake.prepare(job_id, spec)
        self.ledger.admit(job_id, manifest, gates=gates)
        return job_id

    def result(self, job_id: str) -> JobResult:
        """Run whatever is next until this job has ended. Raises :class:`SandboxUnavailable`."""
        self._runner.run(job_id)
        while (result := self.ledger.result(job_id)) is None:
            if self._reasons:
                raise SandboxUnavailable("; ".join(dict.fromkeys(self._reasons)))
            if (pause_s := self.ledger.due_in_s(job_id)) is not None:  # a failure is tried again
                time.sleep(pause_s)
                self.ledger.wake_delayed()
            if self._runner.run(job_id) is None:  # another thread has it
                time.sleep(_LOOK_S)
        return result


def run_embedded(spec: JobSpec, settings: Settings) -> JobResult:
    """Admit, run and finish one job in this process, with a launcher of its own.

    Raises what :meth:`cellblock.Client.submit` raises, and :class:`SandboxUnavailable`.
    """
    configure_logging(settings.telemetry.model_copy(update={"log_level": "error"}))
    Intake(settings).prepare(uuid.uuid4().hex, spec)  # a bad job starts no launcher
    with _host(settings, spec.level, _context_roots(spec, settings)) as host:
        return host.result(host.admit(spec))


@contextmanager
def embedded_fleet(settings: Settings, level: LevelName) -> Iterator[Callable[[JobSpec], Future[JobResult]]]:
    """What starts jobs of this level on this machine, as many at once as it has processors for."""
    configure_logging(settings.telemetry.model_copy(update={"log_level": "error"}))
    threads = len(os.sched_getaffinity(0)) + _MORE_THREADS
    with _host(settings, level, settings.launcher.context_roots) as host:
        pool = ThreadPoolExecutor(threads, thread_name_prefix="embedded")
        try:
            yield lambda spec: pool.submit(host.result, host.admit(spec))
        finally:
            host.heart.drain()
            pool.shutdown(cancel_futures=True)


@contextmanager
def _host(settings: Settings, level: LevelName, roots: tuple[Path, ...]) -> Iterator[_Host]:
    with running_launcher(settings, level, roots) as socket:
        host = _Host(settings, socket)
        if settings.sandbox.chain(level):  # else there is nothing to wait for, and the launcher says so
            host.launcher.await_probe(settings.sandbox.start_timeout_s)
        host.heart.start()
        try:
            yield host
        finally:
            host.heart.stop()
            host.launcher.close()


def _context_roots(spec: JobSpec, settings: Settings) -> tuple[Path, ...]:
    """Where this run's context may lie. Its caller is this host's operator: the file's own folder will do.

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
