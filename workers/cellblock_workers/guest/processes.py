"""All processes that a job has started: counted, adopted, killed."""

from __future__ import annotations

import os
import signal
import time


def is_crowded(uid: int, nproc: int) -> bool:
    """Whether the job that has just ended had as many processes and threads as it may.

    Counts from outside: the job could stop and rewrite a child of this process under its uid.
    """
    counted = 1  # the job's first process: gone by now, but there when another one was refused
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/status", "rb") as file:
                status = dict(line.split(b":", 1) for line in file.read().splitlines() if b":" in line)
            if int(status[b"Uid"].split()[0]) == uid:
                counted += int(status[b"Threads"])
        except (OSError, KeyError):
            continue  # it ended meanwhile
    return counted >= nproc


def kill_and_reap_everything(patience_s: float) -> bool:
    """Kills and reaps for up to ``patience_s``. Returns whether nothing is left alive but this process."""
    give_up = time.monotonic() + patience_s
    while time.monotonic() < give_up:
        kill_everything()
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            time.sleep(0.001)
    return False


def kill_everything() -> None:
    """Kills all processes of this PID namespace but this one; without an own namespace, all below this
    one."""
    if os.getpid() != 1:
        kill_descendants(os.getpid())
        return
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        return


def kill_descendants(pid: int) -> None:
    """Kills what this process started, and what that did. Orphans among them are its children: see
    start()."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                children = [int(word) for word in file.read().split()]
            for child in children:
                os.kill(child, signal.SIGKILL)
                kill_descendants(child)
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue


def adopt_orphans() -> None:
    """Becomes the parent of every orphan below this process, as PID 1 is anyway."""
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0):  # PR_SET_CHILD_SUBREAPER
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")
