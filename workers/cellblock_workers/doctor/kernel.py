"""The checklist's lines about the kernel: what it offers to hold a job, and how it is set."""

from __future__ import annotations

import ctypes
import os
import platform
import pwd
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from cellblock_workers.doctor.checks import Check

_CONTROLLERS = ("memory", "pids", "cpu")
_CLONE_NEWUSER = 0x10000000
_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_VERSION = 1
_MACHINES = {"x86_64", "aarch64"}
#: The date of this code: an earlier clock is not set, and leases and expiry depend on it.
_WRITTEN = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def kernel_checks(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> Iterator[Check]:
    """Checks everything that the kernel shows. Changes nothing."""
    yield _version(platform.release(), platform.machine())
    yield _cgroups(cgroup)
    yield _swap(proc, cgroup)
    yield _user_namespaces(proc)
    yield _seccomp(proc)
    yield _landlock()
    yield _ptrace(proc)
    yield _bpf(proc)
    yield _clock()
    yield _entropy()


def _version(release: str, machine: str) -> Check:
    value = f"{release} {machine}"
    if machine not in _MACHINES:
        remedy = f"system calls are filtered by number, known here for {' and '.join(sorted(_MACHINES))}"
        return Check("kernel", "problem", value, remedy)
    numbers = tuple(int(number) for number in re.findall(r"\d+", release)[:2])
    if numbers < (4, 14):
        return Check("kernel", "problem", value, "seccomp and cgroups need 4.14 or newer: upgrade the kernel")
    if numbers < (5, 13):
        return Check("kernel", "warning", value, "Landlock and clone3 filtering want 5.13 or newer")
    return Check("kernel", "ok", value)


def _cgroups(root: Path) -> Check:
    """Which hierarchy there is, and under which controllers this user can put sandboxes."""
    if (root / "cgroup.controllers").exists():
        layout = "v2"
        offered = (root / "cgroup.controllers").read_text().split()
        writable = {name for name in offered if os.access(root / "cgroup.subtree_control", os.W_OK)}
    else:
        layout = "v1 and v2 (hybrid)" if (root / "unified").is_dir() else "v1"
        writable = {name for name in _CONTROLLERS if os.access(root / name, os.W_OK)}
    missing = [name for name in _CONTROLLERS if name not in writable]
    if not missing:
        return Check("cgroups", "ok", f"{layout}; writable: {', '.join(_CONTROLLERS)}")
    remedy = "run the launcher as root; what root cannot write either, the kernel has to be booted with"
    return Check("cgroups", "warning", f"{layout}; not writable: {', '.join(missing)}", remedy)


def _swap(proc: Path, cgroup: Path) -> Check:
    """Warns of swap that cannot be counted against a sandbox."""
    active = len((proc / "swaps").read_text().splitlines()) - 1
    if active < 1:
        return Check("swap", "ok", "none")
    counted = (cgroup / "cgroup.controllers").exists() or (
        cgroup / "memory/memory.memsw.limit_in_bytes"
    ).exists()
    if counted:
        return Check("swap", "ok", f"{active} active, counted by cgroups")
    remedy = "a job at its memory limit can push others into swap: swapoff -a, or boot with swapaccount=1"
    return Check("swap", "warning", f"{active} active, not counted by cgroups", remedy)


def _user_namespaces(proc: Path) -> Check:
    name = "user namespaces"
    for switch, off in (
        ("user/max_user_namespaces", "0"),
        ("kernel/unprivileged_userns_clone", "0"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1"),
    ):
        if _read(proc / "sys" / switch) == off:
            setting = switch.replace("/", ".")
            remedy = f"without root, namespaces are not available: sysctl {setting}, it is {off} now"
            return Check(name, "warning", f"off for ordinary users ({setting}={off})", remedy)
    if _may_unshare():
        return Check(name, "ok", "open to ordinary users")
    return Check(
        name, "warning", "refused to ordinary users", "is this a container with a filter of its own?"
    )


def _may_unshare() -> bool:
    """Whether a user who is not root gets a user namespace; tried in a child that ends at once."""
    child = os.fork()
    if child == 0:
        done = -1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresuid(*[pwd.getpwnam("nobody").pw_uid] * 3)
            done = ctypes.CDLL(None).unshare(_CLONE_NEWUSER)
        finally:
            os._exit(0 if done == 0 else 1)
    return os.waitpid(child, 0)[1] == 0


def _seccomp(proc: Path) -> Check:
    actions = (_read(proc / "sys/kernel/seccomp/actions_avail") or "").split()
    missing = [action for action in ("kill_process", "errno", "allow") if action not in actions]
    if missing:
        return Check(
            "seccomp", "problem", f"no {', '.join(missing)}", "the kernel needs CONFIG_SECCOMP_FILTER"
        )
    return Check("seccomp", "ok", "filters")


def _landlock() -> Check:
    libc = ctypes.CDLL(None, use_errno=True)
    abi = libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), _LANDLOCK_VERSION)
    if abi >= 1:
        return Check("landlock", "ok", f"ABI {abi}")
    remedy = "a second fence around files in namespaces is missing: add landlock to the kernel's lsm= list"
    return Check("landlock", "warning", f"none ({os.strerror(ctypes.get_errno())})", remedy)


def _ptrace(proc: Path) -> Check:
    name = "ptrace scope"
    scope = _read(proc / "sys/kernel/yama/ptrace_scope")
    if scope is None:
        remedy = "one guard fewer between processes of one user: a kernel with CONFIG_SECURITY_YAMA has it"
        return Check(name, "warning", "no Yama", remedy)
    if scope == "0":
        return Check(name, "warning", "0 (anybody's own)", "sysctl kernel.yama.ptrace_scope=1")
    return Check(name, "ok", scope)


def _bpf(proc: Path) -> Check:
    name = "unprivileged bpf"
    if _read(proc / "sys/kernel/unprivileged_bpf_disabled") == "0":
        remedy = "seccomp refuses it to jobs; for everybody else: sysctl kernel.unprivileged_bpf_disabled=1"
        return Check(name, "warning", "on", remedy)
    return Check(name, "ok", "off")


def _clock() -> Check:
    now = time.time()
    value = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M UTC")
    if now < _WRITTEN:
        return Check(
            "clock", "problem", value, "the clock is not set: results would expire at once; start NTP"
        )
    return Check("clock", "ok", value)


def _entropy() -> Check:
    try:
        os.getrandom(16, os.GRND_NONBLOCK)
    except BlockingIOError:
        return Check(
            "entropy", "problem", "not ready", "ids and secrets would wait: give the machine a virtio-rng"
        )
    return Check("entropy", "ok", "ready")


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
