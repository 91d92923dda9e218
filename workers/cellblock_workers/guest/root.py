"""The files a sandbox made by a zygote sees: mounted in its own namespace, below the zygote's own root.

Standard library only, Python 3.8+, like the zygote.
"""

from __future__ import annotations

import os

from cellblock_workers.guest import kernel

# What /proc tells of the host's kernel, closed as container runtimes close it.
MASKED_FILES = (
    "interrupts",
    "kcore",
    "keys",
    "key-users",
    "latency_stats",
    "timer_list",
    "timer_stats",
    "sched_debug",
    "kmsg",
)
MASKED_FOLDERS = ("acpi", "scsi", "asound")
NEW = "/tmp"  # in the zygote's root: where a sandbox's root is put together
DEVICES = ("null", "zero", "full", "random", "urandom")
PROC_FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC


def mount_root(place: int, views: list[str]) -> None:
    """The image once more, as files of this sandbox alone: on shared ones, locks and notices are shared too.

    For the same reason each place has devices of its own. ``views`` of the host's folders stay as they are.
    """
    flags = kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("overlay", NEW, "overlay", flags, "lowerdir=/dev/image:/dev/empty")
    for view in views:
        kernel.mount(view, f"{NEW}{view}", None, kernel.MS_BIND | kernel.MS_REC)
    kernel.mount(f"/dev/{place}", f"{NEW}/dev", None, kernel.MS_BIND | kernel.MS_REC)


def mount_proc(place: int) -> None:
    """The processes of this sandbox alone, and what tells of the host closed.

    By files and folders of this sandbox's own: locks on shared ones would tell of other jobs.
    """
    proc = f"{NEW}/proc"
    kernel.mount("proc", proc, "proc", PROC_FLAGS)
    # Owned by the host's root, but for switches of a namespace that everyone may open.
    kernel.mount(f"{proc}/sys", f"{proc}/sys", None, kernel.MS_BIND)
    kernel.restrict_mount(f"{proc}/sys", kernel.ATTR_RDONLY, recursive=False)
    for name in MASKED_FILES:
        if os.path.exists(f"{proc}/{name}"):
            kernel.mount(f"/dev/{place}/null", f"{proc}/{name}", None, kernel.MS_BIND)
    flags = kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    for name in MASKED_FOLDERS:
        if os.path.exists(f"{proc}/{name}"):
            kernel.mount("tmpfs", f"{proc}/{name}", "tmpfs", flags, "nr_inodes=1")


def mount_tmp(size_bytes: int, inodes: int) -> None:
    """The only place to write: in memory, counted against the sandbox, nothing in it can be run."""
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    options = f"size={size_bytes},nr_inodes={inodes},mode=1777"
    kernel.mount("tmpfs", f"{NEW}/tmp", "tmpfs", flags, options)


def mount_context(context: int | None) -> None:
    """The one file of the host a job may be shown, already read-only; launcher/contexts.py says which."""
    if context is not None:
        kernel.attach_mount(context, f"{NEW}/mnt/context_data")
