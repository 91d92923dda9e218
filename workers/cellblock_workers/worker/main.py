"""The Celery worker process: wires ledger, launcher, heart, reaper and health to one task.

Threads pool: a job's work happens in its sandbox, so a worker thread mostly waits; deadlines, kills and
recovery live in our own code and hold on any pool (docs/adr/0003).
"""

from __future__ import annotations

import os
import resource
import socket
import sys
import time
import warnings
from typing import Any

from celery import Celery, bootsteps, signals
from celery.exceptions import SecurityWarning

from cellblock.blobs import open_blobs
from cellblock.errors import NotConfigured, StoreUnavailable
from cellblock.ledger import Ledger, connect
from cellblock.queue import RUN_TASK, Publisher
from cellblock_config import Settings, load_settings
from cellblock_workers.broker import create_celery
from cellblock_workers.launcher.client import LauncherClient
from cellblock_workers.lease import Heart
from cellblock_workers.log import get_logger
from cellblock_workers.parent_death import die_with_parent
from cellblock_workers.process_environment import keep_to_itself, write_for_no_others
from cellblock_workers.store import check_store, refuse, wait_for_blobs
from cellblock_workers.telemetry import configure_logging, configure_sentry
from cellblock_workers.worker import transport
from cellblock_workers.worker.cancellations import CancellationListener
from cellblock_workers.worker.health import Health
from cellblock_workers.worker.health_endpoint import Endpoint
from cellblock_workers.worker.liveness import check_liveness
from cellblock_workers.worker.memory_need import shortage
from cellblock_workers.worker.proof import Proof
from cellblock_workers.worker.reaper import Reaper
from cellblock_workers.worker.remote_control import take_no_orders
from cellblock_workers.worker.runner import JobRunner
from cellblock_workers.worker.shutdown import Shutdown

_log = get_logger(__name__)
_PAUSED_HOLD_S = 1.0
_DRAINING_HOLD_S = 0.3
#: How often Flower is told that an idle worker lives: each time is a command.
_FLOWER_HEARS_S = 10.0
#: How long a thread that computes may keep the others waiting: one job's output must not slow down another's.
_SWITCH_S = 0.0005


class WorkerRuntime:
    """Everything that one worker process runs on besides Celery."""

    def __init__(self, settings: Settings) -> None:
        self.name = f"{socket.gethostname()}-{os.getpid()}"
        self.redis = connect(settings)
        self.blobs = open_blobs(settings.blobs)
        self.ledger = ledger = Ledger(self.redis, settings, blobs=self.blobs)
        broker = connect(settings, broker=True)
        self._publisher = publisher = Publisher(broker, settings)
        self._concurrency = settings.worker.concurrency
        proof = Proof(settings) if settings.worker.canaries else None
        launcher = LauncherClient(
            settings.launcher.socket,
            timeout_s=2 * settings.sandbox.start_timeout_s + 10,
            refuse=proof.refuse if proof else lambda sandbox: None,
        )
        self.health = Health(launcher, settings.worker.probe_s, proof)
        self.heart = Heart(
            ledger=ledger,
            worker=self.name,
            settings=settings.ledger,
            status=self._status,
            renew=launcher.renew,
        )
        self.control = CancellationListener(self.redis, ledger.keys, self.heart)
        self.reaper = Reaper(ledger, publisher, broker, settings, worker=self.name, blobs=self.blobs)
        self.runner = JobRunner(
            ledger,
            launcher,
            self.heart,
            settings,
            worker=self.name,
            on_wake=publisher.wake,
            on_unavailable=self.health.pause,
            blobs=self.blobs,
        )

    def start(self) -> None:
        """Starts the threads that keep leases, reap, and watch the launcher."""
        self.heart.start()
        self.reaper.start()
        self.health.start()
        self.control.start()
        self.runner.start()

    def stop(self) -> None:
        """Stops these threads. Called when no task runs any more."""
        for part in (self.control, self.reaper, self.health, self.heart):
            part.stop()
        self.runner.close()
        try:
            self.ledger.retire(self.name)
        except StoreUnavailable as error:
            _log.warning("worker_not_signed_off", error=str(error))

    def run(self, messages: list[str]) -> None:
        """The task: runs a job for each id of one message, whichever is next.

        A worker that is paused, or about to end, sends the message again for the others.
        """
        if self.heart.draining:  # given-back jobs may return before Celery stops consuming
            time.sleep(_DRAINING_HOLD_S)
            self._publisher.wake(messages)
            return
        if not self.health.ready and not self.health.wait_ready(_PAUSED_HOLD_S):
            self._publisher.wake(messages)
            return
        for job_id in messages:
            try:
                self.runner.run(job_id)
            except StoreUnavailable as error:
                # Not claimed, or not finished: the job still waits, or its lease runs out; the reaper has it.
                _log.warning("job_left_to_the_reaper", job_id=job_id, error=str(error))
            except Exception:  # a defect of ours costs this job its attempt, not its neighbours theirs
                _log.exception("job_crashed", job_id=job_id)

    def _status(self) -> dict[str, object]:
        return {
            **self.health.status(),
            "running": self.heart.held(),
            "concurrency": self._concurrency,
            "idle_s": round(self.heart.idle_s(), 1),
            "host": socket.gethostname(),
        }


def create_worker(settings: Settings) -> tuple[Celery, WorkerRuntime]:
    """The app with its one task, and what the task runs on. Starts nothing."""
    app = create_celery(settings)
    app.conf.worker_pool = "threads"
    app.conf.worker_concurrency = settings.worker.concurrency
    runtime = WorkerRuntime(settings)
    take_no_orders(app, runtime.heart)

    @app.task(name=RUN_TASK)  # type: ignore[untyped-decorator]
    def run(job_ids: list[str]) -> None:
        """Runs as many jobs as the message holds ids, each in a sandbox of its own."""
        runtime.run(_checked(job_ids))

    app.steps["consumer"].add(_gate(runtime.health))
    return app, runtime


def _checked(job_ids: object) -> list[str]:
    """The ids of a message. A message may hold anything, so everything else raises :class:`ValueError`."""
    if isinstance(job_ids, list) and all(isinstance(j, str) and len(j) <= 64 for j in job_ids):
        return job_ids
    raise ValueError("a message that is not a list of job ids was dropped")


def _gate(health: Health) -> type[bootsteps.StartStopStep]:
    class Gate(bootsteps.StartStopStep):  # type: ignore[misc]
        """Stops consuming while the worker is paused, so that waiting jobs stay for other hosts."""

        requires = ("celery.worker.consumer.tasks:Tasks",)

        def __init__(self, parent: Any, **options: Any) -> None:
            super().__init__(parent, **options)
            health.watch(lambda: parent.call_soon(_apply, parent))

        def start(self, parent: Any) -> None:
            # Celery's loop consumes once all steps have started, so this has to come after that.
            parent.call_soon(_apply, parent)

    def _apply(consumer: Any) -> None:
        if consumer.task_consumer is None:
            return  # between two connections; the next start() applies it
        if health.ready:
            consumer.task_consumer.consume()
        else:
            consumer.task_consumer.cancel()

    return Gate


def _endpoint(settings: Settings, runtime: WorkerRuntime) -> Endpoint | None:
    """``GET /health``, if the settings ask for it."""
    worker = settings.worker
    if worker.health_port is None:
        return None
    endpoint = Endpoint(
        worker.health_address,
        worker.health_port,
        lambda: check_liveness(runtime.ledger, socket.gethostname(), worker.silent_s, runtime.name),
    )
    endpoint.start()
    return endpoint


def _heed_memory(settings: Settings) -> None:
    """Warns, or refuses to start, if this worker may run out of memory one day."""
    why = None if settings.worker.memory_check == "off" else shortage(settings)
    if why is None:
        return
    if settings.worker.memory_check == "refuse":
        refuse("worker_refuses_its_memory", why)
    _log.warning("worker_has_little_memory", reason=why)


def main() -> None:
    """Runs a worker until TERM: running jobs finish first, or are given back after ``drain_s``."""
    die_with_parent()
    keep_to_itself()
    write_for_no_others()
    sys.setswitchinterval(_SWITCH_S)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # its memory holds keys, and what is confidential
    settings = load_settings()
    configure_logging(settings.telemetry)
    configure_sentry(settings.telemetry)
    signals.setup_logging.connect(lambda **_: None, weak=False)  # ours is in place already
    transport.install()
    # Celery takes a uid without an account for root. It is concerned about pickle, and we use JSON only.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    _heed_memory(settings)
    try:
        app, runtime = create_worker(settings)
    except NotConfigured as error:
        refuse("worker_refuses_its_settings", str(error))
    check_store(runtime.redis, settings, service="worker")
    wait_for_blobs(runtime.blobs)
    Shutdown(runtime.heart.drain, settings.worker.drain_s).install()
    worker = app.Worker(
        hostname=f"cellblock@{runtime.name}",
        without_mingle=True,
        without_gossip=True,
        heartbeat_interval=_FLOWER_HEARS_S,
        loglevel=settings.telemetry.log_level.upper(),
        quiet=True,
    )
    try:
        endpoint = _endpoint(settings, runtime)
    except OSError as error:
        place = f"{settings.worker.health_address}:{settings.worker.health_port}"
        refuse("health_endpoint_refused", f"CELLBLOCK_WORKER_HEALTH_PORT: {place}: {error.strerror}")
    runtime.start()
    _log.info("worker_started", worker=runtime.name, at=time.time(), concurrency=settings.worker.concurrency)
    try:
        worker.start()
    finally:
        runtime.stop()
        if endpoint is not None:
            endpoint.stop()
    raise SystemExit(worker.exitcode)


if __name__ == "__main__":
    main()
