"""What a job prints is in the result of a job that was stopped, and many lines cost little."""

from __future__ import annotations

import pytest

from cellblock import Outcome
from sandbox.conftest import Run

pytestmark = pytest.mark.docker

#: 1 of these lines costs gVisor 20 µs of CPU time if each is a system call, and the print itself 0.2 µs.
LINES = """
import io, resource, sys
def used_s(stream):
    before = resource.getrusage(resource.RUSAGE_SELF)
    for number in range(150_000): print(number, file=stream)
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
result = used_s(io.TextIOWrapper(open(1, 'wb', closefd=False))), used_s(sys.stdout)
"""
FOREVER = {
    "a loop": "while True: pass",
    "a pause": "import time\ntime.sleep(60)",
    "a wait of C": "import ctypes\nctypes.CDLL(None).sleep(60)",
    "a wait for a thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()",
    "a wait for a child": "import subprocess\nsubprocess.run(['sleep', '60'])",
}
#: More lines than are written at once; the next ones gather.
MANY = "for number in range(300): print(number)\n"
#: Each prints "said", and keeps it in a buffer of its own if it can.
STREAMS = {
    "print": "print('said')",
    "no line": "import sys\nsys.stdout.write('said')",
    "bytes": "import sys\nsys.stdout.buffer.write(b'said')",
    "another wrapper": "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.detach())\nprint('said')",
    "a file of its own": "import sys\nsys.stdout = open(1, 'w', closefd=False)\nprint('said')",
    "redirected": "import io, sys\nprint('said')\nsys.stdout = io.StringIO()",
    "replaced clocks": "import _thread, time\nprint('said')\ntime.monotonic = _thread.allocate_lock = None",
}


@pytest.mark.parametrize("way", ["gvisor-oci", "gvisor-docker"])
def test_lines_cost_hardly_more_than_the_same_bytes_at_once(run: Run, way: str) -> None:
    result = run(LINES, way=way, limits={"timeout_s": 50})
    assert result.outcome is Outcome.OK, result
    in_pieces_s, in_lines_s = result.value
    assert in_lines_s < 3 * in_pieces_s + 0.1, "with a system call for each line: 100 times"


@pytest.mark.parametrize("before", ["", MANY], ids=["first", "after many"])
@pytest.mark.parametrize("goes_on", FOREVER)
def test_what_was_printed_before_a_timeout_is_in_the_result(
    run: Run, kernel_way: str, goes_on: str, before: str
) -> None:
    code = f"{before}print('said')\n{FOREVER[goes_on]}"
    result = run(code, way=kernel_way, limits={"timeout_s": 1.5})
    assert (result.outcome, result.stdout[-5:]) == (Outcome.WALL_TIMEOUT, "said\n")


@pytest.mark.parametrize("stream", STREAMS)
def test_it_is_there_whatever_stream_the_program_has(run: Run, kernel_way: str, stream: str) -> None:
    code = f"{MANY}{STREAMS[stream]}\nwhile True: pass"
    result = run(code, way=kernel_way, limits={"timeout_s": 1.5})
    assert (result.outcome, "said" in result.stdout) == (Outcome.WALL_TIMEOUT, True), result


@pytest.mark.parametrize(
    "end", ["os._exit(3)", "os.kill(os.getpid(), 9)", "ctypes.string_at(8)", "sum(range(10**12))"]
)
def test_the_first_lines_are_in_the_result_whatever_comes_at_once(run: Run, any_way: str, end: str) -> None:
    result = run(f"import ctypes, os\nprint('said')\n{end}", way=any_way, limits={"timeout_s": 1.5})
    assert result.stdout == "said\n", result


def test_what_was_printed_just_before_a_timeout_is_in_the_result(run: Run, kernel_way: str) -> None:
    """The output is written once more when the time is nearly up."""
    prints = "print(time.monotonic() - began)\n    time.sleep(0.01)"
    code = f"import time\n{MANY}began = time.monotonic()\nwhile True:\n    {prints}"
    last = [float(run(code, way=kernel_way, limits={"timeout_s": 1.15}).stdout.split()[-1]) for _ in range(3)]
    assert max(last) > 1.0, "what is there without it: what was printed in the first three times 0.3 s"


@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), 11)", "ctypes.string_at(8)"])
def test_what_was_printed_a_while_before_a_crash_is_in_the_result(run: Run, any_way: str, end: str) -> None:
    result = run(f"import ctypes, os, time\n{MANY}print('said')\ntime.sleep(1)\n{end}", way=any_way)
    assert result.outcome in (Outcome.EXIT, Outcome.SIGNAL)
    assert result.stdout.endswith("\nsaid\n")


def test_what_was_printed_a_while_before_memory_ran_out_is_in_the_result(run: Run, bounded_way: str) -> None:
    grows = "held = []\nwhile True: held.append(b'x' * 2**20)"
    code = f"import time\n{MANY}print('said')\ntime.sleep(1)\n{grows}"
    result = run(code, way=bounded_way, limits={"memory_bytes": 256 * 2**20, "timeout_s": 30})
    assert result.stdout.endswith("\nsaid\n"), result


def test_a_forbidden_call_ends_a_job_that_has_printed_many_lines(run: Run, way: str) -> None:
    """Under gVisor it ends no more than its thread, and the one that writes would go on."""
    code = f"import ctypes\n{MANY}ctypes.CDLL(None).mount(0, 0, 0, 0, 0)\nprint('ESCAPED', flush=True)"
    result = run(code, way=way, limits={"timeout_s": 10})
    assert (result.outcome, "ESCAPED" in result.stdout) == (Outcome.SYSCALL, False), result


def test_the_writing_thread_is_hardly_to_be_seen(run: Run, any_way: str) -> None:
    code = """
import os, signal, threading, time, warnings
warnings.simplefilter('error')
for number in range(300): print(number)
print(threading.active_count(), threading.enumerate() == [threading.main_thread()])
signal.signal(signal.SIGUSR1, lambda *_: print('in', threading.current_thread().name))
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGUSR1)).start()
signal.pause()
if os.fork() == 0:
    print('in the child', flush=True)
    os._exit(0)
os.wait()
"""
    result = run(code, way=any_way)
    assert result.stdout.splitlines()[300] == "1 True", result
    assert "in MainThread" in result.stdout
