"""Makes a cgroup for each sandbox, v1 and v2: memory without swap, processes, CPU time."""

from __future__ import annotations

import errno
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cellblock_workers.launcher.backend import Profile, StartFailed
from cellblock_workers.launcher.cgroups import TCP_BYTES
from cellblock_workers.launcher.limits import CPU_PERIOD_US
from cellblock_workers.log import get_logger

_log = get_logger(__name__)

#: The folder below each controller's root; it holds one folder for each sandbox's id.
PARENT = Path("cellblock")
_ROOT = Path("/sys/fs/cgroup")
_CONTROLLERS_V1 = ("memory", "pids", "cpu", "cpuacct")
_CONTROLLERS_V2 = ("memory", "pids", "cpu")
_PID_MAX = Path("/proc/sys/kernel/pid_max")
_GONE_S = 10.0


class Cgroup(Protocol):
    """One sandbox's cgroup, in every way of making one."""

    @property
    def relative(self) -> Path:
        """Where it is below each controller's root."""
        ...

    def open_membership(self) -> list[int]:
        """Descriptors: a process that writes 0 to each is in."""
        ...

    def kill(self) -> None:
        """Kills every process in it."""
        ...

    def remove(self) -> None:
        """Removes it once its last process is gone. Idempotent. Raises :class:`StartFailed`."""
        ...


class Cgroups(Protocol):
    """A way of getting cgroups for sandboxes."""

    def refusal(self) -> str | None:
        """Why no cgroup can be made here, with the control and the remedy; None if one can."""
        ...

    def create(self, sandbox_id: str, profile: Profile, extra_pids: int) -> Cgroup:
        """Makes a cgroup with this profile's limits in force. Raises :class:`BackendUnavailable`."""
        ...

    def find(self, sandbox_id: str) -> Cgroup:
        """The cgroup of a sandbox, whether it exists or not."""
        ...


@dataclass(frozen=True, slots=True)
class CgroupFolders:
    """One sandbox's cgroup, in each hierarchy that has a part of it."""

    folders: tuple[Path, ...]
    membership: str

    @property
    def relative(self) -> Path:
        """Where it is below each controller's root."""
        return PARENT / self.folders[0].name

    def open_membership(self) -> list[int]:
        """Descriptors: a process that writes 0 to each is in."""
        opened: list[int] = []
        try:
            for folder in self.folders:
                opened.append(os.open(folder / self.membership, os.O_WRONLY | os.O_CLOEXEC))
        except OSError:
            for descriptor in opened:
                os.close(descriptor)
            raise
        return opened

    def kill(self) -> None:
        """Kills every process in it."""
        for folder in self.folders:
            try:
                members = (folder / "cgroup.procs").read_text().split()
            except FileNotFoundError:
                continue
            for pid in members:
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    continue

    def remove(self) -> None:
        """Removes it once its last process is gone. Raises :class:`StartFailed` if that takes too long."""
        deadline = time.monotonic() + _GONE_S
        for folder in self.folders:
            while True:
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError as error:
                    if error.errno != errno.EBUSY or time.monotonic() > deadline:
                        raise StartFailed(f"cgroups: {folder} cannot be removed: {error}") from error
                    time.sleep(0.002)
                else:
                    break


def all_pids() -> int:
    """How many process ids all sandboxes together may hold: three quarters, the host keeps the rest.

    A sandbox of gVisor may have some 3,000 threads, and a host has 32,768 ids or more.
    """
    return int(_PID_MAX.read_text()) * 3 // 4


class CgroupTree:
    """Makes and finds the cgroups of this launcher's sandboxes."""

    def __init__(self, root: Path = _ROOT) -> None:
        self._root = root
        self._v1 = (root / "memory").is_dir()
        self._prepared = False
        # Some controllers are one hierarchy under two names.
        parts = [(root / one).resolve() for one in _CONTROLLERS_V1] if self._v1 else [root]
        self._parents = tuple(dict.fromkeys(part / PARENT for part in parts))

    def refusal(self) -> str | None:
        """Why no cgroup can be made here, with the control and the remedy; None if one can."""
        try:
            self._prepare()
        except OSError as error:
            return (
                f"cgroups: {error.filename or self._root} cannot be written ({error.strerror}); "
                "run the launcher as root"
            )
        return None

    def create(self, sandbox_id: str, profile: Profile, extra_pids: int) -> CgroupFolders:
        """A cgroup with this profile's limits; ``extra_pids`` processes are ours. Raises StartFailed."""
        group = self.find(sandbox_id)
        try:
            self._prepare()
            for folder in group.folders:
                folder.mkdir(exist_ok=True)
            for name, value in self._limits(profile, extra_pids):
                self._write(sandbox_id, name, value)
        except OSError as error:
            with suppress(StartFailed):  # the sweep removes what is left
                group.remove()
            raise StartFailed(
                f"cgroups: {error.filename} cannot be set for {sandbox_id}: {error.strerror}; "
                "the controllers memory, pids and cpu have to be available to the launcher"
            ) from error
        return group

    def find(self, sandbox_id: str) -> CgroupFolders:
        """The cgroup of a sandbox, whether it exists or not."""
        # One thread joins through `tasks`: unlike `cgroup.procs` that does not wait for every processor of
        # the host (0.1 ms against 5).
        folders = tuple(parent / sandbox_id for parent in self._parents)
        return CgroupFolders(folders, "tasks" if self._v1 else "cgroup.procs")

    def _prepare(self) -> None:
        if self._prepared:
            return
        if self._v1:
            for controller in _CONTROLLERS_V1:
                folder = self._parent(controller)
                folder.mkdir(exist_ok=True)
                if not os.access(folder, os.W_OK):
                    raise PermissionError(errno.EACCES, "no permission", str(folder))
        else:
            wanted = " ".join(f"+{one}" for one in _CONTROLLERS_V2)
            parent = self._root / PARENT
            (self._root / "cgroup.subtree_control").write_text(wanted)
            parent.mkdir(exist_ok=True)
            (parent / "cgroup.subtree_control").write_text(wanted)
        self._bound_all()
        self._prepared = True

    def _bound_all(self) -> None:
        file = self._parent("pids") / "pids.max"
        try:
            file.write_text(str(all_pids()))
        except OSError as error:  # each sandbox still has its own bound
            _log.warning("process_ids_of_all_not_bounded", file=str(file), reason=error.strerror)

    def _parent(self, controller: str) -> Path:
        return self._root / (controller if self._v1 else "") / PARENT

    def _limits(self, profile: Profile, extra_pids: int) -> list[tuple[str, str]]:
        memory, pids = str(profile.memory_bytes), str(profile.pids + extra_pids)
        quota_us = max(1000, round(profile.cpus * CPU_PERIOD_US))
        if not self._v1:
            return [
                ("memory.max", memory),
                *([("memory.swap.max", "0")] if self._counts_swap() else []),
                ("pids.max", pids),
                ("cpu.max", f"{quota_us} {CPU_PERIOD_US}"),
            ]
        return [
            ("memory.limit_in_bytes", memory),
            # Without its file swap is not accounted: fine where there is no swap, else refused below.
            *([("memory.memsw.limit_in_bytes", memory)] if self._counts_swap() else []),
            ("memory.swappiness", "0"),
            ("memory.kmem.tcp.limit_in_bytes", str(TCP_BYTES)),
            ("pids.max", pids),
            ("cpu.cfs_period_us", str(CPU_PERIOD_US)),
            ("cpu.cfs_quota_us", str(quota_us)),
        ]

    def _counts_swap(self) -> bool:
        """Whether the kernel accounts swap by cgroup, or has to because there is swap."""
        name = "memory/memory.memsw.limit_in_bytes" if self._v1 else f"{PARENT}/memory.swap.max"
        swaps = Path("/proc/swaps").read_text().splitlines()
        return (self._root / name).exists() or len(swaps) > 1

    def _write(self, sandbox_id: str, name: str, value: str) -> None:
        controller = name.partition(".")[0] if self._v1 else ""
        path = f"{self._root}/{controller}/{PARENT}/{sandbox_id}/{name}"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.write(file, value.encode())
        except OSError as error:
            error.filename = path
            raise
        finally:
            os.close(file)
