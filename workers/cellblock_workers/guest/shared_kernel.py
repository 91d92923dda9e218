"""A series under gVisor: the jobs of one evaluation share one sandbox, whose kernel keeps them apart.

Each job has processes, IPC, a network and a host name in namespaces of its own, ids of its own, and a root of
its own with an empty /tmp and /dev/shm and with its own /proc. Mounts belong to the whole sandbox: this
kernel takes CLONE_NEWNS and does nothing (runsc 20221219). So chroot keeps a job in its root, and no job has
the right to leave it. All jobs are forked before the first one begins, so none has anything of another.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time
from typing import Any

from .guest import exhausted
from .job import become_job, drop_to
from .pipes import WORK_DIR, Pipes, close_all_but
from .preload import reseed
from .series import JobFolders, serve_series
from .syscall_filter import lay

#: Keeps the interpreter's lock: no Python code runs between a clone and its hooks.
KERNEL = ctypes.PyDLL(None, use_errno=True)
CALLS = {"x86_64": {"clone": 56, "capset": 126}, "aarch64": {"clone": 220, "capset": 91}}
NEWUTS, NEWIPC, NEWPID, NEWNET, SIGCHLD = 0x04000000, 0x08000000, 0x20000000, 0x40000000, 17
NOSUID, NODEV, NOEXEC, BIND, DETACH = 2, 4, 8, 4096, 2
CAP_KILL, CAP_SYS_ADMIN = 5, 21
#: Where the roots are; in a job's own root it is the image's folder. Nobody but the guest may enter it.
ROOTS = "/mnt"
#: What a root shows of the sandbox's own: a bind of a folder does not take along folders mounted below it.
SHOWN = ("/", "/sys", "/dev", "/dev/pts")
WRITABLE = ("/tmp", "/dev/shm")
#: How long what a job leaves behind may take to go, before the whole series ends.
LEFT_S = 1.0
#: The guest's exit status when the jobs would not be apart, and when the series could not be formed.
NOT_APART, NOT_FORMED = 76, 77


class NotApart(Exception):
    """A control that keeps the jobs of a series apart does not hold."""


def start_series(options: dict[str, Any]) -> None:
    """Forks the jobs and serves them. Returns in each job, never in the guest.

    Options beside those of a single guest: ``series``, the number of jobs, whose ids begin with ``uid``;
    ``files``, which lie over the image; ``tmp_bytes`` and ``shm_bytes`` of each; ``job_filter`` and
    ``guest_filter``, the allow-lists of system calls as BPF in hexadecimal.
    """
    for fd in (0, 1):
        os.set_blocking(fd, True)
    job_filter, guest_filter = (
        ctypes.create_string_buffer(bytes.fromhex(options[name])) for name in ("job_filter", "guest_filter")
    )
    try:
        mount("tmpfs", ROOTS, "tmpfs", NOSUID | NODEV | NOEXEC, "size=1m,mode=700")
        roots = [make_root(number, options) for number in range(options["series"])]
        pipes_of_jobs = [Pipes(options["uid"] + number) for number in range(options["series"])]
        job, waiting = fork_jobs(roots, pipes_of_jobs, options, job_filter)
        if job is not None:
            become_job(*job)
            return
        devices = shared_devices()
        forget_times(devices)
        hold_capabilities((CAP_KILL, CAP_SYS_ADMIN))
        lay(guest_filter)
    except NotApart:
        os._exit(NOT_APART)
    except OSError:
        os._exit(NOT_FORMED)
    serve_series(
        waiting,
        dict(options, rlimits={}),
        [JobRoot(root, options["uid"] + n, devices) for n, root in enumerate(roots)],
    )


def fork_jobs(
    roots: list[str], pipes_of_jobs: list[Pipes], options: dict[str, Any], job_filter: Any
) -> tuple[tuple[Pipes, dict[str, Any]] | None, list[tuple[Pipes, int]]]:
    """Forks a job into each of these roots. Returns in each with its pipes and options; in the guest with the
    jobs that wait, once each is apart from the others. Raises OSError and NotApart."""
    (hold, go), (formed, ready) = os.pipe(), os.pipe()
    bound, port = bind_loopback(b"\0\0")
    waiting: list[tuple[Pipes, int]] = []
    for number, (root, pipes) in enumerate(zip(roots, pipes_of_jobs)):
        child = clone()
        if child == 0:
            own = dict(options, uid=options["uid"] + number)
            close_all_but(sorted((hold, ready, *pipes.job_ends())))
            if os.read(hold, 1) != b"1":
                os._exit(1)
            go_apart(root, own["uid"], job_filter, port)
            os.write(ready, b"1")
            pipes.lower_job_ends()
            return (pipes, own), []
        waiting.append((pipes, child))
    for pipes in pipes_of_jobs:
        pipes.close_job_ends()
    os.write(go, b"1" * len(waiting))
    for fd in (hold, go, ready):
        os.close(fd)
    if any(os.read(formed, 1) != b"1" for _ in waiting):
        raise NotApart("one of them")
    os.close(formed)
    os.close(bound)
    return None, waiting


def clone() -> int:
    """Forks into new namespaces. Returns the child's pid, or 0 in the child. Raises OSError."""
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    flags = NEWUTS | NEWIPC | NEWPID | NEWNET | SIGCHLD
    pid: int = KERNEL.syscall(call_number("clone"), flags, 0, 0, 0, 0)
    (python.PyOS_AfterFork_Child if pid == 0 else python.PyOS_AfterFork_Parent)()
    return raise_if_failed("clone", pid)


def make_root(number: int, options: dict[str, Any]) -> str:
    """Makes the root of one job, all but its /proc. Returns its path."""
    root = f"{ROOTS}/{number}"
    os.mkdir(root)
    for path in (*SHOWN, *options["files"]):
        mount(path, root + path, None, BIND)
    for path, size_bytes in zip(WRITABLE, (options["tmp_bytes"], options["shm_bytes"])):
        mount("tmpfs", root + path, "tmpfs", NOSUID | NODEV | NOEXEC, f"size={size_bytes},mode=1777")
    return root


class JobRoot(JobFolders):
    """The root of one job, as the guest sees it, and the job's id."""

    def __init__(self, root: str, uid: int, devices: list[str]) -> None:
        self.folders = [root + path for path in WRITABLE]
        self.uid = uid
        self.devices = devices

    def full(self) -> str | None:
        return next(filter(None, map(exhausted, self.folders)), None)

    def clear(self) -> None:
        """Frees what the job has written, and waits until nothing of it lives. Its root is not used again.

        Raises NotApart when something stays: the guest ends then, and who waits goes into another series.
        """
        await_nothing_left(self.uid)
        for folder in self.folders:
            raise_if_failed(f"umount {folder}", KERNEL.umount2(os.fsencode(folder), DETACH))
        forget_times(self.devices)


def bind_loopback(port: bytes) -> tuple[int, bytes]:
    """A socket that holds this port, or any for port 0, and the port. Raises OSError."""
    opened = raise_if_failed("socket", KERNEL.socket(2, 1, 0))
    address = ctypes.create_string_buffer(struct.pack("=H2s4B8x", 2, port, 127, 0, 0, 1), 16)
    try:
        raise_if_failed("bind", KERNEL.bind(opened, address, 16))
        raise_if_failed("getsockname", KERNEL.getsockname(opened, address, ctypes.byref(ctypes.c_int(16))))
    except OSError:
        os.close(opened)
        raise
    return opened, address.raw[2:4]


def can_bind(port: bytes) -> bool:
    try:
        os.close(bind_loopback(port)[0])
    except OSError:
        return False
    return True


def shared_devices() -> list[str]:
    """The nodes in /dev, which all jobs share; terminals that jobs make are not there yet."""
    paths = [os.path.join(folder, name) for folder, _, names in os.walk("/dev") for name in names]
    return [path for path in paths if not os.path.islink(path)]


def forget_times(devices: list[str]) -> None:
    """Sets the times of these back: any job may touch them, and the next one would see it."""
    for path in devices:
        os.utime(path, (0, 0))


def await_nothing_left(uid: int) -> None:
    """Waits for the ends of a job's processes and sockets.

    This kernel does not wait for the others of a PID namespace when its first process ends. And sockets that
    were sent through each other keep each other, with every descriptor that is on its way in them: locks,
    timers, terminals.
    """
    give_up = time.monotonic() + LEFT_S
    while any(owner_of(name) == uid for name in os.listdir("/proc") if name.isdigit()) or unix_sockets():
        if time.monotonic() > give_up:
            raise NotApart("the end of the job before")
        time.sleep(0.005)


def owner_of(pid: str) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except FileNotFoundError:
        return None


def unix_sockets() -> int:
    """How many there are in the whole sandbox: none while no job runs."""
    with open("/proc/net/unix") as file:
        return len(file.readlines()) - 1


def go_apart(root: str, uid: int, job_filter: Any, port: bytes) -> None:
    """Puts every control of one job in place, and proves them. ``port``: one that the guest holds. Raises
    OSError or NotApart. This kernel's /proc tells nothing of the host, so nothing in it is masked."""
    mount("proc", f"{root}/proc", "proc", NOSUID | NODEV | NOEXEC)
    raise_if_failed("chroot", KERNEL.chroot(os.fsencode(root)))
    os.chdir("/")
    reseed()
    lay(job_filter)
    drop_to(uid)
    prove_apart(uid, port)


def prove_apart(uid: int, port: bytes) -> None:
    """Looks from inside whether the controls hold: a kernel may take a call and do nothing."""
    with open("/proc/self/status") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    proofs = {
        "processes of its own": [name for name in os.listdir("/proc") if name.isdigit()] == ["1"],
        "ids of its own": {*status["Uid"].split(), *status["Gid"].split()} == {str(uid)},
        "no other group": not status["Groups"].strip(),
        "a network of its own": can_bind(port),
        "no capability": int(status["CapPrm"], 16) == int(status["CapEff"], 16) == 0,
        "the filter of system calls": status["Seccomp"] == "2",
        "a root of its own": not os.path.exists(f"{ROOTS}/0") and not os.listdir("/dev/shm"),
        "no way out of it": KERNEL.chroot(b"/tmp") == KERNEL.mount(b"x", b"/tmp", b"tmpfs", 0, None) == -1,
        "a folder to write of its own": not os.listdir(os.path.dirname(WORK_DIR)),
    }
    lacking = [name for name, holds in proofs.items() if not holds]
    if lacking:
        raise NotApart(", ".join(lacking))


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """mount(2). Raises OSError."""
    given = [None if one is None else os.fsencode(one) for one in (source, target, kind)]
    raise_if_failed(
        f"mount {target}", KERNEL.mount(*given, ctypes.c_ulong(flags), os.fsencode(options) or None)
    )


def hold_capabilities(kept: tuple[int, ...]) -> None:
    """Gives up every capability but these."""
    mask = sum(1 << capability for capability in kept)
    header = struct.pack("Ii", 0x20080522, 0)
    raise_if_failed(
        "capset", KERNEL.syscall(call_number("capset"), header, struct.pack("6I", mask, mask, 0, 0, 0, 0))
    )


def call_number(name: str) -> int:
    return CALLS[os.uname().machine][name]


def raise_if_failed(what: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
