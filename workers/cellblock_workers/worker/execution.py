"""One attempt: borrow a sandbox, hold the conversation, ask the kernel, build the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import structlog

from cellblock.admission import Manifest
from cellblock.costs import Charge
from cellblock.egress import Outgoing
from cellblock.egress.filtering import ECHO_MESSAGE
from cellblock.ledger import Claim
from cellblock.models import JobError, JobResult, Outcome, Timings, Usage
from cellblock_config import Settings
from cellblock_workers.filtering.looking import Looked, OutgoingFilter
from cellblock_workers.filtering.processes import FilterFailed, Stopped
from cellblock_workers.launcher.client import (
    ContextNotMounted,
    LauncherClient,
    Lent,
    LevelNotOffered,
    SandboxNotStarting,
    SandboxRefused,
)
from cellblock_workers.launcher.protocol import Reply
from cellblock_workers.worker.claims import Value
from cellblock_workers.worker.cost_meter import CostMeter
from cellblock_workers.worker.delivery import job_frames
from cellblock_workers.worker.lease import Lease
from cellblock_workers.worker.session import Conversation, Session
from cellblock_workers.worker.told import for_tenants
from cellblock_workers.worker.verdict import Verdict, judge

_log = structlog.get_logger(__name__)

_LEAK = JobError(type="DataLeakageError", message=ECHO_MESSAGE)


class Drained(Exception):
    """The worker ends before the job: somebody else runs it again."""


class LeaseLost(Exception):
    """Another attempt owns the job, or may: whatever this one found out is void."""


def execute(
    lease: Lease,
    manifest: Manifest,
    launcher: LauncherClient,
    settings: Settings,
    outgoing: OutgoingFilter,
) -> JobResult:
    """Run the claimed attempt to its end. The sandbox is destroyed whatever happens.

    ``manifest`` is the claim's, opened where it was sealed.

    Raises :class:`SandboxUnavailable` and :class:`Drained` (give the job back), :class:`LeaseLost` (write
    nothing).
    """
    claim = lease.claim
    try:
        lent = launcher.acquire(
            claim.job_id,
            claim.fence,
            manifest.level,
            manifest.image,
            manifest.limits,
            manifest.context_path,
            lease.sandbox_s,
            tenant=manifest.tenant,
        )
    except (ContextNotMounted, LevelNotOffered, SandboxNotStarting) as refusal:
        return refused_result(claim, refusal)
    except SandboxRefused as refusal:
        return fault_result(claim, str(refusal))
    lease.borrowed(lent.id)
    try:
        meter = _meter(lease, lent, launcher)
        session = Session(lent, launcher.connection(), lease, settings, meter)
        job = job_frames(manifest, settings, lent.context_bytes)
        conversation = session.run(job, manifest.limits, artifacts=bool(manifest.artifacts))
        if conversation.stop == "lost":
            raise LeaseLost(claim.job_id)
        if conversation.stop == "drain":
            raise Drained(claim.job_id)
        ended = not (conversation.ending or conversation.stop or conversation.fault)
        kernel = launcher.give_back(lent, ended=ended)
    except BaseException:
        launcher.kill(lent)
        raise
    try:
        return _measured(lease, conversation, kernel, lent, outgoing)
    finally:
        lent.close()


def _meter(lease: Lease, lent: Lent, launcher: LauncherClient) -> Callable[[], CostMeter] | None:
    """Of a job with a price: what watches its cost from when it begins."""
    claim = lease.claim
    charge = claim.manifest.charge
    if charge is None:
        return None

    def elsewhere_micros() -> int:
        return claim.charged_micros + lease.lent_micros

    return lambda: CostMeter(
        charge,
        claim.manifest.limits,
        lambda: launcher.usage(lent),
        elsewhere_micros,
    )


def _measured(
    lease: Lease, conversation: Conversation, kernel: Reply, lent: Lent, outgoing: OutgoingFilter
) -> JobResult:
    """What the attempt came to: the kernel's word before the guest's, and of the job's own what may leave."""
    claim = lease.claim
    limits = claim.manifest.limits
    verdict = for_tenants(judge(conversation, kernel, limits), claim)
    usage = usage_of(conversation, kernel)
    try:
        looked = outgoing.look(
            _said(conversation, verdict),
            tenant=claim.manifest.tenant,
            lease=lease,
            context=lent.context,
            afford_s=affordable_cpu_s(lease, usage),
        )
    except Stopped as stopped:
        if stopped.word == "lost":
            raise LeaseLost(claim.job_id) from None
        if stopped.word == "drain":
            raise Drained(claim.job_id) from None
        verdict = judge(replace(conversation, stop="cancel"), kernel, limits)
        looked = Looked(Outgoing(error=verdict.error, evidence=verdict.evidence), stopped.cpu_s)
    except Exception as error:  # fail closed: what could not be looked at stays here
        _log.exception("filter_failed", job_id=claim.job_id, fence=claim.fence)
        verdict = _unfiltered(verdict, error)
        cpu_s = error.cpu_s if isinstance(error, FilterFailed) else 0.0
        looked = Looked(Outgoing(error=verdict.error, evidence=verdict.evidence), cpu_s)
    said, usage = looked.said, with_start(with_filter(usage, looked.cpu_s), lent)
    if said.blocked:
        verdict, said = replace(verdict, outcome=Outcome.LEAK_BLOCKED), replace(said, error=_LEAK)
    elif looked.over_cost:
        verdict = judge(replace(conversation, stop="cost"), kernel, limits)
        said = replace(said, value=None, value_kind=None, value_error=None, error=verdict.error)
    return attempt_result(claim, verdict, lent).model_copy(
        update={**_fields(said), "usage": usage, "cost_micros": _cost(claim, usage)}
    )


def affordable_cpu_s(lease: Lease, usage: Usage) -> float | None:
    """How much CPU time the rest of what the attempt may cost is enough for; None without a price."""
    charge = lease.claim.manifest.charge
    if charge is None:
        return None
    left_micros = charge.cap_micros - lease.claim.charged_micros - lease.lent_micros
    return charge.rates.cpu_s_for(
        left_micros, cpu_ms=usage.paid_cpu_ms, wall_ms=usage.wall_ms, memory_bytes=usage.peak_memory_bytes
    )


def with_start(usage: Usage, lent: Lent) -> Usage:
    """The same, and what starting its sandbox took."""
    return usage.model_copy(update={"start_cpu_ms": lent.start_cpu_ms})


def with_filter(usage: Usage, cpu_s: float) -> Usage:
    """The same, and what looking through its words took."""
    return usage.model_copy(update={"filter_cpu_ms": round(1000 * cpu_s)})


def _said(conversation: Conversation, verdict: Verdict) -> Outgoing:
    """All that the job chose. A value is a last word: of a program that did not end well there is none."""
    value = conversation.value if verdict.outcome is Outcome.OK else Value()
    return Outgoing(
        stdout=conversation.stdout,
        stderr=conversation.stderr,
        value=value.content,
        value_kind=value.kind,
        value_error=value.error,
        error=verdict.error,
        evidence=verdict.evidence,
        artifacts=conversation.artifacts,
        artifacts_skipped=conversation.artifacts_skipped,
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


def _unfiltered(verdict: Verdict, error: Exception) -> Verdict:
    """Our fault, whatever the job did; what is known of it beside its own words is kept."""
    why = str(error) if isinstance(error, FilterFailed) else type(error).__name__
    what = f"its output could not be filtered ({why}), so none of it is here"
    numbers = {name: found for name, found in verdict.evidence.items() if not isinstance(found, str)}
    evidence = {**numbers, "fault": what, "ended": verdict.outcome.value}
    return Verdict(
        Outcome.SANDBOX_ERROR, error=JobError(type="SandboxError", message=what), evidence=evidence
    )


def _cost(claim: Claim, usage: Usage) -> int | None:
    """What this attempt used, in money; the ledger takes no more than it holds for the job."""
    charge = claim.manifest.charge
    return None if charge is None else cost_of(charge, usage)


def usage_of(conversation: Conversation, kernel: Reply) -> Usage:
    """What a run used, by the kernel's word where there is one."""
    guest_cpu_ms = conversation.ending.cpu_ms if conversation.ending else 0
    # Of one of its processes: of all of them the kernel alone knows, and of one in a series it does not.
    guest_bytes = conversation.ending.peak_bytes if conversation.ending else 0
    return Usage(
        wall_ms=conversation.wall_ms,
        cpu_ms=kernel.cpu_ms if kernel.cpu_ms is not None else guest_cpu_ms,
        peak_memory_bytes=kernel.peak_memory_bytes if kernel.peak_memory_bytes is not None else guest_bytes,
        output_bytes=conversation.output_bytes,
    )


def cost_of(charge: Charge, usage: Usage) -> int:
    """What this much use costs, as far as it is paid for."""
    used = {"cpu_ms": usage.paid_cpu_ms, "wall_ms": usage.wall_ms, "memory_bytes": usage.peak_memory_bytes}
    return min(charge.cap_micros, charge.rates.cost_micros(**used))


def fault_result(claim: Claim, what: str) -> JobResult:
    """The result of an attempt that failed through us before or instead of running."""
    error = JobError(type="SandboxError", message=what)
    return attempt_result(claim, Verdict(Outcome.SANDBOX_ERROR, error=error, evidence={"fault": what}))


def refused_result(claim: Claim, refusal: SandboxRefused) -> JobResult:
    """The result of a job that gets no sandbox, here or anywhere, whatever is tried.

    One whose image and limits do not go together has the price of a run: starts were made to find that out.
    """
    cost_micros = _cost(claim, Usage()) if isinstance(refusal, SandboxNotStarting) else None
    rejected = rejected_result(claim, type(refusal).__name__, str(refusal))
    return rejected.model_copy(update={"cost_micros": cost_micros})


def rejected_result(claim: Claim, kind: str, why: str) -> JobResult:
    """The result of a job that was not run because a rule forbids it; ``why`` names the remedy."""
    return attempt_result(claim, Verdict(Outcome.REJECTED, error=JobError(type=kind, message=why)))


def attempt_result(claim: Claim, verdict: Verdict, lent: Lent | None = None) -> JobResult:
    """What every result of an attempt says."""
    verdict, manifest = for_tenants(verdict, claim), claim.manifest
    return JobResult(
        job_id=claim.job_id,
        outcome=verdict.outcome,
        exit_code=verdict.exit_code,
        signal=verdict.signal,
        error=verdict.error,
        evidence=verdict.evidence,
        level=manifest.level,
        isolation=lent.isolation if lent else None,
        backend=lent.backend if lent else None,
        attempt=claim.fence,
        worker=claim.worker,
        trace_id=manifest.trace_id,
        timings=Timings(submitted=manifest.submitted, admitted=claim.admitted, started=claim.started),
    )
