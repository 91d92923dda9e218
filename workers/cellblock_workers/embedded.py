"""``cellblock run`` without a server: the same ledger scripts on an in-process Redis, the same execution."""

from __future__ import annotations

import time
import uuid

import fakeredis

from cellblock.admission import resolve
from cellblock.errors import SandboxUnavailable
from cellblock.ledger import Ledger
from cellblock.models import JobResult, JobSpec
from cellblock_config import Settings
from cellblock_workers.launcher.client import LauncherClient
from cellblock_workers.launcher.spawn import running_launcher
from cellblock_workers.telemetry import configure_logging
from cellblock_workers.worker.lease import Heart
from cellblock_workers.worker.runner import JobRunner

_WORKER = "embedded"


def run_embedded(spec: JobSpec, settings: Settings) -> JobResult:
    """Admit, run and finish one job in this process, with a launcher of its own.

    Raises what :meth:`cellblock.Client.submit` raises, and :class:`SandboxUnavailable`.
    """
    configure_logging(settings.telemetry.model_copy(update={"log_level": "error"}))
    manifest = resolve(spec, settings)
    ledger = Ledger(fakeredis.FakeRedis(decode_responses=True), settings, embedded=True)
    job_id = ledger.admit(uuid.uuid4().hex, manifest).job_id
    with running_launcher(settings, warm=0) as socket:
        launcher = LauncherClient(socket, timeout_s=settings.sandbox.start_timeout_s + 10)
        _wait_for_isolation(launcher, settings.sandbox.start_timeout_s)
        heart = Heart(ledger, _WORKER, settings.ledger, lambda: {"state": "ready"})
        reasons: list[str] = []
        runner = JobRunner(
            ledger,
            launcher,
            heart,
            settings,
            worker=_WORKER,
            on_released=lambda *_: None,
            on_unavailable=reasons.append,
        )
        heart.start()
        try:
            runner.run(job_id)
        finally:
            heart.stop()
            launcher.close()
    result = ledger.result(job_id)
    if result is None:
        raise SandboxUnavailable("; ".join(reasons) or "the job was given back")
    return result


def _wait_for_isolation(launcher: LauncherClient, timeout_s: float) -> None:
    """Until the launcher's first probe is through. Raises :class:`SandboxUnavailable` with its reasons."""
    deadline = time.monotonic() + timeout_s
    while True:
        reply = launcher.probe()
        if reply.isolation:
            return
        if reply.reasons or time.monotonic() > deadline:
            raise SandboxUnavailable(
                "; ".join((reply.reasons or {}).values()) or "no isolation was found in time"
            )
        time.sleep(0.02)
