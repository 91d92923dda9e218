"""Reads the counters of a sandbox's own cgroup, v1 and v2: memory, processes and CPU time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from cellblock_workers.launcher.limits import CPU_PERIOD_US

_ROOT = Path("/sys/fs/cgroup")
#: The lowest quota that the kernel takes (kernel/sched/core.c).
_LEAST_QUOTA_US = 1000
#: A cgroup's weight by default, v1 and v2 (kernel/sched/sched.h; Documentation/admin-guide/cgroup-v2.rst).
_DEFAULT_SHARES, _DEFAULT_WEIGHT = 1024, 100
_COUNTER_BYTES = 16 * 1024
#: What the sockets of one sandbox may hold under v1, where its memory limit does not count them (under v2 it
#: does). The sockets can only reach each other; unbounded, they would use up the TCP memory of the whole
#: host.
TCP_BYTES = 16 * 1024 * 1024


class SandboxCgroup:
    """The counters of one sandbox. Every reading is None once the cgroup is gone or was never visible.

    ``relative``: where below each controller's root it may be; the first that exists is read.
    """

    def __init__(self, relative: Sequence[Path], root: Path = _ROOT) -> None:
        self._root = root
        self._relative = tuple(relative)
        self._v1 = (root / "memory").is_dir()

    def oom_kills(self) -> int | None:
        """Processes the kernel killed at the memory limit."""
        return (
            _field(self._read("memory", "memory.oom_control"), "oom_kill")
            if self._v1
            else _field(self._read("", "memory.events"), "oom_kill")
        )

    def pids_refused(self) -> int | None:
        """Forks refused at the process limit."""
        return _field(self._read("pids" if self._v1 else "", "pids.events"), "max")

    def peak_memory_bytes(self) -> int | None:
        """The highest charge of memory so far."""
        text = (
            self._read("memory", "memory.max_usage_in_bytes") if self._v1 else self._read("", "memory.peak")
        )
        return int(text) if text else None

    def memory_limit_bytes(self) -> int | None:
        """The limit on charged memory; None without a limit."""
        text = self._read("memory", "memory.limit_in_bytes") if self._v1 else self._read("", "memory.max")
        return int(text) if text and text.strip().isdigit() else None

    def pids_limit(self) -> int | None:
        """The limit on processes and threads; None without a limit."""
        text = self._read("pids" if self._v1 else "", "pids.max")
        return int(text) if text and text.strip().isdigit() else None

    def pids_refused_at_limit(self) -> int | None:
        """Forks refused as this sandbox itself had all the processes that it may have: kernels before 6.11
        count those that were refused for other sandboxes' too."""
        text = self._read("pids" if self._v1 else "", "pids.peak")  # Linux 6.6
        limit = self.pids_limit()
        if text and limit is not None and int(text) < limit:
            return 0
        return self.pids_refused()

    def limit_pids(self, most: int) -> bool:
        """Limits its processes and threads. Returns False if no limit could be set."""
        return self._write("pids" if self._v1 else "", "pids.max", str(most))

    def cpu_ms(self) -> int | None:
        """CPU time of all processes that ever ran in it, in milliseconds."""
        if self._v1:
            text = self._read("cpuacct", "cpuacct.usage")
            if text:
                return int(text) // 1_000_000
        # Besides v1 a sandbox may have a cgroup in the v2 hierarchy: it counts time, even without
        # controllers.
        used_us = _field(self._read("unified" if self._v1 else "", "cpu.stat"), "usage_usec")
        return used_us // 1000 if used_us is not None else None

    def limit_cpus(self, cpus: float) -> bool:
        """Limits it to the processor time of this many processors. Returns False if no limit could be set."""
        quota = max(_LEAST_QUOTA_US, round(cpus * CPU_PERIOD_US))
        if self._v1:
            return self._write("cpu", "cpu.cfs_quota_us", str(quota))
        return self._write("", "cpu.max", f"{quota} {CPU_PERIOD_US}")

    def yield_cpu(self, after_ms: int) -> bool:
        """Lowers its weight to a third of the others' once it has used ``after_ms``. Returns False until
        then."""
        used_ms = self.cpu_ms()
        if used_ms is not None and used_ms < after_ms:
            return False
        if self._v1:
            self._write("cpu", "cpu.shares", str(_DEFAULT_SHARES // 3))
        else:
            self._write("", "cpu.weight", str(_DEFAULT_WEIGHT // 3))
        return True

    def bound_sockets(self) -> bool:
        """Bounds the memory of sockets where the memory limit does not. Returns False if that is not
        possible.

        Runtimes ignore the setting that they have for it (runc since 1.0).
        """
        if not self._v1:
            return True
        return self._write("memory", "memory.kmem.tcp.limit_in_bytes", str(TCP_BYTES))

    def _write(self, controller: str, name: str, value: str) -> bool:
        for relative in self._relative:
            try:
                (self._root / controller / relative / name).write_text(value)
            except OSError:
                continue
            return True
        return False

    def _read(self, controller: str, name: str) -> str | None:
        for relative in self._relative:
            try:
                file = os.open(f"{self._root}/{controller}/{relative}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                return os.read(file, _COUNTER_BYTES).decode()
            except OSError:
                continue
            finally:
                os.close(file)
        return None


def host_oom_kills(vmstat: Path = Path("/proc/vmstat")) -> int:
    """Processes that the kernel has killed for memory since boot, in all cgroups of this host."""
    return _field(vmstat.read_text(), "oom_kill") or 0


def _field(text: str | None, name: str) -> int | None:
    for line in (text or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return None
