"""The job's own system call filter: a call that no honest program makes kills the job with SIGSYS.

The sandbox's filter refuses these calls already, with an errno that the job may ignore. The guest lays this
one over it, in the job process, so that the attempt ends the job and is an outcome of its own (``syscall``),
the same on every isolation. Calls that libraries merely probe for (io_uring, keyctl, inotify) are not in it.

The sandbox's filter lets a process narrow its own calls further, which this needs; the last rule here takes
that right away.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Any

#: The call's number by machine: x86_64, aarch64; None where it does not exist.
FATAL_CALLS = {
    "acct": (163, 89),
    "bpf": (321, 280),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "reboot": (169, 142),
    "setns": (308, 268),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "umount2": (166, 39),
    "userfaultfd": (323, 282),
}
#: By machine: the column above, the kernel's constant for the architecture, and the number of prctl.
MACHINES = {"x86_64": (0, 0xC000003E, 157), "aarch64": (1, 0xC00000B7, 167)}
PRLIMIT64 = {"x86_64": 302, "aarch64": 261}

PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
KILL_PROCESS = 0x80000000
REFUSE = 0x00050000 | 1  # EPERM
ALLOW = 0x7FFF0000

LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
CALL_NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data


def fatal_program(machine: str) -> bytes:
    """The filter as classic BPF. Raises KeyError on a machine whose call numbers are not known."""
    column, architecture, prctl = MACHINES[machine]
    numbers = [row[column] for row in FATAL_CALLS.values() if row[column] is not None]
    lines = [(LOAD, 0, 0, ARCHITECTURE), (JUMP_IF_EQUAL, 1, 0, architecture), (RETURN, 0, 0, KILL_PROCESS)]
    lines.append((LOAD, 0, 0, CALL_NUMBER))
    for place, number in enumerate(numbers):
        to_the_kill = len(numbers) - place - 1 + 5
        lines.append((JUMP_IF_EQUAL, to_the_kill, 0, number))  # type: ignore[arg-type]
    lines += [
        (JUMP_IF_EQUAL, 0, 3, prctl),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (JUMP_IF_EQUAL, 0, 1, PR_SET_SECCOMP),
        (RETURN, 0, 0, REFUSE),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, KILL_PROCESS),
    ]
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def own_limits_program(machine: str) -> bytes:
    """A filter against setting limits of other processes: of the guest, where it has the job's id."""
    lines = (
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_IF_EQUAL, 0, 4, MACHINES[machine][1]),
        (LOAD, 0, 0, CALL_NUMBER),
        (JUMP_IF_EQUAL, 0, 2, PRLIMIT64[machine]),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (JUMP_IF_EQUAL, 0, 1, 0),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, REFUSE),
    )
    return b"".join(struct.pack("HBBI", *line) for line in lines)


FATAL = ctypes.create_string_buffer(fatal_program(os.uname().machine))
OWN_LIMITS = ctypes.create_string_buffer(own_limits_program(os.uname().machine))
PRCTL = ctypes.CDLL(None, use_errno=True).prctl  # found once, not in every fork


def forbid_fatal_calls() -> None:
    """Lays the filter over this process and all that it will start. Raises OSError: then no job may run."""
    lay(FATAL)


def forbid_limits_of_others() -> None:
    """Lays this filter too, before the other, which allows none after it. Raises OSError."""
    lay(OWN_LIMITS)


def lay(program: Any) -> None:
    described = struct.pack("HP", (len(program) - 1) // 8, ctypes.addressof(program))
    if PRCTL(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or PRCTL(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, described, 0, 0):
        raise OSError(ctypes.get_errno(), "the job's system call filter was refused")
