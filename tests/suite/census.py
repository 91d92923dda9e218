"""What processes of a kind start on this machine, counted by the kernel's own events (root only)."""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter, deque
from pathlib import Path

from suite.appearing import Appearing

#: linux/connector.h and linux/cn_proc.h: where the kernel tells of processes, and how one asks it to.
_NETLINK_CONNECTOR, _CN_IDX_PROC, _CN_VAL_PROC, _MCAST_LISTEN = 11, 1, 1, 1
_NLMSG_DONE, _PROC_EVENT_EXEC = 3, 2
_NETLINK_HEADER, _CONNECTOR_HEADER = struct.Struct("=IHHII"), struct.Struct("=IIIIHH")
_EVENT = struct.Struct("=IIQI")  # what happened, processor, time, process
_CGROUPS = (Path("/sys/fs/cgroup/memory/cellblock"), Path("/sys/fs/cgroup/cellblock"))  #: version 1 and 2
_SO_RCVBUFFORCE = 33
_RECEIVE_BYTES = 16 * 1024 * 1024


class Census:
    """Counts launchers, workers, Redis servers, commands and sandboxes until :meth:`close`."""

    def __init__(self) -> None:
        self.started: Counter[str] = Counter()
        self._closed = threading.Event()
        self._kernel = _listen_to_processes()
        self._cgroups = Appearing(_cgroup_folders())
        self._lately: deque[tuple[int, str]] = deque(maxlen=200)  # runsc starts itself anew in one process
        self._thread = threading.Thread(target=self._count_starts, name="census")
        self._thread.start()

    def close(self) -> dict[str, int]:
        """Stop counting; how many of each kind there were."""
        self._closed.set()
        self._thread.join()
        self._kernel.close()
        self._cgroups.close()
        return {**self.started, "sandboxes with a cgroup of ours": self._cgroups.names.total()}

    def _count_starts(self) -> None:
        while not self._closed.is_set():
            try:
                packet = self._kernel.recv(4096)
            except TimeoutError:
                continue
            except OSError:  # the kernel dropped events: the figures are too low, and say so
                self.started["events missed"] += 1
                continue
            what, _, _, pid = _EVENT.unpack_from(packet, _NETLINK_HEADER.size + _CONNECTOR_HEADER.size)
            if what == _PROC_EVENT_EXEC and (kind := _kind_of(pid)) and (pid, kind) not in self._lately:
                self._lately.append((pid, kind))
                self.started[kind] += 1


def _listen_to_processes() -> socket.socket:
    kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_CONNECTOR)
    kernel.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BYTES)
    kernel.settimeout(0.5)
    kernel.bind((0, _CN_IDX_PROC))
    asked = struct.pack("=I", _MCAST_LISTEN)
    message = _CONNECTOR_HEADER.pack(_CN_IDX_PROC, _CN_VAL_PROC, 0, 0, len(asked), 0) + asked
    kernel.send(_NETLINK_HEADER.pack(_NETLINK_HEADER.size + len(message), _NLMSG_DONE, 0, 0, 0) + message)
    return kernel


def _cgroup_folders() -> list[Path]:
    found = [folder for folder in _CGROUPS if (folder.parent / "cgroup.procs").exists()]
    for folder in found:
        folder.mkdir(exist_ok=True)
    return found[:1]


def _kind_of(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return ""
    program = Path(words[0]).name
    if "cellblock_workers.launcher.server" in words:
        return "launchers"
    if "cellblock_workers.worker.main" in words:
        return "workers"
    if program == "redis-server":
        return "Redis servers"
    if program == "runsc-sandbox" and "boot" in words:
        return "gVisor sandboxes"
    if program == "runc" and {"create", "run"} & set(words):
        return "runc sandboxes"
    if len(words) > 1 and words[1].endswith("/bin/cellblock"):
        return "cellblock commands"
    return ""
