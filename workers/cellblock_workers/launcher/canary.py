"""The program that every container has to hold before a job may run in one like it.

It runs as the guest would, as root with the guest's three capabilities, and only its exit code is believed.
"""

from __future__ import annotations

from cellblock_workers.launcher.backend import StartFailed

# Exit code 0 only if each control bites: no interface but the loopback, nothing written outside /tmp, no
# capability beyond the guest's three, and system calls filtered (the program cannot make a user namespace,
# neither by unshare nor by clone3, whose flags a filter cannot see).
CANARY = """
import ctypes, os, struct, sys
links = [line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line]
if set(links) - {"lo"}:
    sys.exit(10)
try:
    open("/canary", "w")
    sys.exit(11)
except OSError:
    pass
open("/tmp/canary", "w").close()
caps = [line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")]
if caps and int(caps[0], 16) & ~0xE0:
    sys.exit(12)
libc = ctypes.CDLL(None)
if libc.unshare(0x10000000) == 0:
    sys.exit(13)
made = libc.syscall(435, struct.pack("8Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0), 64)
if made >= 0:
    os._exit(13) if made else os._exit(0)
"""
_MEANING = {
    10: "there is a network interface besides the loopback",
    11: "the root is writable",
    12: "capabilities are left",
    13: "system calls are not filtered (gVisor through Docker: runtimeArgs need --oci-seccomp, "
    "see config/host/daemon.json)",
}


def check_canary(isolation: str, exit_code: int | None) -> None:
    """Raises :class:`StartFailed` with the control that did not bite. None: its end is not known."""
    if exit_code != 0:
        meaning = _MEANING.get(exit_code or -1, "the canary did not run")
        raise StartFailed(f"{isolation}: {meaning} (canary exit code {exit_code})")
