"""One forked sandbox, as the launcher holds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cellblock_workers.launcher.base_sandbox import BaseSandbox
from cellblock_workers.launcher.cgroup_tree import Cgroup
from cellblock_workers.launcher.cgroups import SandboxCgroup
from cellblock_workers.launcher.evidence import Evidence
from cellblock_workers.launcher.limits import START_CPUS
from cellblock_workers.launcher.memory_watch import MemoryWatch, Watched
from cellblock_workers.launcher.namespaces.fork_server import ForkedGuest

_LAST_WORD_S = 3.0


@dataclass(slots=True, eq=False, kw_only=True)
class ForkedSandbox(BaseSandbox):
    """A guest in namespaces of its own. ``group`` is None if the host has no cgroup for it."""

    child: ForkedGuest
    seat: int
    group: Cgroup | None
    watched: Watched | None
    discard: Callable[[ForkedSandbox], None]
    _cgroup: SandboxCgroup = field(init=False)
    _destroyed: bool = field(init=False, default=False)
    _pids_most: int | None = field(init=False)

    def __post_init__(self) -> None:
        self._cgroup = SandboxCgroup((self.group.relative,) if self.group else ())
        self._pids_most = self._cgroup.pids_limit() if self.group else None

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
        """The cgroup's counters, or without one the watch's, and how PID 1 ended if it has."""
        child = self.child
        if ended:
            child.ended.wait(_LAST_WORD_S)
        if child.lost and (lost := child.refusal()) is not None:
            raise lost
        if self.watched is not None:
            MemoryWatch.look(self.watched)
        return Evidence(
            running=not child.ended.is_set(),
            exit_code=None if child.status is None else _shell_code(child.status),
            oom_kills=None if self.watched else self._cgroup.oom_kills(),
            watch_kills=self.watched.kills if self.watched else None,
            pids_refused=None if self.watched else self._cgroup.pids_refused(),
            peak_memory_bytes=self.watched.peak_bytes if self.watched else self._cgroup.peak_memory_bytes(),
            cpu_ms=self._job_cpu_ms(),
        )

    def destroy(self) -> None:
        """Kills and removes it. Idempotent."""
        if not self._destroyed:
            self._destroyed = True
            # Many processes that each free much memory would take minutes at a small share.
            self._cgroup.limit_cpus(max(self.profile.cpus, START_CPUS))
            self.discard(self)

    def _total_cpu_ms(self) -> int | None:
        return self.watched.cpu_ms if self.watched else self._cgroup.cpu_ms()


def _shell_code(status: int) -> int:
    """A wait status as a shell shows it: 128 plus the number of a signal that killed."""
    return 128 + (status & 0x7F) if status & 0x7F else status >> 8
