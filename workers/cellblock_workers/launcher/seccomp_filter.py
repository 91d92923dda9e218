"""Compiles a seccomp profile in Docker's format to the BPF program for the kernel, with libseccomp."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from cellblock_workers.launcher.backend import NotOnThisHost, StartFailed

_LIBRARY = "libseccomp.so.2"
_ACTIONS = {"SCMP_ACT_ALLOW": 0x7FFF0000, "SCMP_ACT_ERRNO": 0x00050000, "SCMP_ACT_KILL_PROCESS": 0x80000000}
_COMPARISONS = {
    "SCMP_CMP_NE": 1,
    "SCMP_CMP_LT": 2,
    "SCMP_CMP_LE": 3,
    "SCMP_CMP_EQ": 4,
    "SCMP_CMP_GE": 5,
    "SCMP_CMP_GT": 6,
    "SCMP_CMP_MASKED_EQ": 7,
}
_EPERM = 1
_OPTIMIZE, _AS_A_TREE = 8, 2


class _Argument(ctypes.Structure):
    _fields_ = (
        ("index", ctypes.c_uint),
        ("comparison", ctypes.c_int),
        ("value", ctypes.c_uint64),
        ("value_two", ctypes.c_uint64),
    )


def compile_profile(profile: dict[str, Any]) -> bytes:
    """The program for this machine. System calls that this machine does not have are left out.

    A call of another architecture kills its caller. Raises :class:`NotOnThisHost` without libseccomp, and
    :class:`StartFailed` for a profile that it refuses.
    """
    library = _library()
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(_action(profile["defaultAction"], {})))
    if not context:
        raise StartFailed("seccomp: libseccomp could not start a filter")
    try:
        library.seccomp_attr_set(context, _OPTIMIZE, _AS_A_TREE)  # only speed: older ones go without
        for rule in profile["syscalls"]:
            for name in rule["names"]:
                _add(library, context, name, rule)
        return _export(library, context)
    finally:
        library.seccomp_release(context)


def _library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise NotOnThisHost(
            f"seccomp: {_LIBRARY} is missing, and no sandbox starts without its filter; "
            "apt-get install libseccomp2"
        ) from error


def _action(name: str, rule: dict[str, Any]) -> ctypes.c_uint32:
    if name not in _ACTIONS:
        raise StartFailed(f"seccomp: the profile's action {name} is unknown; known are {', '.join(_ACTIONS)}")
    errno = int(rule.get("errnoRet", _EPERM)) if name == "SCMP_ACT_ERRNO" else 0
    return ctypes.c_uint32(_ACTIONS[name] | errno)


def _add(library: ctypes.CDLL, context: ctypes.c_void_p, name: str, rule: dict[str, Any]) -> None:
    number = library.seccomp_syscall_resolve_name(name.encode())
    if number < 0:
        return
    tests = rule["args"]
    arguments = (_Argument * len(tests))(
        *(
            _Argument(test["index"], _COMPARISONS[test["op"]], test["value"], test["valueTwo"])
            for test in tests
        )
    )
    failure = library.seccomp_rule_add_array(
        context, _action(rule["action"], rule), number, len(tests), arguments
    )
    if failure:
        raise StartFailed(f"seccomp: the rule for {name} was refused: {os.strerror(-failure)}")


def _export(library: ctypes.CDLL, context: ctypes.c_void_p) -> bytes:
    file = os.memfd_create("seccomp")
    try:
        if failure := library.seccomp_export_bpf(context, file):
            raise StartFailed(f"seccomp: the filter could not be written: {os.strerror(-failure)}")
        return os.pread(file, os.fstat(file).st_size, 0)
    finally:
        os.close(file)
