"""Builds an image's root, starts its zygote in it, and waits for it. Each zygote has one such process.

The launcher runs it. Descriptor 0 is the control socket; the arguments are the
:class:`~cellblock_workers.launcher.namespaces.roots.Root` as JSON and the descriptor of the zygote's program.
No code of the image runs before the host is out of sight and every privilege on it is gone.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import stat
import sys
from pathlib import Path
from typing import Any

from cellblock_workers.zygote import forks, kernel
from cellblock_workers.zygote.root import DEVICES
from cellblock_workers.zygote.zygote import say

PROGRAM = 3

_NAMESPACES = (
    kernel.NEWUSER
    | kernel.NEWPID
    | kernel.NEWNS
    | kernel.NEWNET
    | kernel.NEWIPC
    | kernel.NEWUTS
    | kernel.NEWCGROUP
)
_READ_ONLY = kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | kernel.ATTR_NODEV
#: Runs in the image's interpreter: the zygote's modules come with the program, so that no file of ours is
#: needed. A fork leaves the zygote's stack, and is called from a frame that holds nothing of it.
_STARTER = f"""
def become_sandbox():
    import json, socket, sys, types
    with open({PROGRAM}, 'rb') as file: program = json.load(file)
    package = 'cellblock_workers.zygote'
    for name in ('cellblock_workers', package, *program['modules']):
        module = sys.modules[name] = types.ModuleType(name)
        file = name.partition('.')[2].replace('.', '/') + '.py'
        exec(compile(program['modules'].get(name, ''), file, 'exec'), module.__dict__)
        if name.startswith(package + '.'): setattr(sys.modules[package], name.rpartition('.')[2], module)
    zygote = sys.modules[package + '.zygote']
    for name in [name for name in sys.modules if name.startswith('cellblock_workers')]: del sys.modules[name]
    return zygote.main(socket.socket(fileno=0), program)
role = become_sandbox()
del become_sandbox
role()
"""


def build(root: dict[str, Any], *, several: bool) -> None:
    """Makes this process's root: the image or the host's Python, read-only, and a minimal /dev."""
    kernel.unshare(kernel.NEWNS)
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    new = Path(root["mount_point"])
    if root["folder"] is not None:
        kernel.mount(root["folder"], str(new), None, kernel.MS_BIND)
    else:
        kernel.mount("tmpfs", str(new), "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,mode=755")
        _fill(new, root)
    kernel.restrict_mount(str(new), _READ_ONLY, recursive=True)
    bare = os.open(new, os.O_PATH)
    _make_devices(new / "dev", root["seats"] if several else 1, nodes=several, files=root["files"])
    kernel.mount(f"/proc/self/fd/{bare}", str(new / "dev" / "image"), None, kernel.MS_BIND)
    os.close(bare)
    kernel.mount("/proc", str(new / "proc"), None, kernel.MS_BIND | kernel.MS_REC)
    kernel.pivot_root(str(new))


def _fill(new: Path, root: dict[str, Any]) -> None:
    for name in ("dev", "proc", "tmp", "etc", "mnt"):
        (new / name).mkdir()
    (new / "mnt" / "context_data").touch()
    for name, linked in root["links"].items():
        (new / name).symlink_to(linked)
    for source in map(Path, root["copies"]):
        _copy(source, new / str(source).lstrip("/"))
    for source in root["views"]:
        target = new / source.lstrip("/")
        target.mkdir(parents=True, exist_ok=True)
        kernel.mount(source, str(target), None, kernel.MS_BIND | kernel.MS_REC)


def _copy(source: Path, target: Path) -> None:
    """Copies a file, or the links in a folder."""
    if source.is_file():
        target.write_bytes(source.read_bytes())
    elif source.is_dir():
        target.mkdir()
        for link in source.iterdir():
            if link.is_symlink():
                (target / link.name).symlink_to(link.readlink())


def _make_devices(folder: Path, seats: int, *, nodes: bool, files: dict[str, str]) -> None:
    """Makes a /dev for the zygote, in it one for each seat of a sandbox, and the files that lie over the
    image.

    Without root on the host it cannot make nodes: then there is one seat, with the host's nodes.
    """
    flags = kernel.MS_NOSUID | kernel.MS_NOEXEC
    kernel.mount("tmpfs", str(folder), "tmpfs", flags, "size=16m,mode=755")
    for name in ("image", "own", "own/etc"):
        (folder / name).mkdir(mode=0o755)
    for name, text in files.items():
        (folder / "own" / name).write_text(text)
    for devices in (folder, *(folder / str(number) for number in range(seats))):
        devices.mkdir(exist_ok=True)
        for name in DEVICES:
            if nodes:
                os.mknod(devices / name, 0o666 | stat.S_IFCHR, Path(f"/dev/{name}").stat().st_rdev)
                (devices / name).chmod(0o666)
            else:
                (devices / name).touch()
                kernel.mount(f"/dev/{name}", str(devices / name), None, kernel.MS_BIND)
        for name in ("pts", "shm"):
            (devices / name).mkdir(mode=0o755)
        (devices / "ptmx").symlink_to("pts/ptmx")
        for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
            (devices / name).symlink_to(f"/proc/self/fd{target}")
    inert = kernel.ATTR_RDONLY | kernel.ATTR_NOSUID | kernel.ATTR_NOEXEC
    kernel.restrict_mount(str(folder), inert, recursive=True)


def become_root_of_own() -> None:
    """Without root on the host: makes this process root of a user namespace that holds this user alone."""
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(kernel.NEWUSER)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"0 {uid} 1\n")
    _write("/proc/self/gid_map", f"0 {gid} 1\n")


def map_ids(pid: int, root: dict[str, Any], *, several: bool) -> None:
    """Maps the zygote's ids to the host's: to a range that no user has, or to an unprivileged launcher's
    id."""
    text = f"0 {root['first_id']} {root['ids']}\n" if several else "0 0 1\n"
    for name in ("uid_map", "gid_map"):
        _write(f"/proc/{pid}/{name}", text)


def become_zygote(root: dict[str, Any], hold: int) -> None:
    """In the new namespaces: gives up every right but to make sandboxes, and runs the image's Python."""
    kernel.prctl("death signal", kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    os.read(hold, 1)
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    kernel.prctl("death signal", kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # changing ids cleared it
    if os.getppid() != 0:  # outside of this PID namespace: 0
        raise OSError(3, "the launcher ended before its zygote was ready")
    kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    kernel.set_host_name(b"sandbox")
    kernel.prctl("no new privileges", kernel.PR_SET_NO_NEW_PRIVS, 1)
    # CAP_SETFCAP: without it the id 0 of a namespace cannot be handed on, and without root outside there is
    # no other.
    kernel.keep_capabilities((kernel.CAP_SETGID, kernel.CAP_SETUID, kernel.CAP_SETFCAP))
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/"}
    quiet = os.open("/dev/null", os.O_RDWR)
    os.dup2(quiet, 2)
    command = ["python3", "-I", "-X", "utf8", "-c", _STARTER]
    os.execve(root["python"], command, environment)  # noqa: S606 - no shell is wanted


def _write(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def _take_program(passed: int) -> None:
    if passed != PROGRAM:
        os.dup2(passed, PROGRAM)
        os.close(passed)
    os.set_inheritable(PROGRAM, True)


def _start(root: dict[str, Any]) -> int:
    several = os.geteuid() == 0
    if not several:
        become_root_of_own()
    build(root, several=several)
    hold, go = os.pipe()
    pid = forks.Clone(_NAMESPACES, [])()
    if pid == 0:
        os.close(go)
        become_zygote(root, hold)
    map_ids(pid, root, several=several)
    os.write(go, b"1")
    return pid


def main() -> None:
    """Starts the zygote and ends as it ends. Sends failures before that on the control socket."""
    kernel.prctl("death signal", kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a terminal's Ctrl-C ends it silently
    control = socket.socket(fileno=0)
    _take_program(int(sys.argv[2]))
    os.umask(0o022)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        pid = _start(json.loads(sys.argv[1]))
    except OSError as error:
        say(control, {"fault": str(error), "errno": error.errno})
        os._exit(1)
    control.close()
    os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0x7F)


if __name__ == "__main__":
    main()
