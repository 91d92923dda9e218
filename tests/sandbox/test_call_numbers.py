"""Every system call by its number: what the list allows is allowed, what it does not name is refused.

A runtime that looks names up in a table of its own may know a call by another one, and ignore ours.
"""

from __future__ import annotations

import ctypes
import json
import platform
from collections.abc import Mapping

import pytest

from cellblock import Outcome
from cellblock_workers.launcher.seccomp import strict_profile
from sandbox.conftest import Run

_X86_64, _LAST = 0xC000003E, 470
#: Refused to these arguments by the kernel, whatever the filter says: a leader of a group, no capability.
_REFUSED_BY_THE_KERNEL = {"setsid", "setgroups"}
#: Refused by the sentry's own table (pkg/sentry/syscalls/linux/linux64.go), whatever its filter says.
_REFUSED_BY_THE_SENTRY = {"sched_rr_get_interval"}
#: No call of a program's: where a trampoline of the kernel's own lands, before any filter.
_TRAMPOLINES = {335, 336}
#: Each call with arguments that do nothing. A child makes one after the other; where it is killed, ends or
#: waits, that is the call's answer, and the next child goes on behind it: under gVisor forks cost most.
_CALLS = f"""
import ctypes, os, select
LIBC, NOWHERE = ctypes.CDLL(None, use_errno=True), (1 << 64) - 1
ALONE = {{57, 58}}  # fork and vfork: who comes back is not alone
def make(numbers, said):
    os.setpgid(0, 0)
    mine = os.getpid()
    for number in numbers:
        answer = LIBC.syscall(ctypes.c_long(number), *[ctypes.c_ulong(NOWHERE)] * 6)
        code = ctypes.get_errno() if answer == -1 else 0
        if number in ALONE or os.getpid() == mine: os.write(said, bytes([code]))
        if number in ALONE or os.getpid() != mine: break
    os._exit(0)
def answers(first):
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        try: make(range(first, {_LAST}), theirs)
        finally: os._exit(0)
    os.close(theirs)
    poller, found = select.poll(), []
    poller.register(ours, select.POLLIN)
    while poller.poll(1000):
        said = os.read(ours, 1)
        if not said: break
        found.append(said[0])
        if first + len(found) - 1 in ALONE: break
    else: found.append('waits')
    try: os.kill(child, 9)
    except ProcessLookupError: pass
    status = os.waitpid(child, 0)[1]
    os.close(ours)
    if found[-1:] != ['waits'] and not said and first + len(found) < {_LAST}:
        found.append('killed' if status & 127 == 31 else 'ended')
    return found
told = []
while len(told) < {_LAST}: told += answers(len(told))
result = {{str(number): how for number, how in enumerate(told)}}
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86_64")
def test_what_the_list_allows_is_allowed_and_the_rest_refused(run: Run, way: str) -> None:
    result = run(_CALLS, way=way, limits={"timeout_s": 50})
    assert result.outcome is Outcome.OK, result
    ended: Mapping[str, int | str] = json.loads(json.dumps(result.value))
    allowed, ruled = _allowed()
    by_kernel = _REFUSED_BY_THE_KERNEL | (_REFUSED_BY_THE_SENTRY if way.startswith("gvisor") else set())
    wrong = []
    for number, how in ((int(number), how) for number, how in ended.items()):
        name = _name_of(number)
        refused = how == "killed" or how == 1  # EPERM
        if name in by_kernel or number in _TRAMPOLINES:
            continue
        if name in ruled and not refused:
            wrong.append(f"{name} ({number}) is allowed with some arguments only and ended {how}")
        if name in allowed and refused:
            wrong.append(f"{name} ({number}) is allowed and was refused")
        if name not in allowed | ruled and not (refused or how == 38):  # ENOSYS
            wrong.append(f"{name} ({number}) is not allowed and ended {how}")
    assert not wrong
    assert len(ended) == _LAST


def test_select_waits(run: Run, way: str) -> None:
    """The call most programs wait with, by the name that a kernel of another table has for it."""
    code = "import select, socket\na, b = socket.socketpair()\nb.send(b'x')\n"
    code += "select.select([a], [], [], 5)[0] == [a]"
    assert run(code, way=way).value is True


def test_gvisor_is_told_the_names_its_own_table_has() -> None:
    named = {name for rule in strict_profile("gvisor")["syscalls"] for name in rule["names"]}
    assert {"pselect6", "pselect"} <= named
    assert "pselect" not in {name for rule in strict_profile("runc")["syscalls"] for name in rule["names"]}


def _allowed() -> tuple[set[str], set[str]]:
    """By name: allowed whatever the arguments, and with some arguments only."""
    allowed: set[str] = set()
    ruled: set[str] = set()
    for rule in strict_profile("runc")["syscalls"]:
        if rule["action"] == "SCMP_ACT_ALLOW":
            (ruled if rule["args"] else allowed).update(rule["names"])
    return allowed, ruled


def _name_of(number: int) -> str:
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_syscall_resolve_num_arch.restype = ctypes.c_char_p
    found = library.seccomp_syscall_resolve_num_arch(ctypes.c_uint32(_X86_64), number)
    return str(found.decode()) if found else ""
