"""A sandbox made by an OCI runtime, while it lives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cellblock_workers.launcher.backend import StartFailed
from cellblock_workers.launcher.base_sandbox import BaseSandbox
from cellblock_workers.launcher.cgroup_tree import PARENT
from cellblock_workers.launcher.cgroups import SandboxCgroup
from cellblock_workers.launcher.evidence import Evidence
from cellblock_workers.launcher.limits import START_CPUS
from cellblock_workers.launcher.oci.children import Family

_LAST_WORD_S = 3.0


@dataclass(slots=True, eq=False, kw_only=True)
class OciSandbox(BaseSandbox):
    """One container with its guest. Its cgroup belongs to the launcher and stays until :meth:`destroy`."""

    family: Family
    discard: Callable[[OciSandbox], None]
    _cgroup: SandboxCgroup = field(init=False)
    _destroyed: bool = field(init=False, default=False)
    _pids_most: int | None = field(init=False)

    def __post_init__(self) -> None:
        self._cgroup = SandboxCgroup((Path(PARENT) / self.id,))
        self._pids_most = self._cgroup.pids_limit()

    def _prepare(self) -> None:
        """Limits it to the job's share of CPU time."""
        if self.profile.cpus < START_CPUS and not self._cgroup.limit_cpus(self.profile.cpus):
            raise StartFailed(
                f"{self.isolation}: CPU time cannot be limited in {PARENT / self.id}; "
                "the launcher needs the cpu controller below /sys/fs/cgroup, writable"
            )

    def _total_cpu_ms(self) -> int | None:
        return self._cgroup.cpu_ms()

    def give_way(self, after_cpu_ms: int) -> bool:
        """Lowers its cgroup's weight."""
        return self._cgroup.yield_cpu(self._cpu_ms_before + after_cpu_ms)

    def pids_most(self) -> int | None:
        """Its own limit of processes and threads on this host."""
        return self._pids_most

    def limit_pids(self, most: int) -> None:
        """Lowers that limit, or raises it again."""
        self._cgroup.limit_pids(most)

    def evidence(self, *, ended: bool) -> Evidence:
        """The kernel's counters, which outlive the processes, and how the first of them ended."""
        first = self.family.first
        over = first.ended(_LAST_WORD_S if ended else 0)
        in_sentry = self.isolation == "gvisor"  # its threads are not the job's
        return Evidence(
            running=not over,
            exit_code=first.exit_code() if over else None,
            oom_kills=self._cgroup.oom_kills(),
            pids_refused=None if in_sentry else self._cgroup.pids_refused(),
            sentry_pids_refused=self._sentry_pids_refused() if in_sentry and over else None,
            peak_memory_bytes=self._cgroup.peak_memory_bytes(),
            cpu_ms=self._job_cpu_ms(),
        )

    def _sentry_pids_refused(self) -> int | None:
        return self._cgroup.pids_refused_at_limit() or None

    def destroy(self) -> None:
        """Kills it and removes everything that it left. Idempotent."""
        if self._destroyed:
            return
        self.stream.close()
        self._cgroup.limit_cpus(max(self.profile.cpus, START_CPUS))  # else it may take minutes to die
        self.discard(self)
        self._destroyed = True
