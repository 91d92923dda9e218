"""From evidence to the one cause of an end. The kernel's word comes first, the guest's second, and
nothing the job printed counts."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field

from cellblock.admission import ResolvedLimits
from cellblock.models import JobError, Outcome
from cellblock_workers.launcher.protocol import Reply
from cellblock_workers.worker.session import Conversation

Evidence = dict[str, bool | int | float | str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One outcome, the exit code a shell would show, and what both rest on."""

    outcome: Outcome
    exit_code: int | None = None
    signal: int | None = None
    error: JobError | None = None
    evidence: Evidence = field(default_factory=dict)


def judge(conversation: Conversation, kernel: Reply, limits: ResolvedLimits) -> Verdict:
    """Name the one cause. Decided from the strongest evidence down."""
    evidence = _evidence(kernel)
    if conversation.stop == "cancel":
        return _killed(Outcome.CANCELLED, "Cancelled", "Cancelled while it ran", evidence)
    if conversation.fault is not None:
        return _fault(conversation.fault, evidence)
    ending = conversation.ending
    if conversation.stop == "deadline" or (ending is not None and ending.reason == "wall"):
        by = "host" if conversation.stop else "guest"
        message = f"Wall-clock limit of {limits.timeout_s:g} s exceeded"
        return _killed(Outcome.WALL_TIMEOUT, "WallTimeout", message, {**evidence, "stopped_by": by})
    if conversation.stop == "output" or (ending is not None and ending.reason == "output"):
        message = f"More than {limits.output_bytes} bytes of output"
        return _killed(Outcome.OUTPUT_LIMIT, "OutputLimit", message, evidence)
    killed = ending is None or ending.signal == signal.SIGKILL
    if killed and kernel.oom_kills:
        message = f"Memory Limit Exceeded ({limits.memory_bytes} bytes)"
        return _killed(Outcome.MEMORY, "MemoryLimitExceeded", message, evidence)
    if ending is None:
        return _fault(f"the sandbox ended without a report (exit code {kernel.exit_code})", evidence)
    if ending.code is not None:
        return _exited(ending.code, conversation, kernel, evidence)
    return _signalled(ending.signal or 0, ending.cpu_ms, limits, evidence)


def _exited(code: int, conversation: Conversation, kernel: Reply, evidence: Evidence) -> Verdict:
    if code == 0:
        return Verdict(Outcome.OK, 0, evidence=evidence)
    if kernel.pids_refused:
        error = conversation.raised or JobError(
            type="ProcessLimit", message="A process was refused at the limit"
        )
        return Verdict(Outcome.PIDS, code, error=error, evidence=evidence)
    error = conversation.raised or JobError(type="Exit", message=f"Exited with code {code}")
    return Verdict(Outcome.EXIT, code, error=error, evidence=evidence)


def _signalled(number: int, cpu_ms: int, limits: ResolvedLimits, evidence: Evidence) -> Verdict:
    # The kernel sends SIGXCPU at the limit, and SIGKILL a second later to those who ignore it.
    # Either counts only with the CPU time to show for it: a job can send itself any signal.
    share = cpu_ms / (limits.cpu_s * 1000)
    if (number == signal.SIGXCPU and share >= 0.9) or (number == signal.SIGKILL and share >= 1):
        error = JobError(type="CpuTimeout", message=f"CPU limit of {limits.cpu_s:g} s exceeded")
        return Verdict(Outcome.CPU_TIMEOUT, 128 + number, number, error, {**evidence, "guest_cpu_ms": cpu_ms})
    name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
    error = JobError(type="Signal", message=f"Killed by {name}")
    return Verdict(Outcome.SIGNAL, 128 + number, number, error, evidence)


def _killed(outcome: Outcome, kind: str, message: str, evidence: Evidence) -> Verdict:
    number = int(signal.SIGKILL)
    return Verdict(outcome, 128 + number, number, JobError(type=kind, message=message), evidence)


def _fault(what: str, evidence: Evidence) -> Verdict:
    error = JobError(type="SandboxError", message=what)
    return Verdict(Outcome.SANDBOX_ERROR, error=error, evidence={**evidence, "fault": what})


def _evidence(kernel: Reply) -> Evidence:
    found = {
        "oom_kills": kernel.oom_kills,
        "pids_refused": kernel.pids_refused,
        "sandbox_exit_code": kernel.exit_code,
    }
    return {name: value for name, value in found.items() if value}
