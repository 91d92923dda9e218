# ruff: noqa: E501, S101, S606, T201  (a job may do as it likes)
"""What cellblock's own guest does as PID 1: drop to the job's uid, watch it with epoll, kill it, account for it."""

import ctypes
import os
import resource
import select
import signal
import sys

libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
assert libc.prctl(4, 0, 0, 0, 0) == 0  # PR_SET_DUMPABLE: not traceable by the job
reader, writer = os.pipe()
pid = os.fork()
if pid == 0:
    os.setsid()
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    libc.prctl(15, b"job", 0, 0, 0)  # PR_SET_NAME
    resource.setrlimit(resource.RLIMIT_NPROC, (64, 64))
    os.dup2(writer, 1)
    os.execv(
        sys.executable, [sys.executable, "-c", "print('ready', flush=True); import time; time.sleep(60)"]
    )
os.close(writer)
os.set_blocking(reader, False)
epoll = select.epoll()
epoll.register(reader, select.EPOLLIN)
descriptor = os.pidfd_open(pid)
assert epoll.poll(20)
assert os.read(reader, 99) == b"ready\n"
resource.prlimit(0, resource.RLIMIT_CORE)
signal.pidfd_send_signal(descriptor, signal.SIGTERM)
os.kill(pid, signal.SIGKILL)
_, status, usage = os.wait4(pid, 0)
print("guest", os.WIFSIGNALED(status), usage.ru_maxrss > 0)
