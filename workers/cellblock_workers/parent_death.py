"""Ends this process when the supervisor that started it ends, also one that is killed.

``python -m cellblock_workers.parent_death PROGRAM …`` runs a program that does not know of it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

#: The environment variable with the supervisor's pid, for the processes that it starts.
SUPERVISOR_VARIABLE = "_CELLBLOCK_SUPERVISOR_PID"
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Asks the kernel for TERM when the supervisor that started this process ends. Does nothing without
    one."""
    supervisor = os.environ.get(SUPERVISOR_VARIABLE)
    if supervisor is None:
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(supervisor):
        raise SystemExit("the supervisor ended before this process was ready")


def main() -> None:
    """Becomes the program that the arguments name."""
    die_with_parent()
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 - no shell; the signal stays with the process


if __name__ == "__main__":
    main()
