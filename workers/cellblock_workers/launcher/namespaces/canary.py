"""The two attacks that a probe runs in the guest's place, and what their ends mean.

The launcher believes the wait status, the cgroup, and what the host's own /proc says of the process. It reads
nothing that the canary writes.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from cellblock_workers.launcher.backend import StartFailed

CONTROLS, MEMORY = 0, 1
PIDS = 8
MEMORY_BYTES = 64 * 1024 * 1024

# `options` holds what the guest would be told. The last lines hold the process for the host to look at.
_CONTROLS = f"""
import ctypes, os, resource, struct
def fail(code):
    os._exit(code)
if {{line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line}} - {{"lo"}}:
    fail(10)
for path in ("/canary", "/etc/canary", "/dev/canary", "/usr/canary"):
    try:
        open(path, "w")
    except OSError:
        continue
    fail(11)
with open("/tmp/canary", "w") as file:
    file.write("x")
lines = [line.replace(":", " ").split() for line in open("/proc/self/status")]
status = dict(line[:2] for line in lines if len(line) > 1)
if any(int(status[name], 16) & ~0xE0 for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")):
    fail(12)
if status["NoNewPrivs"] != "1" or status["Seccomp"] != "2":
    fail(13)
libc = ctypes.CDLL(None)
asked = struct.pack("8Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0)
if libc.unshare(0x10000000) == 0 or libc.syscall(435, asked, 64) >= 0:
    fail(13)
if os.getpid() != 1 or [name for name in os.listdir("/proc") if name.isdigit()] != ["1"]:
    fail(14)
space = os.statvfs("/tmp")
if space.f_blocks * space.f_frsize > options["tmp_bytes"] or space.f_files > options["tmp_inodes"]:
    fail(15)
if os.getuid() != options["uid"]:
    child = os.fork()
    if child == 0:
        os.setresgid(*[options["uid"]] * 3)
        os.setresuid(*[options["uid"]] * 3)
        try:
            os.setuid(0)
        except OSError:
            os._exit(0)
        os._exit(1)
    if os.waitpid(child, 0)[1]:
        fail(16)
    os.setresgid(*[options["uid"]] * 3)
    os.setresuid(*[options["uid"]] * 3)
if options["nproc"]:
    resource.setrlimit(resource.RLIMIT_NPROC, (options["nproc"],) * 2)
for made in range({PIDS} + 8):
    try:
        if os.fork() == 0:
            os.read(0, 1)
            os._exit(0)
    except OSError:
        break
else:
    fail(17)
os.write(1, b"1")
os.read(0, 1)
"""
_MEMORY = f"""
import os
os.write(1, b"1")
os.read(0, 1)
child = os.fork()
if child == 0:
    held = bytearray(b"x") * {4 * MEMORY_BYTES}
    os.read(0, 1)
os.waitpid(child, 0)
"""
TEXTS = (_CONTROLS, _MEMORY)

_MEANING = {
    10: "network: there is an interface besides the loopback",
    11: "root: it is writable",
    12: "capabilities: more than the guest's are left",
    13: "seccomp: system calls are not filtered",
    14: "processes: others can be seen",
    15: "tmpfs: /tmp is larger than it should be",
    16: "uid: the job could become root again",
    17: f"pids: more than {PIDS} processes could be made",
}
_NAMESPACES = ("user", "pid", "mnt", "net", "ipc", "uts")


def check_controls(status: int | None) -> None:
    """Raises :class:`StartFailed` unless every control has held."""
    if status != 0:
        code = os.waitstatus_to_exitcode(status) if status is not None else None
        raise StartFailed(
            f"namespaces: {_MEANING.get(code or 0, 'the canary did not run')} (canary exit code {code}); "
            "docs/adr/0006 says what each control needs of the host"
        )


def check_process(pidfd: int, *, several_ids: bool, cgroup: Path | None) -> None:
    """Checks a running canary from the host: it shares nothing with the launcher, and is not root.

    Raises :class:`StartFailed`.
    """
    pid = pid_of(pidfd)
    status = Path(f"/proc/{pid}/status").read_text()
    zygote = re.findall(r"^PPid:\s+(\d+)", status, re.MULTILINE)
    for name in _NAMESPACES:
        for other in ("self", *zygote):
            if Path(f"/proc/{pid}/ns/{name}").readlink() == Path(f"/proc/{other}/ns/{name}").readlink():
                raise StartFailed(f"namespaces: the {name} namespace is not its own")
    ids = re.findall(r"^[UG]id:\s+(\d+)\s+(\d+)", status, re.MULTILINE)
    if several_ids and any("0" in pair for pair in ids):
        raise StartFailed("namespaces: uid: the sandbox is root on the host")
    if cgroup is not None and f"/{cgroup}" not in Path(f"/proc/{pid}/cgroup").read_text():
        raise StartFailed("namespaces: cgroups: the sandbox is not in its own")


def pid_of(pidfd: int) -> int:
    """The host's pid of the process that a pidfd names. Raises :class:`StartFailed` if it has ended."""
    found = re.search(r"^Pid:\s+(\d+)$", Path(f"/proc/self/fdinfo/{pidfd}").read_text(), re.MULTILINE)
    if found is None:
        raise StartFailed("namespaces: the canary ended before it could be looked at")
    return int(found[1])
