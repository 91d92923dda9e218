"""Thirty ways to end, and one word for each, whatever isolation the job ran in."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from cellblock import JobResult, Outcome
from sandbox.harness import MIB, Host

pytestmark = pytest.mark.docker

AT_ONCE = 3
FORK_AND_SLEEP = "import os, time\nwhile True:\n    if os.fork() == 0: time.sleep(60)"


@dataclass(frozen=True)
class End:
    """One program and how it has to end. ``limits``: its own, where the level's would take too long."""

    code: str
    outcome: Outcome
    limits: dict[str, float] = field(default_factory=dict)


ENDS = {
    "the last line": End("print(1)", Outcome.OK),
    "sys.exit()": End("import sys; sys.exit()", Outcome.OK),
    "os._exit(0)": End("import os; os._exit(0)", Outcome.OK),
    "a child left behind": End("import os, time\nif os.fork() == 0: time.sleep(60)", Outcome.OK),
    "stdout closed": End("import os; os.close(1)", Outcome.OK),
    "a caught MemoryError": End("try: 'x' * 2**60\nexcept MemoryError: pass", Outcome.OK),
    "a code of its own": End("import sys; sys.exit(3)", Outcome.EXIT),
    "an exception": End("1 / 0", Outcome.EXIT),
    "a SyntaxError": End("if:", Outcome.EXIT),
    "no such module": End("import nothing_of_that_name", Outcome.EXIT),
    "too deep a recursion": End("def f(): f()\nf()", Outcome.EXIT),
    "no network": End("import socket; socket.create_connection(('127.0.0.1', 9), 1)", Outcome.EXIT),
    "a write into the image": End("open('/usr/x', 'w')", Outcome.EXIT),
    "too many open files": End("[open('/dev/null') for _ in range(2000)]", Outcome.EXIT),
    "SIGTERM": End("import os; os.kill(os.getpid(), 15)", Outcome.SIGNAL),
    "SIGKILL": End("import os; os.kill(os.getpid(), 9)", Outcome.SIGNAL),
    "a segmentation fault": End("import ctypes; ctypes.string_at(0)", Outcome.SIGNAL),
    "abort()": End("import os; os.abort()", Outcome.SIGNAL),
    "asleep too long": End("import time; time.sleep(60)", Outcome.WALL_TIMEOUT, {"timeout_s": 1}),
    "deaf and asleep too long": End(
        "import signal, time\nfor s in (2, 15): signal.signal(s, signal.SIG_IGN)\ntime.sleep(60)",
        Outcome.WALL_TIMEOUT,
        {"timeout_s": 1},
    ),
    "computing too long": End("while True: pass", Outcome.CPU_TIMEOUT, {"timeout_s": 25, "cpu_s": 1}),
    "deaf and computing too long": End(
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        Outcome.CPU_TIMEOUT,
        {"timeout_s": 25, "cpu_s": 1},
    ),
    "memory at once": End("x = 'x' * 2**30", Outcome.MEMORY, {"memory_bytes": 128 * MIB}),
    "memory bit by bit": End(
        "x = []\nwhile True: x.append(bytearray(1 << 20))", Outcome.MEMORY, {"memory_bytes": 128 * MIB}
    ),
    # Fifty processes hold 450 to 512 MiB on gVisor's kernel: with the default limit it could be either word.
    "processes": End(FORK_AND_SLEEP, Outcome.PIDS, {"memory_bytes": 1024 * MIB}),
    "threads": End(
        "import threading, time\n"
        "while True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        Outcome.PIDS,
    ),
    "a full disk": End("open('big', 'wb').write(bytes(1 << 27))", Outcome.DISK),
    "output": End(
        "import sys\nwhile True: sys.stdout.write('x' * 65536)",
        Outcome.OUTPUT_LIMIT,
        {"output_bytes": 1 * MIB},
    ),
    "errors without end": End(
        "import os\nwhile True: os.write(2, b'x' * 65536)", Outcome.OUTPUT_LIMIT, {"output_bytes": 1 * MIB}
    ),
    "a refused system call": End("import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0)", Outcome.SYSCALL),
}


@pytest.mark.timeout(180)
def test_thirty_ends_have_the_same_word_in_every_way(host: Host) -> None:
    assert len(ENDS) == 30

    def run(end: End) -> JobResult:
        try:
            return host.run(end.code, limits=end.limits)
        finally:
            host.launcher.close()  # this thread's connection

    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = dict(zip(ENDS, pool.map(run, ENDS.values()), strict=True))
    others = {
        name: result.error for name, result in results.items() if result.outcome is not ENDS[name].outcome
    }
    assert not others
