"""One attempt: borrow a sandbox, run a session with it, ask the kernel, build the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cellblock.admission.costs import Charge
from cellblock.admission.resolve import Manifest
from cellblock.contract.outcomes import JobError, Outcome, Usage
from cellblock.contract.results import JobResult, Timings
from cellblock.egress import Outgoing
from cellblock.egress.filtering import ECHO_MESSAGE
from cellblock.ledger import Claim
from cellblock_config import Settings
from cellblock_workers.filtering.failures import FilterFailed, Stopped
from cellblock_workers.filtering.outgoing_filter import FilteredOutput, OutgoingFilter
from cellblock_workers.launcher.client import (
    BorrowedSandbox,
    ContextNotMounted,
    LauncherClient,
    LevelNotOffered,
    SandboxNotStarting,
    SandboxRefused,
)
from cellblock_workers.launcher.evidence import Evidence
from cellblock_workers.lease import Lease
from cellblock_workers.log import get_logger
from cellblock_workers.worker.cost_meter import CostMeter
from cellblock_workers.worker.job_frames import job_frames
from cellblock_workers.worker.outcome import RunOutcome, decide_outcome
from cellblock_workers.worker.reported import Value
from cellblock_workers.worker.session import Session, Transcript
from cellblock_workers.worker.tenant_messages import for_tenants

_log = get_logger(__name__)

_LEAK = JobError(type="DataLeakageError", message=ECHO_MESSAGE)


class Drained(Exception):
    """The worker ends before the job: another worker runs the job again."""


class LeaseLost(Exception):
    """Another attempt owns the job, or may own it: this attempt's result is void."""


def execute(
    lease: Lease,
    manifest: Manifest,
    launcher: LauncherClient,
    settings: Settings,
    outgoing: OutgoingFilter,
) -> JobResult:
    """Runs the claimed attempt to its end. The sandbox is destroyed in every case.

    ``manifest``: the claim's, opened if it was sealed.

    Raises :class:`SandboxUnavailable` and :class:`Drained` (give the job back), :class:`LeaseLost` (write
    nothing).
    """
    claim = lease.claim
    try:
        sandbox = launcher.acquire(
            job_id=claim.job_id,
            fence=claim.fence,
            level=manifest.level,
            image=manifest.image,
            limits=manifest.limits,
            context=manifest.context_path,
            lease_s=lease.sandbox_s,
            tenant=manifest.tenant,
        )
    except (ContextNotMounted, LevelNotOffered, SandboxNotStarting) as refusal:
        return refused_result(claim, refusal)
    except SandboxRefused as refusal:
        return fault_result(claim, str(refusal))
    lease.borrowed(sandbox.id)
    try:
        meter = _meter(lease, sandbox, launcher)
        session = Session(
            borrowed=sandbox, launcher=launcher.connection(), lease=lease, settings=settings, meter=meter
        )
        job = job_frames(manifest, settings, sandbox.context_bytes)
        transcript = session.run(job, manifest.limits, artifacts=bool(manifest.artifacts))
        if transcript.stop == "lost":
            raise LeaseLost(claim.job_id)
        if transcript.stop == "drain":
            raise Drained(claim.job_id)
        ended = not (transcript.ending or transcript.stop or transcript.fault)
        kernel = launcher.give_back(sandbox, ended=ended)
    except BaseException:
        launcher.kill(sandbox)
        raise
    try:
        return _measured(
            lease=lease, transcript=transcript, kernel=kernel, sandbox=sandbox, outgoing=outgoing
        )
    finally:
        sandbox.close()


def _meter(
    lease: Lease, sandbox: BorrowedSandbox, launcher: LauncherClient
) -> Callable[[], CostMeter] | None:
    """What makes the meter of a job when it begins; None without a price."""
    claim = lease.claim
    charge = claim.manifest.charge
    if charge is None:
        return None

    def elsewhere_micros() -> int:
        return claim.charged_micros + lease.lent_micros

    return lambda: CostMeter(
        charge,
        claim.manifest.limits,
        lambda: launcher.usage(sandbox),
        elsewhere_micros,
    )


def _measured(
    lease: Lease, transcript: Transcript, kernel: Evidence, sandbox: BorrowedSandbox, outgoing: OutgoingFilter
) -> JobResult:
    """The attempt's result: the kernel's evidence before the guest's, and the output that may leave."""
    claim = lease.claim
    limits = claim.manifest.limits
    run = for_tenants(decide_outcome(transcript, kernel, limits, claim.manifest.charge), claim)
    usage = usage_of(transcript, kernel)
    try:
        looked = outgoing.look(
            _said(transcript, run),
            tenant=claim.manifest.tenant,
            lease=lease,
            context=sandbox.context,
            afford_s=affordable_cpu_s(lease, usage),
        )
    except Stopped as stopped:
        if stopped.reason == "lost":
            raise LeaseLost(claim.job_id) from None
        if stopped.reason == "drain":
            raise Drained(claim.job_id) from None
        run = decide_outcome(replace(transcript, stop="cancel"), kernel, limits)
        looked = FilteredOutput(Outgoing(error=run.error, evidence=run.evidence), stopped.cpu_s)
    except Exception as error:  # fail closed: what could not be filtered stays here
        _log.exception("filter_failed", job_id=claim.job_id, fence=claim.fence)
        run = _unfiltered(run, error)
        cpu_s = error.cpu_s if isinstance(error, FilterFailed) else 0.0
        looked = FilteredOutput(Outgoing(error=run.error, evidence=run.evidence), cpu_s)
    said, usage = looked.said, with_start(with_filter(usage, looked.cpu_s), sandbox)
    if said.blocked:
        run, said = replace(run, outcome=Outcome.LEAK_BLOCKED), replace(said, error=_LEAK)
    elif looked.over_cost:
        run = decide_outcome(replace(transcript, stop="cost"), kernel, limits, claim.manifest.charge)
        said = replace(said, value=None, value_kind=None, value_error=None, error=run.error)
    return attempt_result(claim, run, sandbox).model_copy(
        update={**_fields(said), "usage": usage, "cost_micros": _cost(claim, usage)}
    )


def affordable_cpu_s(lease: Lease, usage: Usage) -> float | None:
    """The seconds of CPU time that the rest of the attempt's cap pays for; None without a price."""
    charge = lease.claim.manifest.charge
    if charge is None:
        return None
    left_micros = charge.cap_micros - lease.claim.charged_micros - lease.lent_micros
    return charge.rates.cpu_s_for(
        left_micros, cpu_ms=usage.paid_cpu_ms, wall_ms=usage.wall_ms, memory_bytes=usage.peak_memory_bytes
    )


def with_start(usage: Usage, sandbox: BorrowedSandbox) -> Usage:
    """The same usage, with what it took to start the sandbox."""
    return usage.model_copy(update={"start_cpu_ms": sandbox.start_cpu_ms})


def with_filter(usage: Usage, cpu_s: float) -> Usage:
    """The same usage, with what it took to filter the output."""
    return usage.model_copy(update={"filter_cpu_ms": round(1000 * cpu_s)})


def _said(transcript: Transcript, run: RunOutcome) -> Outgoing:
    """All that the job chose. Only a program that ended ok has a value."""
    value = transcript.value if run.outcome is Outcome.OK else Value()
    return Outgoing(
        stdout=transcript.stdout,
        stderr=transcript.stderr,
        value=value.content,
        value_kind=value.kind,
        value_error=value.error,
        error=run.error,
        evidence=run.evidence,
        artifacts=transcript.artifacts,
        artifacts_skipped=transcript.artifacts_skipped,
    )


def _fields(said: Outgoing) -> dict[str, object]:
    streams = {"stdout": said.stdout, "stderr": said.stderr}
    return {
        "stdout": said.stdout.text,
        "stderr": said.stderr.text,
        "value": said.value,
        "value_kind": said.value_kind,
        "value_error": said.value_error,
        "error": said.error,
        "evidence": said.evidence,
        "artifacts": said.artifacts,
        "artifacts_skipped": said.artifacts_skipped,
        "redactions": said.redactions,
        "truncated": {name: part.dropped_bytes for name, part in streams.items() if part.dropped_bytes},
    }


def _unfiltered(run: RunOutcome, error: Exception) -> RunOutcome:
    """A sandbox error, whatever the job did. What is known of the job beside its own output is kept."""
    why = str(error) if isinstance(error, FilterFailed) else type(error).__name__
    what = f"its output could not be filtered ({why}), so none of it is here"
    numbers = {name: found for name, found in run.evidence.items() if not isinstance(found, str)}
    evidence = {**numbers, "fault": what, "ended": run.outcome.value}
    return RunOutcome(
        Outcome.SANDBOX_ERROR, error=JobError(type="SandboxError", message=what), evidence=evidence
    )


def _cost(claim: Claim, usage: Usage) -> int | None:
    """What this attempt used, in micros; the ledger takes no more than it holds for the job."""
    charge = claim.manifest.charge
    return None if charge is None else cost_of(charge, usage)


def usage_of(transcript: Transcript, kernel: Evidence) -> Usage:
    """What a run used, as the kernel says; where the kernel does not know, as the guest says."""
    guest_cpu_ms = transcript.ending.cpu_ms if transcript.ending else 0
    # The peak of a single process. Only the kernel knows the total, and not for one sandbox of a series.
    guest_bytes = transcript.ending.peak_bytes if transcript.ending else 0
    return Usage(
        wall_ms=transcript.wall_ms,
        cpu_ms=kernel.cpu_ms if kernel.cpu_ms is not None else guest_cpu_ms,
        peak_memory_bytes=kernel.peak_memory_bytes if kernel.peak_memory_bytes is not None else guest_bytes,
        output_bytes=transcript.output_bytes,
    )


def cost_of(charge: Charge, usage: Usage) -> int:
    """The micros that this usage costs, at most the cap."""
    used = {"cpu_ms": usage.paid_cpu_ms, "wall_ms": usage.wall_ms, "memory_bytes": usage.peak_memory_bytes}
    return min(charge.cap_micros, charge.rates.cost_micros(**used))


def fault_result(claim: Claim, what: str) -> JobResult:
    """The result of an attempt that failed through our fault, before it ran or instead."""
    error = JobError(type="SandboxError", message=what)
    return attempt_result(claim, RunOutcome(Outcome.SANDBOX_ERROR, error=error, evidence={"fault": what}))


def refused_result(claim: Claim, refusal: SandboxRefused) -> JobResult:
    """The result of a job that cannot get a sandbox, here or anywhere, however often it is tried.

    If its image and limits do not fit together, it costs the price of a run: starts were made to find that
    out.
    """
    cost_micros = _cost(claim, Usage()) if isinstance(refusal, SandboxNotStarting) else None
    rejected = rejected_result(claim, type(refusal).__name__, str(refusal))
    return rejected.model_copy(update={"cost_micros": cost_micros})


def rejected_result(claim: Claim, kind: str, why: str) -> JobResult:
    """The result of a job that did not run because a rule forbids it; ``why`` names the remedy."""
    return attempt_result(claim, RunOutcome(Outcome.REJECTED, error=JobError(type=kind, message=why)))


def attempt_result(claim: Claim, run: RunOutcome, sandbox: BorrowedSandbox | None = None) -> JobResult:
    """The fields that every result of an attempt has."""
    run, manifest = for_tenants(run, claim), claim.manifest
    return JobResult(
        job_id=claim.job_id,
        outcome=run.outcome,
        exit_code=run.exit_code,
        signal=run.signal,
        error=run.error,
        evidence=run.evidence,
        level=manifest.level,
        isolation=sandbox.isolation if sandbox else None,
        backend=sandbox.backend if sandbox else None,
        attempt=claim.fence,
        worker=claim.worker,
        trace_id=manifest.trace_id,
        timings=Timings(submitted=manifest.submitted, admitted=claim.admitted, started=claim.started),
    )
