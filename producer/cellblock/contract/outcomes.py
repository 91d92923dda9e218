"""How a run can end, and what is then known about it. A job and each run within a job use the same words."""

from __future__ import annotations

from enum import StrEnum

from cellblock.contract.base import Contract


class Outcome(StrEnum):
    """One cause for every end, the same word on every isolation."""

    OK = "ok"
    EXIT = "exit"  #: ended by itself with a non-zero exit code
    SIGNAL = "signal"  #: killed by a signal that was not ours
    WALL_TIMEOUT = "wall_timeout"
    CPU_TIMEOUT = "cpu_timeout"
    MEMORY = "memory"  #: the kernel killed it at its memory limit
    PIDS = "pids"  #: failed after the kernel refused it another process
    DISK = "disk"  #: failed with no byte or no file left in its work folder
    OUTPUT_LIMIT = "output_limit"
    COST_CAP = "cost_cap"  #: stopped when it reached its cost cap
    LEAK_BLOCKED = "leak_blocked"  #: it printed or returned its context, so its whole output is withheld
    SYSCALL = "syscall"  #: killed for a system call no honest program makes
    CANCELLED = "cancelled"
    REJECTED = "rejected"  #: a rule forbids it here: it was never run
    WORKER_LOST = "worker_lost"  #: every attempt lost its worker
    SANDBOX_ERROR = "sandbox_error"  #: our fault, not the job's


#: Such a job is a dead letter: kept for an operator, and free. scripts/prelude/constants.lua has the same.
OUR_FAULT = frozenset({Outcome.WORKER_LOST, Outcome.SANDBOX_ERROR})
#: After these a job is never tried again, whatever its ``retries``.
NEVER_RETRIED = frozenset({Outcome.OK, Outcome.CANCELLED, Outcome.REJECTED, Outcome.COST_CAP})

#: The most bytes of an error's summary.
SUMMARY_BYTES = 200


class JobError(Contract):
    """Why a job did not end ``ok``: the exception that its code raised, or the limit that stopped it."""

    type: str
    message: str
    traceback: str = ""

    def summary(self) -> str:
        """The type and the first line of the message, at most ``SUMMARY_BYTES``; controls become "?"."""
        first_line = self.message[:SUMMARY_BYTES].strip().partition("\n")[0]
        text = f"{self.type[:SUMMARY_BYTES]}: {first_line}" if first_line else self.type[:SUMMARY_BYTES]
        printable = "".join(character if character.isprintable() else "?" for character in text)
        return printable.encode()[:SUMMARY_BYTES].decode(errors="ignore")


class Usage(Contract):
    """What the run used, measured by the host's kernel where it can be (``evidence`` says by whom).

    ``filter_cpu_ms``: CPU time that filtering its output took, in a process of the worker's.
    ``start_cpu_ms``: CPU time that starting its sandbox took, where it was started for this job alone
    (unusual limits, a context, a series of trials). Both have the price of the run's own CPU time, and are
    not part of it.
    """

    wall_ms: int = 0
    cpu_ms: int = 0
    peak_memory_bytes: int = 0
    output_bytes: int = 0
    filter_cpu_ms: int = 0
    start_cpu_ms: int = 0

    @property
    def paid_cpu_ms(self) -> int:
        """All CPU time on the job's bill."""
        return self.cpu_ms + self.filter_cpu_ms + self.start_cpu_ms
