"""The processes that a detached runtime leaves to the launcher, which adopts, watches and reaps them.

A container's first process is its runtime's child. The runtime ends once the container runs, and the kernel
then gives the child to the nearest ancestor that asked for orphans. That is the launcher, so only the
launcher learns how a sandbox ended.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_STATE, _PARENT, _SESSION = 0, 1, 3  # fields after the name in /proc/PID/stat


def adopt_orphans() -> None:
    """Makes orphans among this process's descendants its children. Raises :class:`OSError`."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


class AdoptedProcess:
    """One adopted process, held by a descriptor: its pid is not reused until it is reaped here."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)
        self._exit_code: int | None = None
        self._reaped = False

    def ended(self, timeout_s: float = 0) -> bool:
        """Whether it has ended, after a wait of up to ``timeout_s``."""
        if self._reaped:
            return True
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def exit_code(self) -> int | None:
        """The exit code as a shell shows it; None while it runs."""
        if self._exit_code is None and not self._reaped:
            end = os.waitid(os.P_PIDFD, self._descriptor, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if end is not None:
                status = end.si_status
                self._exit_code = status if end.si_code == os.CLD_EXITED else 128 + status
        return self._exit_code

    def kill(self) -> None:
        """Sends SIGKILL."""
        if not self._reaped:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def reap(self, timeout_s: float) -> None:
        """Waits up to ``timeout_s`` for its end and takes it out of the process table."""
        if self._reaped or not self.ended(timeout_s):
            return
        self.exit_code()
        os.waitid(os.P_PIDFD, self._descriptor, os.WEXITED | os.WNOHANG)
        self._reaped = True
        os.close(self._descriptor)


class Family:
    """One sandbox's processes on the host: those that are the launcher's children, and their descendants.

    Descendants become the launcher's children when their parents end. They are recognised by their sessions,
    which no process inside a sandbox can enter: those seen when the sandbox was made, without the launcher's
    own.
    """

    def __init__(self, pids: Iterable[int]) -> None:
        stats = {pid: stat for pid in pids if (stat := _stat(pid))}
        self._sessions = {stat[_SESSION] for stat in stats.values()} - {str(os.getsid(0))}
        self._children = []
        for pid, stat in stats.items():
            if stat[_PARENT] == str(os.getpid()):
                with suppress(ProcessLookupError):
                    self._children.append(AdoptedProcess(pid))

    @property
    def first(self) -> AdoptedProcess:
        """The container's first process: the first of the given pids."""
        return self._children[0]

    def __len__(self) -> int:
        return len(self._children)

    def kill(self, timeout_s: float) -> None:
        """Kills the launcher's children and reaps them."""
        for child in self._children:
            child.kill()
        for child in self._children:
            child.reap(timeout_s)

    def reap_descendants(self) -> None:
        """Reaps what the children had started. All of it must be dead."""
        for pid in _children():
            stat = _stat(pid)
            if stat and stat[_STATE] == "Z" and stat[_SESSION] in self._sessions:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)


def _children() -> list[int]:
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread ended, or this kernel does not tell
            found += [int(pid) for pid in (task / "children").read_text().split()]
    return found


def _stat(pid: int) -> list[str]:
    """What follows the command's name in /proc/PID/stat; empty once the process is gone."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
