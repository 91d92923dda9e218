"""A sandbox made by an OCI runtime, while it lives."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cellblock_config import Isolation
from cellblock_workers.launcher.backend import Framing, Profile, StartFailed
from cellblock_workers.launcher.cgroup_tree import PARENT
from cellblock_workers.launcher.cgroups import SandboxCgroup
from cellblock_workers.launcher.evidence import Evidence
from cellblock_workers.launcher.limits import START_CPUS
from cellblock_workers.launcher.oci.children import Family

_LAST_WORD_S = 3.0


class SandboxMaker(Protocol):
    """What a sandbox needs of the backend that made it."""

    isolation: Isolation
    name: str

    def discard(self, sandbox: OciSandbox) -> None:
        """Kill it and remove whatever it left."""
        ...


@dataclass(slots=True, eq=False)
class OciSandbox:
    """One container with its guest. Its cgroup is the launcher's and stays until :meth:`destroy`."""

    id: str
    profile: Profile
    owner: SandboxMaker
    stream: socket.socket
    family: Family
    _cgroup: SandboxCgroup = field(init=False)
    _cpu_ms_before: int = field(init=False, default=0)
    _destroyed: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._cgroup = SandboxCgroup((Path(PARENT) / self.id,))

    @property
    def isolation(self) -> str:
        """What separates the job from the host."""
        return self.owner.isolation

    @property
    def backend(self) -> str:
        """How it was made."""
        return self.owner.name

    @property
    def series(self) -> int:
        """A single one."""
        return 0

    @property
    def framing(self) -> Framing:
        """The guest's frames as they are."""
        return "raw"

    def hand_over(self) -> int:
        """Hold it to the job's share of CPU time, and start counting that."""
        if self.profile.cpus < START_CPUS and not self._cgroup.limit_cpus(self.profile.cpus):
            raise StartFailed(
                f"{self.isolation}: CPU time cannot be limited in {PARENT / self.id}; "
                "the launcher needs the cpu controller below /sys/fs/cgroup, writable"
            )
        self._cpu_ms_before = self._cgroup.cpu_ms() or 0
        return self._cpu_ms_before

    def give_way(self, after_cpu_ms: int) -> bool:
        """By its cgroup's weight."""
        return self._cgroup.yield_cpu(self._cpu_ms_before + after_cpu_ms)

    def evidence(self, *, ended: bool) -> Evidence:
        """The kernel's counters, which outlive the processes, and how the first of them ended."""
        first = self.family.first
        over = first.ended(_LAST_WORD_S if ended else 0)
        cpu_ms = self._cgroup.cpu_ms()
        return Evidence(
            running=not over,
            exit_code=first.exit_code() if over else None,
            oom_kills=self._cgroup.oom_kills(),
            pids_refused=None if self.isolation == "gvisor" else self._cgroup.pids_refused(),
            peak_memory_bytes=self._cgroup.peak_memory_bytes(),
            cpu_ms=None if cpu_ms is None else cpu_ms - self._cpu_ms_before,
        )

    def destroy(self) -> None:
        """Kill it and remove whatever it left."""
        if self._destroyed:
            return
        self.stream.close()
        self._cgroup.limit_cpus(max(self.profile.cpus, START_CPUS))  # else it may take minutes to die
        self.owner.discard(self)
        self._destroyed = True
