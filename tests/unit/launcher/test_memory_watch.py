"""What the memory watch sees of a process, where no cgroup counts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from cellblock_workers.launcher.memory_watch import MemoryWatch, Watched

MIB = 1024 * 1024
#: Runs as a user who must not look into every process, as root may.
LOOK = """
import subprocess, sys, threading
from cellblock_workers.launcher.memory_watch import MemoryWatch, Watched

class Child:
    ended, killed = threading.Event(), False
    def kill(self):
        self.killed = True

process = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=-1, stdout=-1)
assert process.stdout.readline() == b"ready\\n"
child = Child()
watched = Watched(child=child, pid=process.pid, limit_bytes=64 * 2**20)
MemoryWatch.look(watched)
print(child.killed, watched.peak_bytes // 2**20)
process.kill()
"""
PROGRAMS = {
    "private": "held = bytearray(2**27)",
    "shared": "import mmap; held = mmap.mmap(-1, 2**27); held.write(b'x' * 2**27)",
    "private, and nobody may look": "held = bytearray(2**27); prctl(4, 0, 0, 0, 0)",
    "pages of a file": (
        "import mmap; f = open('big', 'wb+'); f.truncate(2**27); held = mmap.mmap(f.fileno(), 0); held.read()"
    ),
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_what_a_program_holds_is_seen(tmp_path: Path, kind: str) -> None:
    before = "import ctypes; prctl = ctypes.CDLL(None).prctl\n"
    program = f"{before}{PROGRAMS[kind]}\nprint('ready', flush=True)\ninput()"
    somebody = 65534 if os.geteuid() == 0 else None
    if somebody:
        for folder in (tmp_path, *tmp_path.parents[:2]):
            folder.chmod(0o755)
        os.chown(tmp_path, somebody, somebody)
    found = subprocess.run(
        [sys.executable, "-c", LOOK, program],
        user=somebody,
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stderr == ""
    killed, held = found.stdout.split()
    holds = kind != "pages of a file"
    assert (killed == "True", int(held) > 64) == (holds, holds)


@pytest.mark.parametrize("own_network", [True, False])
def test_sockets_count_where_a_network_is_the_sandboxs_own(own_network: bool) -> None:
    """This process's network is the host's; the limit lies above what the host's sockets can hold by now."""
    child = Child()
    watched = Watched(child, os.getpid(), 2**62, own_network=own_network)
    MemoryWatch.look(watched)
    before = watched.peak_bytes
    with ExitStack() as stack:
        for _ in range(200):
            for end in socket.socketpair():
                stack.enter_context(end)
        MemoryWatch.look(watched)
    grown = watched.peak_bytes - before
    assert (grown > 400 * 100_000) == own_network, grown


class Child:
    """A sandbox's first process that nobody has to end."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def kill(self) -> None:
        raise AssertionError("it holds less than its limit")
