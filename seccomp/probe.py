#!/usr/bin/env python3
"""Promises: a line per refused call with the errno it got; ends with 1 if one of them was let through.

Runs inside a sandbox on x86_64 or aarch64, as any user. "Let through" is anything but EPERM, ENOSYS and being
killed: without the filter most of these end EFAULT, EINVAL or 0. Those the kernel itself denies end EPERM all
the same: for them the profile's own check (build.py) is the proof.
"""

import ctypes
import errno
import os
import platform
import socket
import sys
from collections.abc import Iterator

# Numbers by architecture: (x86_64, aarch64); None where the call does not exist.
NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone3": (435, 435),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "get_robust_list": (274, 100),
    "init_module": (175, 105),
    "inotify_init1": (294, 26),
    "io_setup": (206, 0),
    "io_submit": (209, 2),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mbind": (237, 235),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "mlockall": (151, 230),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "sched_setscheduler": (144, 119),
    "seccomp": (317, 277),
    "semget": (64, 190),
    "set_mempolicy": (238, 237),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "shmget": (29, 194),
    "splice": (275, 76),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sync": (162, 81),
    "syncfs": (306, 267),
    "syslog": (103, 116),
    "tee": (276, 77),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
    "vmsplice": (278, 75),
}
CLONE = (56, 220)
MKNODAT = (259, 33)
PERSONALITY = (135, 92)
IOCTL = (16, 29)
NAMESPACES = {
    "NEWNS": 0x20000,
    "NEWCGROUP": 0x2000000,
    "NEWUTS": 0x4000000,
    "NEWIPC": 0x8000000,
    "NEWUSER": 0x10000000,
    "NEWPID": 0x20000000,
    "NEWNET": 0x40000000,
}
FAMILIES = {
    "NETLINK": 16,
    "PACKET": 17,
    "RDS": 21,
    "TIPC": 30,
    "BLUETOOTH": 31,
    "CAN": 29,
    "ALG": 38,
    "VSOCK": 40,
    "QIPCRTR": 42,
    "SMC": 43,
    "XDP": 44,
}
HERE = 1 if platform.machine() == "aarch64" else 0
LIBC = ctypes.CDLL(None, use_errno=True)


def call(number: int, *args: int) -> str:
    """The errno's name a raw call ends with, or `allowed`; in a child, for some do not come back."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        result = LIBC.syscall(ctypes.c_long(number), *(ctypes.c_ulong(arg) for arg in args))
        code = ctypes.get_errno() if result == -1 else 0
        os.write(writer, bytes([code]))
        os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    answer = os.read(reader, 1)
    os.close(reader)
    if not answer:
        return "killed"
    return errno.errorcode.get(answer[0], str(answer[0])) if answer[0] else "allowed"


def family(number: int, kind: int = socket.SOCK_STREAM, protocol: int = 0) -> str:
    """The errno's name a socket of the family ends with, or `allowed`."""
    try:
        socket.socket(number, kind, protocol).close()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "allowed"


def probes() -> Iterator[tuple[str, str]]:
    """Every probe's name and what it ended with."""
    # An address and a descriptor nobody has, so that nothing happens if a call is let through.
    bad = (1 << 64) - 1
    for name, numbers in NUMBERS.items():
        number = numbers[HERE]
        # These three would do something, were they let through: only when asked.
        if number is None or (name in {"sync", "vhangup", "mlockall"} and "--all" not in sys.argv):
            continue
        first = 0x100000 if name == "unshare" else bad
        yield name, call(number, first, bad, bad, bad, bad, bad)
    for name, flag in NAMESPACES.items():
        yield f"clone {name}", call(CLONE[HERE] or 0, flag | 17, 0, 0, 0, 0)
        yield f"unshare {name}", call(NUMBERS["unshare"][HERE] or 0, flag)
    for name, number in FAMILIES.items():
        yield f"socket AF_{name}", family(number, socket.SOCK_RAW)
    yield "socket raw", family(socket.AF_INET, socket.SOCK_RAW, 1)
    yield "socket MPTCP", family(socket.AF_INET, socket.SOCK_STREAM, 262)
    yield "socket SCTP", family(socket.AF_INET, socket.SOCK_STREAM, 132)
    yield "ioctl TIOCSTI", call(IOCTL[HERE], 0, 0x5412, bad)
    yield "ioctl TIOCSTI, high bits set", call(IOCTL[HERE], 0, 0x100005412, bad)
    yield "personality ADDR_NO_RANDOMIZE", call(PERSONALITY[HERE], 0x0040000)
    path = ctypes.create_string_buffer(b"/tmp/device")
    yield "mknodat character device", call(MKNODAT[HERE], bad, ctypes.addressof(path), 0o020666, 0x103)
    if not HERE:
        yield "x32 getpid", call(0x40000000 | 39)


def main() -> int:
    """Print all probes; the exit code."""
    through = 0
    for name, result in probes():
        refused = result in {"EPERM", "ENOSYS", "killed"}
        through += not refused
        sys.stdout.write(f"{'refused' if refused else 'LET THROUGH'}  {result:8} {name}\n")
    return 1 if through else 0


if __name__ == "__main__":
    sys.exit(main())
