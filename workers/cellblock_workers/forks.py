"""A process that begins as a fork of this one: it need not import again what this one has imported.

It keeps no variable, descriptor, handler or duty of its parent. Its memory begins as a copy of the parent's,
and may still hold what that had read.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_LAST_INHERITED = 2
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Fields of /proc/self/stat, counted from behind the name: where the kernel shows the environment (proc(5)).
_ENVIRONMENT_START, _ENVIRONMENT_END = 47, 48


class ForkedProcess:
    """A fork, with the methods of :class:`subprocess.Popen`. For use on one thread."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        try:
            self._pidfd = os.pidfd_open(pid)
        except ProcessLookupError:  # ended already, where no status is kept: see poll()
            self.returncode = 0

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # who started this process has SIGCHLD ignored, and no status is kept
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
                os.close(self._pidfd)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended. Raises :class:`subprocess.TimeoutExpired`."""
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            poll.poll(None if timeout is None else timeout * 1000)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired([f"fork {self.pid}"], timeout or 0)
        return code

    def terminate(self) -> None:
        """Sends TERM, unless it has ended."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Sends KILL, unless it has ended."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.returncode is None:  # until then the pid is not given to another process
            signal.pidfd_send_signal(self._pidfd, number)


#: A process that was started here.
Process = subprocess.Popen[bytes] | ForkedProcess


def can_fork() -> bool:
    """Whether this process has one thread: a fork of more would hold their locks forever."""
    return len(list(Path("/proc/self/task").iterdir())) == 1


def fork(
    target: Callable[[], None], environment: Mapping[str, str], keep: Sequence[int] = ()
) -> ForkedProcess:
    """Calls ``target`` in a fork. It ends with this process at the latest: the kernel then sends it TERM.

    Args:
        target: What the fork does. No object that it uses may own a descriptor but those in ``keep``.
        environment: Its whole environment; nothing of this process's can be read in its /proc either.
        keep: The descriptors that it keeps, beside stdout and stderr.
    """
    parent = os.getpid()
    sys.stdout.flush()
    # An interrupt in the fork, before it has its own handlers, would run what the parent does at its end.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
    try:
        pid = os.fork()
        if pid == 0:
            _run(target, parent, environment, keep)
        return ForkedProcess(pid)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(
    target: Callable[[], None], parent: int, environment: Mapping[str, str], keep: Sequence[int]
) -> NoReturn:
    code = 1
    try:
        _become(parent, environment, keep)
        target()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if isinstance(ended.code, str):
            os.write(2, f"{ended.code}\n".encode())
    except Exception as error:  # our fault: with its place, and without a word of anybody's data
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        os.write(2, f"cellblock: a process ended with {type(error).__name__} at {where}\n".encode())
    finally:
        os._exit(code)  # nothing that this process was about to do at its end may happen twice


def _become(parent: int, environment: Mapping[str, str], keep: Sequence[int]) -> None:
    os.setpgid(0, 0)  # a terminal's Ctrl-C is for the parent, which ends this process
    for number in (*_INTERRUPTS, signal.SIGCHLD):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(1)
    _replace_environment(environment)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    for descriptor in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if descriptor > _LAST_INHERITED and descriptor not in keep:
            try:
                os.close(descriptor)
            except OSError:  # the one that listed them
                continue


def _replace_environment(environment: Mapping[str, str]) -> None:
    """Sets it, and clears the text that /proc/PID/environ shows: the parent's, with its secrets."""
    os.environ.clear()
    os.environ.update(environment)
    fields = re.sub(r".*\) ", "", Path("/proc/self/stat").read_text(), flags=re.DOTALL).split()
    start, end = int(fields[_ENVIRONMENT_START]), int(fields[_ENVIRONMENT_END])
    ctypes.memset(start, 0, end - start)
