"""Memory limits without a cgroup: counts the resident memory of each sandbox, and kills one that has too
much.

Used only where the launcher cannot make cgroups. Weaker than the kernel's own limit by what a job can touch
between two looks. :attr:`Watched.kills` comes from this watch, not from the kernel.
"""

from __future__ import annotations

import os
import re
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from cellblock_workers.log import get_logger

_log = get_logger(__name__)

_LOOK_S = 0.02
#: Sockets that a program has and that are mostly empty: of event loops, of pools.
_SOCKETS_FREE = 64
#: What is read of /proc/net/sockstat: all sockets, and those of TCP.
_SOCKET_COUNTS = ("sockets: used", "TCP: inuse")
_TICK_MS = 1000 // os.sysconf("SC_CLK_TCK")


class Watchable(Protocol):
    """What the watch needs from a sandbox's first process."""

    ended: threading.Event

    def kill(self) -> None:
        """Ends the process, and everything below it."""
        ...


@dataclass(slots=True)
class Watched:
    """One sandbox: its first process as this host numbers it, and what was seen of it."""

    child: Watchable
    pid: int
    limit_bytes: int
    own_network: bool = False  #: whether no other process is in its network namespace
    kills: int = 0
    peak_bytes: int = 0
    cpu_ms: int = 0


class MemoryWatch:
    """Looks at every watched sandbox fifty times a second. Thread-safe."""

    def __init__(self) -> None:
        self._watched: list[Watched] = []
        self._changed = threading.Condition()
        threading.Thread(target=self._look, name="memory-watch", daemon=True).start()

    def add(self, watched: Watched) -> None:
        """Watches until :meth:`remove`."""
        with self._changed:
            self._watched.append(watched)
            self._changed.notify()

    def remove(self, watched: Watched) -> None:
        """Stops watching. Idempotent."""
        with self._changed:
            if watched in self._watched:
                self._watched.remove(watched)

    def _look(self) -> None:
        while True:
            with self._changed:
                while not self._watched:
                    self._changed.wait()
                now = list(self._watched)
            for one in now:
                try:
                    self.look(one)
                except Exception:  # a sandbox that cannot be watched must end, and the others must be watched
                    _log.exception("watch_failed", pid=one.pid)
                    one.child.kill()
            time.sleep(_LOOK_S)

    @staticmethod
    def look(one: Watched) -> None:
        """Measures one sandbox, and kills it if it holds too much."""
        if one.child.ended.is_set():
            return
        family = family_of(one.pid)
        # Pages shared after a fork count in each process here: the sum is never too low, and cheap.
        held_bytes = sum(_resident_bytes(pid) for pid in family)
        if held_bytes > one.limit_bytes:
            held_bytes = sum(_share_bytes(pid) for pid in family)
        if one.own_network:
            held_bytes += _socket_bytes(one.pid)
        one.peak_bytes = max(one.peak_bytes, held_bytes)
        one.cpu_ms = max(one.cpu_ms, sum(_cpu_ms(pid, with_reaped=pid == one.pid) for pid in family))
        if held_bytes > one.limit_bytes and not one.kills:
            one.kills = 1
            one.child.kill()


def _resident_bytes(pid: int) -> int:
    """Resident memory without pages of files. What ``mmap(MAP_SHARED)`` has made is of no file, and
    counts."""
    found = re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", _read(f"/proc/{pid}/status"), re.MULTILINE)
    return sum(map(int, found)) * 1024


def _share_bytes(pid: int) -> int:
    """A process's own memory, and its part of what it shares; all of both if it keeps us from looking."""
    found = re.search(r"^Pss:\s+(\d+) kB", _read(f"/proc/{pid}/smaps_rollup"), re.MULTILINE)
    return int(found[1]) * 1024 if found else _resident_bytes(pid)


def _socket_bytes(pid: int) -> int:
    """What can lie in the sockets of this process's network, which is no process's memory.

    How full a local socket is the kernel does not tell: from ``_SOCKETS_FREE`` on each counts as full.
    """
    pattern = rf"^({'|'.join(_SOCKET_COUNTS)}) (\d+)"
    counts = dict(re.findall(pattern, _read(f"/proc/{pid}/net/sockstat"), re.MULTILINE))
    sockets, tcp = (int(counts.get(name, 0)) for name in _SOCKET_COUNTS)
    held_bytes = max(0, sockets - _SOCKETS_FREE) * _socket_most_bytes()
    return held_bytes + (_queued_bytes(pid) if tcp else 0)


def _queued_bytes(pid: int) -> int:
    """What waits in TCP connections, whose buffers the kernel enlarges by itself."""
    text = _read(f"/proc/{pid}/net/tcp") + _read(f"/proc/{pid}/net/tcp6")
    queues = re.findall(r" ([0-9A-F]{8}):([0-9A-F]{8}) [0-9A-F]{2}:", text)
    return sum(int(sent, 16) + int(received, 16) for sent, received in queues)


@cache
def _socket_most_bytes() -> int:
    """The size of a socket's buffer: a job without a cgroup cannot set another (``seccomp.watched``)."""
    return int(_read("/proc/sys/net/core/wmem_default") or 0)


def _cpu_ms(pid: int, *, with_reaped: bool) -> int:
    times = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()[11 : 15 if with_reaped else 13]
    return sum(int(word) for word in times) * _TICK_MS


def _read(path: str) -> str:
    """The file's text; empty once the process has ended. A process may name itself in any bytes."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def family_of(pid: int) -> list[int]:
    """A process and everything below it: nothing can leave the first of a PID namespace, or a subreaper."""
    found, ahead = [], [pid]
    while ahead:
        one = ahead.pop()
        found.append(one)
        try:
            threads = [path.name for path in Path(f"/proc/{one}/task").iterdir()]
        except OSError:
            continue  # it ended meanwhile
        for thread in threads:
            ahead += [int(word) for word in _read(f"/proc/{one}/task/{thread}/children").split()]
    return found
