"""System calls that the standard library lacks, for the programs that make and enter a sandbox.

Standard library only, Python 3.8+: it is part of what runs inside an image. Every call raises
:class:`OSError` with its own name. Numbers are those of x86-64 and aarch64.
"""

from __future__ import annotations

import array
import ctypes
import errno
import os
import socket
import struct
from typing import Any

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
SIGCHLD = 17

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 4096, 16384, 1 << 18
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC = 1, 2, 4, 8

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 24, 38
CAP_KILL, CAP_SETGID, CAP_SETUID, CAP_SETFCAP = 5, 6, 7, 31

_CALLS = {
    "x86_64": {"clone": 56, "pivot_root": 155, "capset": 126},
    "aarch64": {"clone": 220, "pivot_root": 41, "capset": 91},
}
# The same on every machine since Linux 5.1.
_MOUNT_SETATTR = 442
_PIDFD_OPEN = 434
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_OPEN_TREE, _MOVE_MOUNT = 428, 429
_AT_FDCWD, _AT_RECURSIVE, _AT_EMPTY_PATH = -100, 0x8000, 0x1000

# PyDLL keeps the interpreter's lock: no Python code must run between a clone and its hooks.
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
# Found here once, not in every fork.
_socket, _ioctl, _prctl, _names = (
    _libc.socket,
    _libc.ioctl,
    _libc.prctl,
    (_libc.sethostname, _libc.setdomainname),
)
_MACHINE = os.uname().machine
_LOOPBACK_UP = struct.pack("16sH14x", b"lo", 1)  # struct ifreq, IFF_UP


def _number(name: str) -> int:
    if _MACHINE not in _CALLS:
        raise OSError(38, f"{name}: this machine is {_MACHINE}; known are {', '.join(_CALLS)}")
    return _CALLS[_MACHINE][name]


def _checked(what: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _syscall(what: str, number: int, *arguments: Any) -> int:
    passed = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    return _checked(what, int(_libc.syscall(ctypes.c_long(number), *passed)))


def _ready(what: str, *numbers: Any) -> SystemCall:
    """A call by its number."""
    return SystemCall(
        what, _libc.syscall, *(ctypes.c_long(one) if isinstance(one, int) else one for one in numbers)
    )


def cloning(flags: int) -> tuple[Any, tuple[Any, ...]]:
    """clone(2) into new namespaces, made ready: the function and its arguments. forks.py calls it."""
    return _libc.syscall, tuple(map(ctypes.c_long, (_number("clone"), flags | SIGCHLD, 0, 0, 0, 0)))


class SystemCall:
    """A system call made ready. A fork copies each page that it touches: so names are looked up and arguments
    converted once, before all forks."""

    __slots__ = ("arguments", "function", "may_lack", "what")

    def __init__(self, what: str, function: Any, *arguments: Any, may_lack: str | None = None) -> None:
        """``may_lack``: a path; if it does not exist, there is nothing to do and no failure."""
        self.what = what
        self.function = function
        self.arguments = arguments
        self.may_lack = may_lack

    def __call__(self) -> None:
        """Makes the call. Raises :class:`OSError`."""
        if self.function(*self.arguments) < 0:
            failure = ctypes.get_errno()
            if failure != errno.ENOENT or self.may_lack is None or os.path.lexists(self.may_lack):
                raise OSError(failure, f"{self.what}: {os.strerror(failure)}")


def trim_memory() -> None:
    """Gives unused memory back: every fork copies the page tables of what is held."""
    trim = getattr(_libc, "malloc_trim", None)  # only the GNU library has it
    if trim is not None:
        trim(0)


def unshare(flags: int) -> None:
    """Leaves these namespaces for new ones."""
    _checked("unshare", _libc.unshare(flags))


def mounting(
    source: str, target: str, kind: str | None, flags: int = 0, options: str = "", *, may_lack: bool = False
) -> SystemCall:
    """mount(2), made ready."""
    passed = [None if one is None else os.fsencode(one) for one in (source, target, kind)]
    more = (ctypes.c_ulong(flags), os.fsencode(options) or None)
    return SystemCall(f"mount {target}", _libc.mount, *passed, *more, may_lack=target if may_lack else None)


def mount(source: str, target: str, kind: str | None, flags: int = 0, options: str = "") -> None:
    """mount(2)."""
    mounting(source, target, kind, flags, options)()


def restricting(target: str, attributes: int, *, recursive: bool) -> SystemCall:
    """:func:`restrict_mount`, made ready."""
    wanted = struct.pack("4Q", attributes, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    numbers = (_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(target), flags, wanted, len(wanted))
    return _ready(f"mount_setattr {target}", *numbers)


def restrict_mount(target: str, attributes: int, *, recursive: bool) -> None:
    """Adds these attributes to a mount, and with ``recursive`` to every mount below. Linux 5.12."""
    restricting(target, attributes, recursive=recursive)()


def detached_mount(path: str, attributes: int) -> int:
    """A descriptor of a mount of this file or folder, with these attributes, that is not attached yet."""
    clone_it, close_on_exec = 1, os.O_CLOEXEC
    tree = _syscall(f"open_tree {path}", _OPEN_TREE, _AT_FDCWD, os.fsencode(path), clone_it | close_on_exec)
    wanted = struct.pack("4Q", attributes, 0, 0, 0)
    try:
        _syscall(f"mount_setattr {path}", _MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, wanted, len(wanted))
    except OSError:
        os.close(tree)
        raise
    return tree


def attaching(tree: int, target: str) -> SystemCall:
    """The call that attaches a detached mount, made ready."""
    from_itself = 4
    return _ready(f"move_mount {target}", _MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), from_itself)


def pivoting(new: str) -> tuple[SystemCall, ...]:
    """:func:`pivot_root`, made ready."""
    return (
        SystemCall(f"chdir {new}", _libc.chdir, os.fsencode(new)),
        _ready("pivot_root", _number("pivot_root"), b".", b"."),
        SystemCall("umount", _libc.umount2, b".", MNT_DETACH),
        SystemCall("chdir /", _libc.chdir, b"/"),
    )


def pivot_root(new: str) -> None:
    """Makes a mount the root and detaches the old one."""
    for call in pivoting(new):
        call()


def prctl(what: str, option: int, argument: int = 0, pointer: Any = 0) -> None:
    """prctl(2)."""
    extra = ctypes.c_ulong(pointer) if isinstance(pointer, int) else pointer
    _checked(what, _prctl(option, ctypes.c_ulong(argument), extra, ctypes.c_ulong(0), ctypes.c_ulong(0)))


def keep_capabilities(kept: tuple[int, ...]) -> None:
    """Keeps these capabilities only, so that none can be gained."""
    drop, number, nothing = ctypes.c_int(PR_CAPBSET_DROP), ctypes.c_ulong(0), ctypes.c_ulong(0)
    for capability in range(64):
        number.value = capability
        if capability not in kept and _prctl(drop, number, nothing, nothing, nothing) < 0:
            if ctypes.get_errno() != errno.EINVAL:  # past the kernel's last
                _checked("drop a capability", -1)
            break
    hold_capabilities(kept)


def hold_capabilities(kept: tuple[int, ...]) -> None:
    """Gives up every capability but these; the bounding set stays."""
    mask = sum(1 << capability for capability in kept)
    header = struct.pack("Ii", 0x20080522, 0)
    _syscall("capset", _number("capset"), header, struct.pack("6I", mask, mask, 0, 0, 0, 0))


def set_host_name(name: bytes) -> None:
    """Sets the name of this UTS namespace; its domain becomes empty."""
    for call, text in zip(_names, (name, b"")):
        _checked("set the host's name", call(text, len(text)))


def raise_loopback() -> None:
    """Brings up the one interface of a new network namespace."""
    any_socket = _checked("socket", _socket(2, 2, 0))  # AF_INET, SOCK_DGRAM
    _checked("ioctl", _ioctl(any_socket, ctypes.c_ulong(0x8914), _LOOPBACK_UP))  # SIOCSIFFLAGS
    os.close(any_socket)


def open_pidfd(pid: int) -> int:
    """A descriptor that names a process for ever."""
    return _syscall("pidfd_open", _PIDFD_OPEN, pid, 0)


class BpfProgram:
    """A BPF program, in memory that the kernel can read."""

    def __init__(self, program: bytes) -> None:
        self.text = ctypes.create_string_buffer(program, len(program))
        described = struct.pack("HP", len(program) // 8, ctypes.addressof(self.text))
        self.described = ctypes.create_string_buffer(described, len(described))


def filter_system_calls(program: BpfProgram) -> None:
    """Has the kernel check every further system call by this program."""
    prctl("install the seccomp filter", PR_SET_SECCOMP, 2, program.described)


# --- Landlock ----------------------------------------------------------------------------------------

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _REFER, _IOCTL_DEV = 1 << 14, 1 << 13, 1 << 15
_READING = _EXECUTE | _READ_FILE | _READ_DIR


def landlock_version() -> int:
    """The version of Landlock that this kernel offers; 0 for none."""
    asked = (ctypes.c_long(_LANDLOCK_CREATE), None, ctypes.c_long(0), ctypes.c_long(1))
    return max(0, int(_libc.syscall(*asked)))


class FileRules:
    """Rights: read and run everywhere; write to files below some folders and to some devices; all below
    others."""

    def __init__(self, version: int, everything: list[str], writable: list[str], devices: list[str]) -> None:
        """``version``: the result of :func:`landlock_version`."""
        known = (1 << 13) - 1
        known |= _REFER if version >= 2 else 0
        known |= _TRUNCATE if version >= 3 else 0
        known |= _IOCTL_DEV if version >= 5 else 0
        writing = (_READING | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV) & known
        self.handled = struct.pack("Q", known)
        self.allowed = [("/", _READING)] + [(path, known) for path in everything]
        self.allowed += [(path, writing) for path in writable]
        self.allowed += [(path, writing & ~_READ_DIR) for path in devices]

    def restrict(self) -> None:
        """Applies the rules to this process and its children from now on."""
        rules = _syscall("landlock_create_ruleset", _LANDLOCK_CREATE, self.handled, len(self.handled), 0)
        for path, rights in self.allowed:
            below = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rule = struct.pack("=Qi", rights, below)
            _syscall("landlock_add_rule", _LANDLOCK_ADD, rules, 1, rule, 0)
            os.close(below)
        _syscall("landlock_restrict_self", _LANDLOCK_RESTRICT, rules, 0)
        os.close(rules)


def receive(control: socket.socket, size: int) -> tuple[bytes, list[int]]:
    """One packet and the descriptors passed with it; an empty packet when the peer is gone."""
    found = array.array("i")
    space = socket.CMSG_SPACE(16 * found.itemsize)
    packet, ancillary, _, _ = control.recvmsg(size, space, socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return packet, list(found)
