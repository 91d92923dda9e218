"""One transient scope for each sandbox: systemd makes the cgroup, the sandbox's processes join it.

A scope is given its first process when it is made, and ends with its last. The first is our placeholder: it
holds the scope open until the sandbox's counters have been read, and ends with the launcher.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from cellblock_workers.launcher.backend import BackendUnavailable, Profile, StartFailed
from cellblock_workers.launcher.cgroup_tree import CgroupFolders
from cellblock_workers.launcher.cgroups import TCP_BYTES, SandboxCgroup
from cellblock_workers.launcher.limits import CPU_PERIOD_US
from cellblock_workers.launcher.systemd import manager

_ROOT = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
_PLACEHOLDER = ("/bin/cat",)  # ends when its standard input does
_PLACEHOLDER_PIDS = 1
_STOP_US = 2_000_000
_WAIT_S = 10.0
_LOOK_S = 0.001


class Scope:
    """One sandbox's scope: its cgroup in each hierarchy, and the placeholder if this launcher made it."""

    def __init__(
        self, name: str, relative: Path, hierarchies: tuple[Path, ...], first: subprocess.Popen[bytes] | None
    ) -> None:
        self.name = name
        self.relative = relative
        self._hierarchies = hierarchies
        self._first = first

    def open_membership(self) -> list[int]:
        """Descriptors: a process that writes 0 to each is in."""
        opened: list[int] = []
        try:
            for folder in self._folders():
                # One thread joins a v1 cgroup through `tasks`: see cgroup_tree.
                file = folder / ("tasks" if (folder / "tasks").exists() else "cgroup.procs")
                opened.append(os.open(file, os.O_WRONLY | os.O_CLOEXEC))
        except OSError:
            for descriptor in opened:
                os.close(descriptor)
            raise
        return opened

    def kill(self) -> None:
        """Kills every process in it."""
        CgroupFolders(tuple(self._folders()), "cgroup.procs").kill()

    def remove(self) -> None:
        """Ends the placeholder, and waits until systemd has removed the empty scope. Raises StartFailed."""
        if self._first is not None:
            self._first.kill()
            self._first.communicate()
        deadline = time.monotonic() + _WAIT_S
        while any(self._folders()):
            if time.monotonic() > deadline:
                raise StartFailed(f"systemd: {self.name} is still there; ask: systemctl status {self.name}")
            time.sleep(_LOOK_S)

    def _folders(self) -> Iterator[Path]:
        for hierarchy in self._hierarchies:
            if (folder := hierarchy / self.relative).is_dir():
                yield folder


class ScopeTree:
    """Makes and finds the scopes of this launcher's sandboxes, in one slice."""

    def __init__(self, slice_name: str, root: Path = _ROOT, proc: Path = _PROC) -> None:
        self._slice = slice_name
        self._root = root
        self._proc = proc
        self._v1 = (root / "memory").is_dir()

    def refusal(self) -> str | None:
        """Why this launcher cannot have scopes on this host, with the remedy; None if it can."""
        if not manager.BOOTED.is_dir():
            return (
                f"systemd: it does not run this host (there is no {manager.BOOTED}); "
                "the isolations runc and namespaces need no systemd"
            )
        if os.geteuid() != 0:
            return "systemd: only root may make system scopes; run the launcher as cellblock-launcher.service"
        if not manager.unit_file(self._slice):
            return (
                f"systemd: {self._slice} has no unit file, so nothing bounds all jobs together; "
                "install config/host/systemd and run: systemctl daemon-reload"
            )
        return None

    def create(self, sandbox_id: str, profile: Profile, extra_pids: int) -> Scope:
        """A scope with this profile's limits; ``extra_pids`` processes are ours.

        Raises :class:`BackendUnavailable`, also if a requested limit is not in force.
        """
        pids = profile.pids + extra_pids + _PLACEHOLDER_PIDS
        first = subprocess.Popen(
            _PLACEHOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
        )
        scope = self._scope(sandbox_id, first)
        try:
            manager.start_scope(scope.name, self._properties(sandbox_id, profile, pids, first.pid))
            self._await(scope, first.pid)
            self._verify(scope, profile, pids)
            self._close_v1_gaps(scope, profile)
        except (BackendUnavailable, OSError) as error:
            with suppress(StartFailed):  # the first failure is the one to tell
                scope.remove()
            if isinstance(error, OSError):
                raise StartFailed(f"systemd: {scope.name} could not be limited: {error}") from error
            raise
        return scope

    def find(self, sandbox_id: str) -> Scope:
        """The scope of a sandbox, whether it exists or not."""
        return self._scope(sandbox_id, None)

    def _scope(self, sandbox_id: str, first: subprocess.Popen[bytes] | None) -> Scope:
        name = f"cellblock-{sandbox_id}.scope"
        return Scope(name, self._top().joinpath(*_levels(self._slice), name), self._hierarchies(), first)

    def _top(self) -> Path:
        """The cgroup below which systemd keeps everything: in a container it is not the hierarchy's root."""
        for line in (self._proc / "1" / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in {"name=systemd", ""}:
                return Path(path.removesuffix("/init.scope").lstrip("/"))
        raise StartFailed("systemd: PID 1 is in no cgroup of systemd's")

    def _hierarchies(self) -> tuple[Path, ...]:
        if not self._v1:
            return (self._root,)
        # Some controllers are one hierarchy under several names.
        return tuple(dict.fromkeys(path.resolve() for path in self._root.iterdir() if path.is_dir()))

    def _properties(
        self, sandbox_id: str, profile: Profile, pids: int, first: int
    ) -> tuple[tuple[str, ...], ...]:
        return (
            ("Description", "s", f"cellblock sandbox {sandbox_id}, level {profile.level}"),
            ("Slice", "s", self._slice),
            ("PIDs", "au", "1", str(first)),
            ("MemoryMax", "t", str(profile.memory_bytes)),
            ("MemorySwapMax", "t", "0"),
            ("TasksMax", "t", str(pids)),
            ("CPUQuotaPerSecUSec", "t", str(round(profile.cpus * 1_000_000))),
            ("CPUQuotaPeriodUSec", "t", str(CPU_PERIOD_US)),
            # We manage its processes: otherwise systemd ends a scope after the kernel's first kill for memory
            # (OOMPolicy=stop), and with it the counter that says so.
            ("Delegate", "b", "true"),
            ("CollectMode", "s", "inactive-or-failed"),  # nothing of a failed one stays listed
            ("TimeoutStopUSec", "t", str(_STOP_US)),  # a guest is deaf to TERM
        )

    def _await(self, scope: Scope, pid: int) -> None:
        """Waits until the placeholder is where the limits are. systemd answers before it has moved it."""
        deadline = time.monotonic() + _WAIT_S
        wanted = {"memory", "pids", "cpu"} if self._v1 else {""}
        while True:
            lines = (self._proc / str(pid) / "cgroup").read_text().splitlines()
            places = (line.split(":", 2) for line in lines)
            there = {
                one
                for _, controllers, path in places
                if path == f"/{scope.relative}"
                for one in controllers.split(",")
            }
            if wanted <= there:
                return
            if time.monotonic() > deadline:
                missing = ", ".join(sorted(wanted - there)) or "unified"
                raise StartFailed(
                    f"systemd: {scope.name} has no cgroup in the hierarchy {missing}; "
                    "it needs the controllers memory, pids and cpu"
                )
            time.sleep(_LOOK_S)

    def _close_v1_gaps(self, scope: Scope, profile: Profile) -> None:
        """Sets what systemd cannot set with v1 cgroups: swap (it ignores MemorySwapMax there) and sockets."""
        if not self._v1:
            return
        folder = self._root / "memory" / scope.relative
        (folder / "memory.swappiness").write_text("0")
        (folder / "memory.kmem.tcp.limit_in_bytes").write_text(str(TCP_BYTES))
        if (limit := folder / "memory.memsw.limit_in_bytes").exists():
            limit.write_text(str(profile.memory_bytes))

    def _verify(self, scope: Scope, profile: Profile, pids: int) -> None:
        """Asks the kernel for each limit, because systemd skips one that it cannot set, and only logs
        that."""
        cgroup = SandboxCgroup((scope.relative,), self._root)
        memory_bytes, processes = cgroup.memory_limit_bytes(), cgroup.pids_limit()
        missing = [
            name
            for name, is_there in (
                ("MemoryMax", memory_bytes is not None and memory_bytes <= profile.memory_bytes),
                ("MemorySwapMax", self._has_no_swap(scope.relative)),
                ("TasksMax", processes == pids),
                ("CPUQuota", self._has_quota(scope.relative)),
            )
            if not is_there
        ]
        if missing:
            raise StartFailed(
                f"systemd: {', '.join(missing)} of {scope.name} is not in force; "
                "it needs the controllers memory, pids and cpu"
            )

    def _has_no_swap(self, relative: Path) -> bool:
        limit = self._root / relative / "memory.swap.max"  # v1: _close_v1_gaps
        return not limit.exists() or limit.read_text().strip() == "0"

    def _has_quota(self, relative: Path) -> bool:
        if not self._v1:
            return not (self._root / relative / "cpu.max").read_text().startswith("max")
        # A v1 cgroup cannot be given more than its parent has: then the parent's is the limit.
        folders = (self._root / "cpu" / path for path in (relative, relative.parent))
        return any(int((folder / "cpu.cfs_quota_us").read_text()) > 0 for folder in folders)


def _levels(slice_name: str) -> list[str]:
    """The slices that contain a slice, and the slice itself: every dash of its name is a level."""
    words = slice_name.removesuffix(".slice").split("-")
    return ["-".join(words[: number + 1]) + ".slice" for number in range(len(words))]
