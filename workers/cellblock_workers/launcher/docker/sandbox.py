"""One container with its guest: its share of the processor, the kernel's counters for it, its end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from cellblock_workers.launcher.backend import Framing, StartFailed
from cellblock_workers.launcher.base_sandbox import BaseSandbox
from cellblock_workers.launcher.cgroups import SandboxCgroup, host_oom_kills
from cellblock_workers.launcher.evidence import Evidence
from cellblock_workers.launcher.limits import START_CPUS

_SIGKILLED = 137
_PANICKED = 2  #: the exit code of a Go program that panicked: the sentry


class Daemon(Protocol):
    """What a container's sandbox needs of the daemon, through the backend that made it."""

    def inspect(self, container: str) -> dict[str, Any]:
        """The daemon's State of a container; empty once it is gone."""

    def discard(self, sandbox_id: str, container: str) -> None:
        """Kills and removes a container."""


@dataclass(slots=True, eq=False, kw_only=True)
class DockerSandbox(BaseSandbox):
    """One container with its guest. The daemon puts an eight-byte header before each piece of its output."""

    framing: Framing = "docker"
    daemon: Daemon
    container: str
    starts_fast: bool  #: whether its quota is still to be set when it is handed over
    _cgroup: SandboxCgroup = field(init=False)
    _host_oom_kills_before: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._cgroup = SandboxCgroup(
            (Path("docker") / self.container, Path("system.slice") / f"docker-{self.container}.scope")
        )

    def sees_cgroup(self) -> bool:
        """Whether its cgroup is below /sys/fs/cgroup here: then its limits can be written."""
        return self._cgroup.memory_limit_bytes() is not None

    def bound_sockets(self) -> bool:
        """Bounds the memory of its sockets. Returns whether it is bounded now."""
        return self._cgroup.bound_sockets()

    def _prepare(self) -> None:
        """Limits it to the job's share of CPU time."""
        late = self.starts_fast and self.profile.cpus < START_CPUS
        if late and not self._cgroup.limit_cpus(self.profile.cpus):
            raise StartFailed(
                f"{self.isolation}: CPU time cannot be limited in the cgroup of {self.id}; "
                "the launcher needs the cpu controller below /sys/fs/cgroup, writable"
            )
        self._host_oom_kills_before = host_oom_kills()

    def _total_cpu_ms(self) -> int | None:
        return self._cgroup.cpu_ms()

    def give_way(self, after_cpu_ms: int) -> bool:
        """Lowers its cgroup's weight."""
        return self._cgroup.yield_cpu(self._cpu_ms_before + after_cpu_ms)

    def evidence(self, *, ended: bool) -> Evidence:
        """Reads the cgroup while it exists, and the daemon's state when the sandbox has ended."""
        group = self._cgroup
        oom_kills = group.oom_kills()
        pids_refused = None if self.isolation == "gvisor" else group.pids_refused()
        peak, cpu_ms = group.peak_memory_bytes(), self._job_cpu_ms()
        if cpu_ms is not None and not ended:
            return Evidence(
                running=True,
                oom_kills=oom_kills,
                pids_refused=pids_refused,
                peak_memory_bytes=peak,
                cpu_ms=cpu_ms,
            )
        state = self._final_state() if ended else self.daemon.inspect(self.container)
        # containerd passes on the kernel's notice for the cgroup, but loses it when the exit is faster. If
        # only the kernel can have killed the sandbox, the kernel's count for the whole host then decides. It
        # also decides for a sentry that panicked: it panics when the kernel kills something that it needs.
        sudden = {_SIGKILLED, _PANICKED} if self.isolation == "gvisor" else {_SIGKILLED}
        killed = state.get("ExitCode") in sudden and host_oom_kills() > self._host_oom_kills_before
        if state.get("OOMKilled") or (ended and killed):
            oom_kills = max(oom_kills or 0, 1)
            peak = peak or self.profile.memory_bytes
        return Evidence(
            running=bool(state.get("Running")),
            exit_code=state.get("ExitCode"),
            oom_kills=oom_kills,
            pids_refused=pids_refused,
            peak_memory_bytes=peak,
            cpu_ms=cpu_ms,
        )

    def destroy(self) -> None:
        """Kills and removes the container."""
        self.stream.close()
        # If the launcher cannot write that limit, the container dies at its job's share.
        self._cgroup.limit_cpus(max(self.profile.cpus, START_CPUS))
        self.daemon.discard(self.id, self.container)

    def _final_state(self) -> dict[str, Any]:
        # The stream ends a moment before the daemon has recorded the cause.
        deadline = time.monotonic() + 3.0
        while True:
            state = self.daemon.inspect(self.container)
            if not state.get("Running") or time.monotonic() > deadline:
                return state
            time.sleep(0.02)
