"""Decides the one cause of an end from the evidence. The kernel's evidence comes first, the guest's second,
and the job's output does not count."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field

from cellblock.admission.costs import Charge
from cellblock.admission.resolve import ResolvedLimits
from cellblock.contract.outcomes import JobError, Outcome
from cellblock_workers.launcher.evidence import Evidence
from cellblock_workers.worker.session import Ending, Transcript

EvidenceFields = dict[str, bool | int | float | str]

#: What the interpreter raises when the kernel refuses a thread.
_NO_THREAD = ("RuntimeError", "can't start new thread")
#: And a process: a pipe without anything to read raises the same, so the line that raised it counts.
_NO_PROCESS = ("BlockingIOError", "[Errno 11] ")
_MAKES_A_PROCESS = re.compile(r"\b(?:_?fork|forkpty|_?fork_exec|posix_spawnp?)\(")
#: Where a traceback has that line, and the marks below it.
_RAISED_LINES = 5
#: What the interpreter and SQLite raise when a file system refuses a byte or a file, or a quota does.
_NO_ROOM = (
    ("OSError", "[Errno 28] "),
    ("OSError", "[Errno 122] "),
    ("OperationalError", "database or disk is full"),
)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """One outcome, the exit code that a shell would show, and the evidence for both."""

    outcome: Outcome
    exit_code: int | None = None
    signal: int | None = None
    error: JobError | None = None
    evidence: EvidenceFields = field(default_factory=dict)


def decide_outcome(
    transcript: Transcript, kernel: Evidence, limits: ResolvedLimits, charge: Charge | None = None
) -> RunOutcome:
    """Names the one cause of the end, by the strongest evidence there is."""
    evidence = kernel.fields()
    if transcript.stop == "cancel":
        return _killed(Outcome.CANCELLED, "Cancelled", "Cancelled while it ran", evidence)
    if transcript.fault is not None:
        return _fault(transcript.fault, evidence)
    ending = transcript.ending
    if transcript.stop == "deadline" or (ending is not None and ending.reason == "wall"):
        by = "host" if transcript.stop else "guest"
        message = f"Wall-clock limit of {limits.timeout_s:g} s exceeded"
        return _killed(Outcome.WALL_TIMEOUT, "WallTimeout", message, {**evidence, "stopped_by": by})
    if transcript.stop == "cost":
        message = charge.reached() if charge is not None else "Cost cap reached"
        return _killed(Outcome.COST_CAP, "CostCap", message, evidence)
    if transcript.stop == "output" or (ending is not None and ending.reason == "output"):
        message = f"More than {limits.output_bytes} bytes of output"
        return _killed(Outcome.OUTPUT_LIMIT, "OutputLimit", message, evidence)
    killed = ending is None or ending.signal == signal.SIGKILL
    if killed and (kernel.oom_kills or kernel.watch_kills):
        message = f"Memory Limit Exceeded ({limits.memory_bytes} bytes; limits.memory_bytes, --memory)"
        return _killed(Outcome.MEMORY, "MemoryLimitExceeded", message, evidence)
    if ending is None and kernel.sentry_pids_refused:
        message = f"More processes and threads than gVisor could start for {limits.pids} (limits.pids)"
        return _killed(Outcome.PIDS, "ProcessLimit", message, evidence)
    if ending is None:
        return _fault(f"the sandbox ended without a report (exit code {kernel.exit_code})", evidence)
    if ending.code is not None:
        return _exited(ending.code, transcript, kernel, limits, evidence)
    return _signalled(ending, limits, evidence)


def _exited(
    code: int, transcript: Transcript, kernel: Evidence, limits: ResolvedLimits, evidence: EvidenceFields
) -> RunOutcome:
    if code == 0:
        return RunOutcome(Outcome.OK, 0, evidence=evidence)
    if (proof := _refused_a_process(transcript, kernel)) is not None:
        message = f"A process was refused at the limit of {limits.pids} (limits.pids)"
        error = transcript.raised or JobError(type="ProcessLimit", message=message)
        return RunOutcome(Outcome.PIDS, code, error=error, evidence={**evidence, **proof})
    if transcript.ending is not None and transcript.ending.full is not None:
        error = transcript.raised or _disk_error(transcript.ending.full)
        return RunOutcome(Outcome.DISK, code, error=error, evidence=_with_disk(evidence, transcript.ending))
    if transcript.raised is not None and _says_no_room(transcript.raised):
        proof = {"disk_refused_by": "tmpfs, says the job"}
        return RunOutcome(Outcome.DISK, code, error=transcript.raised, evidence={**evidence, **proof})
    error = transcript.raised or JobError(type="Exit", message=f"Exited with code {code}")
    return RunOutcome(Outcome.EXIT, code, error=error, evidence=evidence)


def _refused_a_process(transcript: Transcript, kernel: Evidence) -> EvidenceFields | None:
    """What shows that the job was refused a process or a thread; None if nothing does.

    If the kernel cannot count the job's processes, the guest looks at the job's end. Threads are gone by
    then, and in a series all else: for them the job is believed, as it can only name its own failure more or
    less exactly.
    """
    if kernel.pids_refused is not None:
        return {} if kernel.pids_refused else None
    if transcript.ending is not None and transcript.ending.crowded:
        return {"processes_refused_by": "rlimit"}
    if transcript.raised is not None and _says_no_process(transcript.raised):
        return {"processes_refused_by": "rlimit, says the job"}
    return None


def _says_no_process(raised: JobError) -> bool:
    kind, words = _NO_PROCESS
    if raised.type == kind and raised.message.startswith(words):
        lines = raised.traceback.splitlines()[-_RAISED_LINES:]
        return _MAKES_A_PROCESS.search("\n".join(lines)) is not None
    return (raised.type, raised.message) == _NO_THREAD


def _says_no_room(raised: JobError) -> bool:
    """Whether the job was refused room that it has given back by its end, as a temporary folder is."""
    return any(raised.type == kind and raised.message.startswith(words) for kind, words in _NO_ROOM)


def _signalled(ending: Ending, limits: ResolvedLimits, evidence: EvidenceFields) -> RunOutcome:
    number, cpu_ms = ending.signal or 0, ending.cpu_ms
    # The kernel sends SIGXCPU at the limit, and SIGKILL a second later to processes that ignore it. Both
    # count only with the CPU time to match: a job can send itself any signal. On a loaded host the signal
    # came at 0.81 of the limit as rusage has it: the timer behind it counts in whole ticks.
    share = cpu_ms / (limits.cpu_s * 1000)
    if (number == signal.SIGXCPU and share >= 0.7) or (number == signal.SIGKILL and share >= 1):
        error = JobError(type="CpuTimeout", message=f"CPU limit of {limits.cpu_s:g} s exceeded")
        return RunOutcome(
            outcome=Outcome.CPU_TIMEOUT,
            exit_code=128 + number,
            signal=number,
            error=error,
            evidence={**evidence, "guest_cpu_ms": cpu_ms},
        )
    if number == signal.SIGSYS:
        error = JobError(type="SystemCallRefused", message="Killed for a system call that no job may make")
        return RunOutcome(
            outcome=Outcome.SYSCALL,
            exit_code=128 + number,
            signal=number,
            error=error,
            evidence={**evidence, "guest_signal": "SIGSYS"},
        )
    if number == signal.SIGBUS and ending.full == "bytes":  # the disk had no page left for a mapped file
        error, evidence = _disk_error(ending.full), _with_disk(evidence, ending)
        return RunOutcome(
            outcome=Outcome.DISK, exit_code=128 + number, signal=number, error=error, evidence=evidence
        )
    name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
    error = JobError(type="Signal", message=f"Killed by {name}")
    return RunOutcome(
        outcome=Outcome.SIGNAL, exit_code=128 + number, signal=number, error=error, evidence=evidence
    )


def _disk_error(full: str) -> JobError:
    message = {
        "bytes": "No bytes were left in the work folder; the operator sets CELLBLOCK_SANDBOX_TMP_BYTES",
        "inodes": "No files were left in the work folder",
    }[full]
    return JobError(type="DiskFull", message=message)


def _with_disk(evidence: EvidenceFields, ending: Ending) -> EvidenceFields:
    return {**evidence, "disk_full_of": ending.full or ""}


def _killed(outcome: Outcome, kind: str, message: str, evidence: EvidenceFields) -> RunOutcome:
    number = int(signal.SIGKILL)
    return RunOutcome(
        outcome=outcome,
        exit_code=128 + number,
        signal=number,
        error=JobError(type=kind, message=message),
        evidence=evidence,
    )


def _fault(what: str, evidence: EvidenceFields) -> RunOutcome:
    error = JobError(type="SandboxError", message=what)
    return RunOutcome(Outcome.SANDBOX_ERROR, error=error, evidence={**evidence, "fault": what})
