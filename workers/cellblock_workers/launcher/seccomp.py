"""The strict allow-list of system calls, in the form that a container runtime takes.

The list itself is made and explained in ``seccomp/``; what it stops is proven by ``seccomp/probe.py``,
the canary and tests/attacks.
"""

from __future__ import annotations

import json
import platform
import socket
from collections.abc import Sequence
from importlib import resources
from typing import Any

from cellblock_config import Isolation
from cellblock_workers.launcher.backend import NotOnThisHost, StartFailed

_MACHINES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}
#: gVisor's name for a call that everything else knows by the first name.
_GVISOR_NAMES = {"pselect6": "pselect"}
_RULE_KEYS = {"names", "action", "args", "errnoRet", "comment"}


def strict_profile(isolation: Isolation) -> dict[str, Any]:
    """The allow-list in Docker's format.

    runsc turns every refusal into EPERM, on which the C library gives up where it would go on after ENOSYS.
    So calls with another answer are left to gVisor's own kernel there: it has no clone3, which the canary
    tests, and takes no advice on files. And runsc looks names up in the table of its own kernel, where one
    call has another name; it ignores names that it does not know.
    """
    text = (resources.files("cellblock_config") / "data" / "seccomp-strict.json").read_text()
    profile: dict[str, Any] = json.loads(text)
    if isolation == "gvisor":
        for rule in profile["syscalls"]:
            if rule.pop("errnoRet", None) is not None:
                rule.update(action="SCMP_ACT_ALLOW")
            rule["names"] += [_GVISOR_NAMES[name] for name in rule["names"] if name in _GVISOR_NAMES]
    return profile


def watched(profile: dict[str, Any]) -> dict[str, Any]:
    """The same list for a sandbox without a cgroup, whose processors and memory bound it in other ways.

    It must not change its processors. To set the size of a socket's buffer succeeds and does nothing: what
    lies in sockets belongs to no process, and is counted by how many there are (memory_watch.py).
    """
    rules = []
    for rule in profile["syscalls"]:
        ignored = "setsockopt" in rule["names"] and _names_a_buffer(rule["args"])
        left_out = {"sched_setaffinity", "setsockopt"} if ignored else {"sched_setaffinity"}
        rules.append({**rule, "names": [name for name in rule["names"] if name not in left_out]})
        if ignored:
            nothing = {"names": ["setsockopt"], "action": "SCMP_ACT_ERRNO", "errnoRet": 0}
            rules.append({**rule, **nothing})
    return {**profile, "syscalls": rules}


def _names_a_buffer(tests: Sequence[dict[str, Any]]) -> bool:
    values = {test["index"]: test["value"] for test in tests if test["op"] == "SCMP_CMP_EQ"}
    return values.get(1) == socket.SOL_SOCKET and values.get(2) in {socket.SO_SNDBUF, socket.SO_RCVBUF}


def oci_filter(profile: dict[str, Any], machine: str | None = None) -> dict[str, Any]:
    """A profile of Docker's as ``linux.seccomp`` of an OCI bundle for this machine.

    What Docker would resolve (conditions on capabilities, machines, kernels) is refused rather than dropped:
    raises :class:`StartFailed`, and :class:`NotOnThisHost` on a machine that the profile does not cover.
    """
    machine = machine or platform.machine()
    if (native := _MACHINES.get(machine)) is None:
        raise NotOnThisHost(f"seccomp: the strict profile covers {', '.join(_MACHINES)}, not {machine}")
    architectures = [
        name
        for entry in profile["archMap"]
        if entry["architecture"] == native
        for name in (native, *entry["subArchitectures"])
    ]
    for rule in profile["syscalls"]:
        if unknown := set(rule) - _RULE_KEYS:
            raise StartFailed(f"seccomp: the rule for {rule['names'][0]} has {sorted(unknown)}, unknown here")
    return {
        "defaultAction": profile["defaultAction"],
        "architectures": architectures,
        "syscalls": [
            {key: value for key, value in rule.items() if key != "comment"} for rule in profile["syscalls"]
        ],
    }
