"""The files that a zygote's sandbox sees: mounted in its own namespace, below the zygote's own root.

Standard library only, Python 3.8+, like the zygote.
"""

from __future__ import annotations

from typing import Callable, Tuple

from cellblock_workers.zygote import kernel

# The parts of /proc that tell of the host and its kernel; container runtimes close most of them.
MASKED_FILES = (
    "cmdline",
    "interrupts",
    "kcore",
    "keys",
    "key-users",
    "latency_stats",
    "timer_list",
    "timer_stats",
    "sched_debug",
    "kmsg",
    "version",
    "sys/kernel/random/boot_id",
)
MASKED_FOLDERS = ("acpi", "asound", "bus", "driver", "fs", "irq", "pressure", "scsi")
NEW = "/tmp"  # in the zygote's root: the place where a sandbox's root is built
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
Calls = Tuple[Callable[[], None], ...]
PROC_FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC


def own_root(seat: int, views: list[str]) -> Calls:
    """A view of the image for this sandbox alone: sandboxes on shared files also share locks and notices.

    For the same reason each seat has its own devices. Over the image lie the names that a sandbox knows
    (launcher/etc_files.py). ``views`` of the host's folders stay as they are.
    """
    flags = kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
    seen = [*((view, view) for view in views), (f"/dev/{seat}", "/dev")]
    return (
        kernel.mounting("overlay", NEW, "overlay", flags, "lowerdir=/dev/own:/dev/image"),
        *(kernel.mounting(one, NEW + where, None, kernel.MS_BIND | kernel.MS_REC) for one, where in seen),
    )


def private_proc(seat: int) -> Calls:
    """The processes of this sandbox alone, with what tells of the host closed.

    It is closed with files and folders of this sandbox's own: locks on shared ones would tell of other jobs.
    """
    proc, null, empty = f"{NEW}/proc", f"/dev/{seat}/null", f"/dev/{seat}/shm"
    folders = [f"{proc}/{name}" for name in MASKED_FOLDERS]
    return (
        kernel.mounting("proc", proc, "proc", PROC_FLAGS),
        # The host's root owns it, except for switches of a namespace, which any process may open.
        kernel.mounting(f"{proc}/sys", f"{proc}/sys", None, kernel.MS_BIND),
        kernel.restricting(f"{proc}/sys", kernel.ATTR_RDONLY, recursive=False),
        *(
            kernel.mounting(null, f"{proc}/{name}", None, kernel.MS_BIND, may_lack=True)
            for name in MASKED_FILES
        ),
        *(kernel.mounting(empty, one, None, kernel.MS_BIND, may_lack=True) for one in folders),
    )


def bounded_tmp(size_bytes: int, inodes: int) -> Calls:
    """The only place to write: in memory, counted against the sandbox, and nothing in it can be run."""
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    options = f"size={size_bytes},nr_inodes={inodes},mode=1777"
    return (kernel.mounting("tmpfs", f"{NEW}/tmp", "tmpfs", flags, options),)


def bounded_shm(size_bytes: int, inodes: int) -> Calls:
    """The place of a job's locks and shared memory, which are files: bounded like /tmp, and not shared."""
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    options = f"size={size_bytes},nr_inodes={inodes},mode=1777"
    return (kernel.mounting("tmpfs", f"{NEW}/dev/shm", "tmpfs", flags, options),)


def own_terminals(count: int) -> Calls:
    """Pseudo terminals of this sandbox alone, and a bound on them: the kernel has one limit for all."""
    flags = kernel.MS_NOSUID | kernel.MS_NOEXEC
    options = f"newinstance,ptmxmode=0666,mode=0620,max={count}"
    return (kernel.mounting("devpts", f"{NEW}/dev/pts", "devpts", flags, options),)


def its_context(context: int | None) -> Calls:
    """The one file of the host that a job may see, already read-only; launcher/contexts.py says which."""
    return () if context is None else (kernel.attaching(context, f"{NEW}/mnt/context_data"),)
