"""The thread that writes a job's output, and forks."""

from __future__ import annotations

import os
import subprocess
import sys

_FORKS = """
import os, threading, time
from cellblock_workers.guest import output
output.write_lines_at_once()
writer = output.OutputWriter(output.sys.stdout, 60)
writer.gather()
writer.writing.acquire()  # as while it writes
began = time.monotonic()
threading.Timer(0.3, writer.writing.release).start()
child = os.fork()
if child == 0:
    os._exit(0 if not writer.writing.locked() else 1)
print(time.monotonic() - began >= 0.3, os.waitpid(child, 0)[1], writer.writing.locked())
"""
_NEVER_WRITTEN = """
import os, time
from cellblock_workers.guest import output
output.FORK_WAITS_S = 0.1
output.write_lines_at_once()
writer = output.OutputWriter(output.sys.stdout, 60)
writer.gather()
writer.writing.acquire()  # as a handler of a signal finds it that the program gets while it writes
for _ in range(2):
    child = os.fork()
    if child == 0: os._exit(0)
    print(os.waitpid(child, 0)[1], writer.writing.locked(), flush=True)
"""


def _run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, timeout=30
    )
    assert not done.stderr
    return done.stdout


def test_no_fork_happens_while_the_thread_writes() -> None:
    assert _run(_FORKS) == "True 0 False\n"


def test_a_fork_does_not_wait_for_ever() -> None:
    assert _run(_NEVER_WRITTEN) == "0 True\n0 True\n"
