"""``cellblock run`` without a server: the same ledger scripts on an in-process Redis, the same execution."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

import fakeredis

from cellblock.errors import InvalidJob, SandboxUnavailable
from cellblock.intake import Intake
from cellblock.ledger import Ledger
from cellblock.models import JobResult, JobSpec
from cellblock_config import Settings
from cellblock_workers.launcher.client import LauncherClient
from cellblock_workers.launcher.contexts import ContextRefused, resolve_context
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
    roots = _context_roots(spec, settings)
    job_id = uuid.uuid4().hex
    manifest, gates = Intake(settings).prepare(job_id, spec)
    ledger = Ledger(fakeredis.FakeRedis(decode_responses=True), settings, embedded=True)
    ledger.admit(job_id, manifest, gates=gates)
    with running_launcher(settings, spec.level, roots) as socket:
        launcher = LauncherClient(socket, timeout_s=settings.sandbox.start_timeout_s + 10)
        if settings.sandbox.chain(spec.level):  # else there is nothing to wait for, and the launcher says so
            launcher.await_probe(settings.sandbox.start_timeout_s)
        heart = Heart(ledger, _WORKER, settings.ledger, lambda: {"state": "ready"}, launcher.renew)
        reasons: list[str] = []
        runner = JobRunner(
            ledger,
            launcher,
            heart,
            settings,
            worker=_WORKER,
            on_wake=lambda wakes: None,
            on_unavailable=reasons.append,
        )
        heart.start()
        try:
            runner.run(job_id)
            while (pause_s := ledger.due_in_s(job_id)) is not None:  # a failure is tried again
                time.sleep(pause_s)
                ledger.wake_delayed()
                runner.run(job_id)
        finally:
            heart.stop()
            launcher.close()
    result = ledger.result(job_id)
    if result is None:
        raise SandboxUnavailable("; ".join(reasons) or "the job was given back")
    return result


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
