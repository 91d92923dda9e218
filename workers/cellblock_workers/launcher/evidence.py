"""What the host knows of a sandbox, carried whole from the kernel's counters to the result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the host's kernel and daemon know of a sandbox; None where they could not be asked."""

    running: bool = False
    exit_code: int | None = None
    oom_kills: int | None = None
    pids_refused: int | None = None  # None also where the kernel sees no process of the job (gVisor)
    #: Threads that were refused to gVisor's kernel at the sandbox's own limit, of which it ended.
    sentry_pids_refused: int | None = None
    peak_memory_bytes: int | None = None
    cpu_ms: int | None = None  # since it was handed over
    #: Kills by the launcher's own watch over memory, where the kernel has no limit.
    watch_kills: int | None = None

    def fields(self) -> dict[str, bool | int | float | str]:
        """The counters that a result shows: those that are not 0."""
        found = {
            "oom_kills": self.oom_kills,
            "watch_kills": self.watch_kills,
            "pids_refused": self.pids_refused,
            "sentry_pids_refused": self.sentry_pids_refused,
            "sandbox_exit_code": self.exit_code,
        }
        return {name: value for name, value in found.items() if value}
