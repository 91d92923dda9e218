"""A sandbox as an OCI bundle: every control of a sandbox made by runc or runsc stands here,
but for the options of runsc itself (``runtime.py``).

tests/sandbox proves each on the running sandbox, tests/attacks tries to pass them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellblock_config import Isolation
from cellblock_workers.launcher.backend import Profile
from cellblock_workers.launcher.contexts import MOUNT_POINT
from cellblock_workers.launcher.etc_files import etc_files, write_etc
from cellblock_workers.launcher.limits import (
    CAPABILITIES,
    CPU_PERIOD_US,
    MASKED,
    OWN_PIDS,
    RLIMITS,
    SERIES_CAPABILITIES,
    SHM_INODES,
    START_CPUS,
    TERMINAL_OPTIONS,
    TMP_INODES,
    sentry_pids,
    tmpfs_options,
)
from cellblock_workers.launcher.seccomp import oci_filter, strict_profile

_VIEW, _OWN = "rootfs", "own"
#: Where a sandbox finds its guest (guest_program.py).
GUEST_FILE = "/run/cellblock_guest"
_ENVIRONMENT = ("PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "HOME=/", "HOSTNAME=sandbox")
# The parts of /proc through which the whole host could be changed.
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


@dataclass(frozen=True, slots=True)
class Bundle:
    """What differs from one sandbox to the next."""

    isolation: Isolation
    profile: Profile
    folder: Path  # the bundle's own
    root: Path  # the image's, shared by all its sandboxes
    cgroup: str  # below each hierarchy's root
    command: Sequence[str]
    guest: bytes  # the content of GUEST_FILE
    tmp_bytes: int
    shm_bytes: int
    uid: int  # the job's

    def write(self) -> None:
        """Writes the bundle into its folder."""
        (self.folder / _VIEW).mkdir(parents=True)
        write_etc(self.folder / _OWN, self.uid, jobs=max(1, self.profile.series))
        self._write_guest()
        (self.folder / "config.json").write_text(json.dumps(self.config()))

    def _write_guest(self) -> None:
        path = self.folder / _OWN / GUEST_FILE.lstrip("/")
        path.parent.mkdir(mode=0o755)
        path.parent.chmod(0o755)
        path.write_bytes(self.guest)
        path.chmod(0o644)

    def config(self) -> dict[str, Any]:
        """The content of ``config.json``."""
        gvisor = self.isolation == "gvisor"
        # The guest of a series needs calls that no job may make, and filters each job's and its own itself
        # (guest/shared_kernel.py).
        filtered = {} if self.profile.series else {"seccomp": oci_filter(strict_profile(self.isolation))}
        return {
            "ociVersion": "1.0.2",
            "hostname": "sandbox",
            # gVisor keeps its own state of every file. The host's kernel would share locks and notifications
            # of files between sandboxes on one root, so runc gets its own view of it.
            "root": {"path": str(self.root) if gvisor else _VIEW, "readonly": True},
            "process": self._process(),
            "mounts": self._mounts() if gvisor else [self._own_view(), *self._mounts()],
            "linux": {
                # No way out: a network namespace with nothing but the loopback.
                "namespaces": [
                    {"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount", "cgroup")
                ],
                "cgroupsPath": f"/{self.cgroup}",
                "resources": self._resources(),
                **filtered,
                "maskedPaths": list(MASKED),
                "readonlyPaths": list(_READ_ONLY),
            },
        }

    def _process(self) -> dict[str, Any]:
        # The sentry's own: none of them is a right on the host.
        more = SERIES_CAPABILITIES if self.profile.series else ()
        held = [f"CAP_{name}" for name in (*CAPABILITIES, *more)]
        return {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": list(self.command),
            "env": list(_ENVIRONMENT),
            "cwd": "/",
            "capabilities": {
                "bounding": held,
                "effective": held,
                "permitted": held,
                "inheritable": [],
                "ambient": [],
            },
            "rlimits": [
                {"type": f"RLIMIT_{name}", "soft": value, "hard": value} for name, value in RLIMITS.items()
            ],
            "noNewPrivileges": True,
        }

    def _own_view(self) -> dict[str, Any]:
        """The image's root as a file system of this sandbox, with its own names laid over it."""
        layers = f"lowerdir={self.folder / _OWN}:{self.root}"
        return _mount("/", "overlay", "ro", "nosuid", "nodev", layers)

    def _mounts(self) -> list[dict[str, Any]]:
        """Nothing of the host but a context, no /sys and no cgroups; /tmp is the one place to write."""
        context = self.profile.context
        # runsc makes it root's and 0755, whatever mode is asked for, so no job can make files in it. In a
        # read-only /dev it refuses O_CREAT even for existing files, which open("/dev/null", "w") uses.
        devices = [] if self.isolation == "gvisor" else ["ro"]
        own = (*etc_files(self.uid), GUEST_FILE.lstrip("/"))
        names = own if self.isolation == "gvisor" else ()  # runc has them in its view
        return [
            *(_bind(str(self.folder / _OWN / name), f"/{name}") for name in names),
            *([_bind(context, MOUNT_POINT)] if context else []),
            _mount("/proc", "proc", "nosuid", "noexec", "nodev"),
            _mount("/dev", "tmpfs", "nosuid", "noexec", "strictatime", "mode=755", "size=65536k", *devices),
            _mount("/dev/pts", "devpts", *TERMINAL_OPTIONS),
            _mount("/dev/shm", "tmpfs", *tmpfs_options(self.shm_bytes, SHM_INODES)),  # noqa: S108
            _mount("/tmp", "tmpfs", *tmpfs_options(self.tmp_bytes, TMP_INODES)),  # noqa: S108
        ]

    def _resources(self) -> dict[str, Any]:
        gvisor = self.isolation == "gvisor"
        quota_us = round(max(self.profile.cpus, START_CPUS) * CPU_PERIOD_US)  # while it starts
        memory = {"limit": self.profile.memory_bytes, "swap": self.profile.memory_bytes}  # so: no swap
        return {
            "devices": [{"allow": False, "access": "rwm"}],
            "memory": memory if gvisor else {**memory, "swappiness": 0},
            "pids": {"limit": self._pids()},
            "cpu": {"period": CPU_PERIOD_US, "quota": quota_us},
        }

    def _pids(self) -> int:
        if self.isolation == "gvisor":
            return sentry_pids(self.profile.pids + self.profile.series)
        return self.profile.pids + OWN_PIDS


def _bind(source: str, where: str) -> dict[str, Any]:
    options = ["bind", "ro", "nosuid", "nodev", "noexec"]
    return {"destination": where, "type": "bind", "source": source, "options": options}


def _mount(where: str, kind: str, *options: str) -> dict[str, Any]:
    return {"destination": where, "type": kind, "source": kind, "options": list(options)}
