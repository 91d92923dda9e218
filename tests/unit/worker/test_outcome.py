"""The verdict: every outcome from its own evidence, and the order in which evidence counts."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from cellblock import JobError, Outcome
from cellblock.admission.costs import Charge
from cellblock.admission.resolve import ResolvedLimits
from cellblock.egress import Governed
from cellblock_config.prices import Rates
from cellblock_workers.launcher.evidence import Evidence
from cellblock_workers.worker.outcome import RunOutcome, decide_outcome
from cellblock_workers.worker.session import Ending, Transcript

LIMITS = ResolvedLimits(timeout_s=5, cpu_s=2, memory_bytes=2**28, cpus=1, pids=50, output_bytes=4096)
RAISED = JobError(type="ValueError", message="no", traceback="Traceback")
NO_THREAD = JobError(type="RuntimeError", message="can't start new thread", traceback="Traceback")
NO_FORK = JobError(
    type="BlockingIOError",
    message="[Errno 11] Resource temporarily unavailable",
    traceback="Traceback (most recent call last):\n"
    '  File "/tmp/sandbox/main.py", line 3, in <module>\n    child = os.fork()\n            ^^^^^^^^^\n'
    "BlockingIOError: [Errno 11] Resource temporarily unavailable\n",
)
NO_SPAWN = NO_FORK.model_copy(update={"traceback": NO_FORK.traceback.replace("os.fork()", "_fork_exec(")})
NO_READ = NO_FORK.model_copy(update={"traceback": NO_FORK.traceback.replace("os.fork()", "pipe.read(5)")})
NO_ROOM = JobError(type="OSError", message="[Errno 28] No space left on device: '/tmp/x/y'")
NO_ROW = JobError(type="OperationalError", message="database or disk is full")
KILLED = int(signal.SIGKILL)


def ended(
    code: int | None = None,
    *,
    by: int | None = None,
    reason: Any = None,
    full: Any = None,
    crowded: bool = False,
    cpu_ms: int = 10,
) -> Ending:
    """The guest's report: an exit code, or the signal that killed the job."""
    said = {"code": code, "signal": by, "reason": reason, "full": full, "crowded": crowded}
    return Ending(**said, cpu_ms=cpu_ms, peak_bytes=2**23, wall_ms=20)


def verdict(ending: Ending | None = None, kernel: dict[str, Any] | None = None, **said: Any) -> RunOutcome:
    conversation = Transcript(Governed("", 0), Governed("", 0), 0, 20, ending=ending, **said)
    return decide_outcome(conversation, Evidence(**(kernel or {})), LIMITS)


CASES: dict[str, tuple[RunOutcome, Outcome, int | None, int | None]] = {
    "a clean exit": (verdict(ended(0)), Outcome.OK, 0, None),
    "an exit code": (verdict(ended(3)), Outcome.EXIT, 3, None),
    "an exception": (verdict(ended(1), raised=RAISED), Outcome.EXIT, 1, None),
    "a segmentation fault": (verdict(ended(by=signal.SIGSEGV)), Outcome.SIGNAL, 139, 11),
    "a SIGKILL of the job's own": (verdict(ended(by=KILLED)), Outcome.SIGNAL, 137, 9),
    "a real-time signal without a name": (verdict(ended(by=40)), Outcome.SIGNAL, 168, 40),
    "the guest's clock": (verdict(ended(by=KILLED, reason="wall")), Outcome.WALL_TIMEOUT, 137, 9),
    "the host's clock": (verdict(stop="deadline"), Outcome.WALL_TIMEOUT, 137, 9),
    "SIGXCPU": (verdict(ended(by=signal.SIGXCPU, cpu_ms=1990)), Outcome.CPU_TIMEOUT, 152, 24),
    "SIGXCPU under load": (verdict(ended(by=signal.SIGXCPU, cpu_ms=1620)), Outcome.CPU_TIMEOUT, 152, 24),
    "SIGKILL after the CPU limit": (verdict(ended(by=KILLED, cpu_ms=2000)), Outcome.CPU_TIMEOUT, 137, 9),
    "the guest's output limit": (verdict(ended(by=KILLED, reason="output")), Outcome.OUTPUT_LIMIT, 137, 9),
    "the host's output limit": (verdict(stop="output"), Outcome.OUTPUT_LIMIT, 137, 9),
    "the job killed for memory": (verdict(ended(by=KILLED), {"oom_kills": 1}), Outcome.MEMORY, 137, 9),
    "the sandbox killed for memory": (
        verdict(None, {"oom_kills": 1, "exit_code": 137}),
        Outcome.MEMORY,
        137,
        9,
    ),
    "a failure where no process more could start": (verdict(ended(1, crowded=True)), Outcome.PIDS, 1, None),
    "a refused thread where only the job can tell": (
        verdict(ended(1), raised=NO_THREAD),
        Outcome.PIDS,
        1,
        None,
    ),
    "a refused fork where only the job can tell": (
        verdict(ended(1), raised=NO_FORK),
        Outcome.PIDS,
        1,
        None,
    ),
    "a refused child where only the job can tell": (
        verdict(ended(1), raised=NO_SPAWN),
        Outcome.PIDS,
        1,
        None,
    ),
    "a fork that the kernel did not refuse": (
        verdict(ended(1), {"pids_refused": 0}, raised=NO_FORK),
        Outcome.EXIT,
        1,
        None,
    ),
    "a pipe that had nothing to read": (verdict(ended(1), raised=NO_READ), Outcome.EXIT, 1, None),
    "a file for which the job found no room": (verdict(ended(1), raised=NO_ROOM), Outcome.DISK, 1, None),
    "a row for which the job found no room": (verdict(ended(1), raised=NO_ROW), Outcome.DISK, 1, None),
    "a thread that the kernel did not refuse": (
        verdict(ended(1), {"pids_refused": 0}, raised=NO_THREAD),
        Outcome.EXIT,
        1,
        None,
    ),
    "a failure after a refused process": (verdict(ended(1), {"pids_refused": 4}), Outcome.PIDS, 1, None),
    "a sentry that ended for want of threads at its job's limit": (
        verdict(None, {"exit_code": 2, "sentry_pids_refused": 3}),
        Outcome.PIDS,
        137,
        9,
    ),
    "a sentry that ended below its job's limit": (
        verdict(None, {"exit_code": 2, "sentry_pids_refused": 0}),
        Outcome.SANDBOX_ERROR,
        None,
        None,
    ),
    "a failure with no byte left": (verdict(ended(1, full="bytes")), Outcome.DISK, 1, None),
    "a failure with no file left": (verdict(ended(3, full="inodes")), Outcome.DISK, 3, None),
    "a mapped page with no byte left": (verdict(ended(by=signal.SIGBUS, full="bytes")), Outcome.DISK, 135, 7),
    "a system call nobody may make": (verdict(ended(by=signal.SIGSYS)), Outcome.SYSCALL, 159, 31),
    "a job at its cost cap": (verdict(stop="cost"), Outcome.COST_CAP, 137, 9),
    "a cancellation": (verdict(stop="cancel"), Outcome.CANCELLED, 137, 9),
    "a protocol violation": (verdict(fault="frame of unknown kind"), Outcome.SANDBOX_ERROR, None, None),
    "a sandbox gone without a word": (verdict(None, {"exit_code": 1}), Outcome.SANDBOX_ERROR, None, None),
}


@pytest.mark.parametrize(("given", "outcome", "code", "number"), CASES.values(), ids=CASES)
def test_every_end_has_its_one_outcome(
    given: RunOutcome, outcome: Outcome, code: int | None, number: int | None
) -> None:
    assert (given.outcome, given.exit_code, given.signal) == (outcome, code, number)
    assert (given.error is None) is (outcome is Outcome.OK), "whatever is not ok says why"


def test_the_table_covers_every_outcome_that_evidence_can_show() -> None:
    elsewhere = {Outcome.WORKER_LOST, Outcome.REJECTED, Outcome.LEAK_BLOCKED}
    assert {case[1] for case in CASES.values()} == set(Outcome) - elsewhere


PRECEDENCE: dict[str, tuple[RunOutcome, Outcome]] = {
    "cancel over a clean exit": (verdict(ended(0), stop="cancel"), Outcome.CANCELLED),
    "cancel over memory": (verdict(ended(by=KILLED), {"oom_kills": 1}, stop="cancel"), Outcome.CANCELLED),
    "cancel over a fault": (verdict(stop="cancel", fault="bad frame"), Outcome.CANCELLED),
    "a fault over memory": (verdict(None, {"oom_kills": 1}, fault="bad frame"), Outcome.SANDBOX_ERROR),
    "the deadline over memory": (verdict(None, {"oom_kills": 1}, stop="deadline"), Outcome.WALL_TIMEOUT),
    "memory over a signal": (verdict(ended(by=KILLED), {"oom_kills": 1}), Outcome.MEMORY),
    "memory over the CPU limit": (verdict(ended(by=KILLED, cpu_ms=9000), {"oom_kills": 1}), Outcome.MEMORY),
    "memory over a lost report": (verdict(None, {"oom_kills": 2}), Outcome.MEMORY),
    "a crash is not memory though a child was": (
        verdict(ended(by=signal.SIGSEGV), {"oom_kills": 1}),
        Outcome.SIGNAL,
    ),
    "a refused process over a full disk": (
        verdict(ended(1, full="bytes"), {"pids_refused": 1}),
        Outcome.PIDS,
    ),
    "memory over a full disk": (verdict(ended(by=KILLED, full="bytes"), {"oom_kills": 1}), Outcome.MEMORY),
    "a crash is not the disk though it is full": (
        verdict(ended(by=signal.SIGSEGV, full="bytes")),
        Outcome.SIGNAL,
    ),
    "an exit is the job's own though a child was killed": (verdict(ended(1), {"oom_kills": 1}), Outcome.EXIT),
}


@pytest.mark.parametrize(("given", "outcome"), PRECEDENCE.values(), ids=PRECEDENCE)
def test_the_stronger_evidence_names_the_cause(given: RunOutcome, outcome: Outcome) -> None:
    assert given.outcome is outcome


@pytest.mark.parametrize(
    "kernel", [{"oom_kills": 3}, {"pids_refused": 50}, {"oom_kills": 1, "pids_refused": 1}]
)
def test_a_job_that_ends_well_is_ok_whatever_its_children_met(kernel: dict[str, int]) -> None:
    given = verdict(ended(0), kernel)
    assert (given.outcome, given.exit_code, given.error) == (Outcome.OK, 0, None)
    assert given.evidence == kernel, "what the kernel saw is still told"


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [(ended(137), Outcome.EXIT), (ended(by=KILLED), Outcome.SIGNAL), (None, Outcome.SANDBOX_ERROR)],
)
@pytest.mark.parametrize("kernel", [{"exit_code": 137}, {"exit_code": 137, "oom_kills": 0}])
def test_137_alone_is_never_memory(ending: Ending | None, outcome: Outcome, kernel: dict[str, int]) -> None:
    assert verdict(ending, kernel).outcome is outcome


def test_a_kill_just_under_the_cpu_limit_is_a_signal() -> None:
    assert verdict(ended(by=KILLED, cpu_ms=1999)).outcome is Outcome.SIGNAL


def test_a_job_that_sends_itself_the_cpu_signal_has_not_reached_the_limit() -> None:
    assert verdict(ended(by=signal.SIGXCPU, cpu_ms=10)).outcome is Outcome.SIGNAL


def test_what_the_code_raised_is_the_error() -> None:
    assert verdict(ended(1), raised=RAISED).error == RAISED
    assert verdict(ended(1), {"pids_refused": 1}, raised=RAISED).error == RAISED


def test_what_the_code_claims_to_have_raised_changes_no_outcome() -> None:
    given = verdict(ended(0), raised=JobError(type="MemoryLimitExceeded", message="forged"))
    assert (given.outcome, given.error) == (Outcome.OK, None)


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        (verdict(stop="deadline"), ("5 s",)),
        (verdict(stop="output"), ("4096 bytes",)),
        (verdict(ended(by=signal.SIGXCPU, cpu_ms=2000)), ("2 s",)),
        (verdict(None, {"oom_kills": 1}), ("Memory Limit Exceeded", str(2**28))),
        (verdict(ended(by=signal.SIGSEGV)), ("SIGSEGV",)),
        (verdict(ended(7)), ("code 7",)),
        (verdict(ended(1, full="inodes")), ("No files were left",)),
        (verdict(ended(by=signal.SIGSYS)), ("system call",)),
    ],
)
def test_the_message_names_the_limit_or_the_cause(given: RunOutcome, parts: tuple[str, ...]) -> None:
    assert given.error is not None
    for part in parts:
        assert part in given.error.message


def test_the_evidence_says_who_stopped_the_job() -> None:
    assert verdict(stop="deadline").evidence["stopped_by"] == "host"
    assert verdict(ended(by=KILLED, reason="wall")).evidence["stopped_by"] == "guest"
    assert verdict(ended(1, full="inodes")).evidence == {"disk_full_of": "inodes"}
    assert verdict(ended(1), raised=NO_ROOM).evidence == {"disk_refused_by": "tmpfs, says the job"}
    assert verdict(ended(1), raised=NO_FORK).evidence == {"processes_refused_by": "rlimit, says the job"}
    assert verdict(ended(by=signal.SIGSYS)).evidence == {"guest_signal": "SIGSYS"}
    assert verdict(None, {"oom_kills": 2, "exit_code": 137}).evidence == {
        "oom_kills": 2,
        "sandbox_exit_code": 137,
    }
    assert verdict(fault="frame of unknown kind").evidence["fault"] == "frame of unknown kind"


def test_cost_cap_says_which_cap_and_how_much() -> None:
    charge = Charge(
        rates=Rates(per_run=1, per_cpu_second=1, per_gib_second=1, percent=100),
        cap_micros=20_000,
        cap="cost_per_run",
    )
    transcript = Transcript(Governed("", 0), Governed("", 0), 0, 20, ending=None, stop="cost")
    stopped = decide_outcome(transcript, Evidence(), LIMITS, charge)
    assert stopped.error is not None
    assert "20000 micros (cost_per_run)" in stopped.error.message
