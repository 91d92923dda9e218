"""Every way a job can end has the same name on every isolation, with the evidence it rests on."""

from __future__ import annotations

import signal
import time

import pytest

from cellblock import Outcome
from sandbox.conftest import Run
from sandbox.harness import MIB
from suite.ways import EVERY_WAY

pytestmark = pytest.mark.docker


def test_printing_ends_ok_with_plausible_usage(run: Run, any_way: str) -> None:
    result = run("print(6*7)", way=any_way)
    assert (result.outcome, result.exit_code, result.signal) == (Outcome.OK, 0, None)
    assert (result.stdout, result.stderr, result.error, result.truncated) == ("42\n", "", None, {})
    assert (result.isolation, result.backend, result.attempt) == (*EVERY_WAY[any_way], 1)
    assert 0 < result.usage.wall_ms < 10_000
    assert result.usage.cpu_ms < 10_000
    assert MIB < result.usage.peak_memory_bytes < 512 * MIB
    assert result.usage.output_bytes == 3
    timings = result.timings
    assert timings.started is not None
    assert timings.finished is not None
    assert timings.admitted <= timings.started <= timings.finished


@pytest.mark.parametrize(
    ("argument", "code", "stderr"),
    [
        ("3", 3, ""),
        ("'goodbye'", 1, "goodbye\n"),
        ("256 + 7", 7, ""),
        ("", 0, ""),
        ("None", 0, ""),
        ("True", 1, ""),
    ],
)
def test_sys_exit_means_what_it_means_to_an_interpreter(
    run: Run, any_way: str, argument: str, code: int, stderr: str
) -> None:
    result = run(f"import sys; sys.exit({argument})", way=any_way)
    assert (result.outcome, result.exit_code) == (Outcome.EXIT if code else Outcome.OK, code)
    assert result.stderr == stderr


def test_an_uncaught_exception_shows_only_the_jobs_own_frames(run: Run, any_way: str) -> None:
    result = run("def f():\n    raise ValueError('bad é')\nf()\n", way=any_way)
    assert (result.outcome, result.exit_code) == (Outcome.EXIT, 1)
    assert result.error is not None
    assert (result.error.type, result.error.message) == ("ValueError", "bad é")
    assert result.error.traceback == result.stderr
    assert result.stderr.count("File ") == 2
    assert "main.py" in result.stderr
    assert "guest/" not in result.stderr
    assert result.stderr.startswith("Traceback (most recent call last):\n")
    assert result.stderr.endswith("ValueError: bad é\n")


def test_code_that_does_not_compile_is_the_jobs_own_failure(run: Run, any_way: str) -> None:
    result = run("print('never')\nif:\n", way=any_way)
    assert (result.outcome, result.exit_code, result.stdout) == (Outcome.EXIT, 1, "")
    assert result.error is not None
    assert result.error.type == "SyntaxError"
    assert "guest/" not in result.stderr
    assert "line 2" in result.stderr


def test_leaving_past_the_interpreter_is_an_ordinary_end(run: Run, any_way: str) -> None:
    result = run("import os; print('flushed', flush=True); os._exit(0)", way=any_way)
    assert (result.outcome, result.exit_code, result.stdout) == (Outcome.OK, 0, "flushed\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSEGV, signal.SIGKILL])
def test_a_signal_of_its_own_making_is_named(run: Run, any_way: str, number: signal.Signals) -> None:
    result = run(f"import os; print('before', flush=True); os.kill(os.getpid(), {int(number)})", way=any_way)
    assert (result.outcome, result.signal, result.exit_code) == (Outcome.SIGNAL, number, 128 + number)
    assert result.error is not None
    assert number.name in result.error.message
    assert result.stdout == "before\n"


def test_an_endless_loop_ends_at_the_wall_limit(run: Run, any_way: str) -> None:
    result = run("while True: pass", way=any_way, limits={"timeout_s": 1})
    assert result.outcome is Outcome.WALL_TIMEOUT
    assert result.exit_code == 137
    assert result.evidence["stopped_by"] == "guest"
    assert 1000 <= result.usage.wall_ms < 4000


def test_an_endless_loop_ends_at_the_cpu_limit(run: Run, any_way: str) -> None:
    result = run("while True: pass", way=any_way, limits={"timeout_s": 20, "cpu_s": 1})
    assert (result.outcome, result.signal) == (Outcome.CPU_TIMEOUT, signal.SIGXCPU)
    assert result.error is not None
    assert "1 s" in result.error.message


def test_ignoring_the_cpu_signal_gains_one_second(run: Run, any_way: str) -> None:
    code = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    result = run(code, way=any_way, limits={"timeout_s": 20, "cpu_s": 1})
    assert (result.outcome, result.signal) == (Outcome.CPU_TIMEOUT, signal.SIGKILL)


def test_output_before_a_wall_timeout_is_kept(run: Run, any_way: str) -> None:
    code = "import time\nprint('said this')\ntime.sleep(1000)"
    result = run(code, way=any_way, limits={"timeout_s": 1})
    assert (result.outcome, result.stdout) == (Outcome.WALL_TIMEOUT, "said this\n")
    assert result.usage.wall_ms < 4000


def test_too_much_memory_is_proven_by_the_kernel_and_keeps_earlier_output(run: Run, bounded_way: str) -> None:
    code = "print('so far', flush=True)\nx = 'x' * 2**30\nprint('never')"
    result = run(code, way=bounded_way, limits={"memory_bytes": 256 * MIB})
    assert (result.outcome, result.exit_code, result.stdout) == (Outcome.MEMORY, 137, "so far\n")
    who = "watch_kills" if bounded_way == "process" else "oom_kills"
    assert int(result.evidence[who]) >= 1
    assert result.error is not None
    assert "Memory Limit Exceeded" in result.error.message
    assert str(256 * MIB) in result.error.message


def test_memory_that_could_be_shared_counts_like_any_other(run: Run, bounded_way: str) -> None:
    code = """
import mmap
held = mmap.mmap(-1, 2**29)
for page in range(0, 2**29, 4096):
    held[page] = 1
print('never')
"""
    result = run(code, way=bounded_way, limits={"memory_bytes": 256 * MIB})
    assert (result.outcome, result.stdout) == (Outcome.MEMORY, "")


def test_a_refused_fork_is_an_error_the_job_can_see(run: Run, bounded_way: str) -> None:
    code = """
import os, time
count = 0
try:
    while count < 500:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        count += 1
finally:
    print(count)
"""
    result = run(code, way=bounded_way, limits={"memory_bytes": 2**30})  # gVisor's processes are dear
    assert result.outcome is Outcome.PIDS
    assert result.error is not None
    assert result.error.type == "BlockingIOError"
    assert int(result.stdout) <= 51, "the limit, and one for the thread that writes the output"
    if bounded_way.startswith(("gvisor", "process")):
        assert result.evidence["processes_refused_by"] == "rlimit"
    else:
        assert int(result.evidence["pids_refused"]) >= 1


def test_a_refused_thread_has_the_same_word(run: Run, bounded_way: str) -> None:
    start = "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    code = f"import threading, time\nwhile True: {start}"
    result = run(code, way=bounded_way)
    assert result.outcome is Outcome.PIDS, result
    assert result.error is not None
    assert result.error.type == "RuntimeError"


def test_a_fork_bomb_that_never_gives_up_ends_at_its_deadline(run: Run, bounded_way: str) -> None:
    code = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
    before = time.monotonic()
    # On gVisor's kernel 64 processes hold 450 to 512 MiB: with the default limit either end would be right.
    result = run(code, way=bounded_way, limits={"timeout_s": 1, "memory_bytes": 2**30})
    assert result.outcome is Outcome.WALL_TIMEOUT, (result.evidence, result.error)
    assert time.monotonic() - before < 15


def test_a_finalizer_that_never_ends_ends_with_the_jobs_time(run: Run, kernel_way: str) -> None:
    code = "class C:\n    def __del__(self):\n        while True: pass\nc = C()\nprint('said')"
    result = run(code, way=kernel_way, limits={"timeout_s": 1})
    assert (result.outcome, result.stdout) == (Outcome.WALL_TIMEOUT, "said\n")


def test_threads_and_exit_handlers_finish_before_the_end(run: Run, any_way: str) -> None:
    code = """
import atexit, threading, time
atexit.register(print, 'atexit')
def late():
    time.sleep(0.3)
    print('thread')
threading.Thread(target=late).start()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print('main')
"""
    result = run(code, way=any_way)
    assert (result.outcome, result.stdout) == (Outcome.OK, "main\nthread\natexit\n")
    assert result.usage.wall_ms < 10_000


@pytest.mark.parametrize("detach", ["", "os.setsid()"])
def test_children_left_behind_neither_delay_nor_hang_the_end(run: Run, any_way: str, detach: str) -> None:
    code = f"""
import os, time
if os.fork() == 0:
    {detach}
    time.sleep(60)
    os._exit(0)
print('parent done')
"""
    result = run(code, way=any_way)
    assert (result.outcome, result.stdout) == (Outcome.OK, "parent done\n")
    assert result.usage.wall_ms < 5000


def test_a_work_folder_without_a_byte_left_is_the_outcome_disk(run: Run, way: str) -> None:
    result = run("print('before')\nopen('big', 'wb').write(bytes(1 << 27))", way=way)
    assert (result.outcome, result.exit_code, result.stdout) == (Outcome.DISK, 1, "before\n")
    assert result.evidence["disk_full_of"] == "bytes"
    assert result.error is not None
    assert "[Errno 28]" in result.error.message


@pytest.mark.parametrize(
    "fills",
    [
        "with tempfile.TemporaryDirectory() as folder: open(folder + '/big', 'wb').write(bytes(1 << 27))",
        "with tempfile.TemporaryFile() as file: file.write(bytes(1 << 27))",
        "with tempfile.NamedTemporaryFile(dir='/dev/shm') as file: file.write(bytes(1 << 27))",
    ],
    ids=["folder", "file", "shared memory"],
)
def test_a_temporary_folder_that_was_full_is_the_outcome_disk(run: Run, any_way: str, fills: str) -> None:
    """It is gone at the end, so only the program can tell."""
    if any_way in ("process", "none"):
        fills = "raise OSError(28, 'No space left on device')"  # the host's own disk is not filled
    result = run(f"import tempfile\n{fills}", way=any_way, limits={"memory_bytes": 512 * MIB})
    assert (result.outcome, result.exit_code) == (Outcome.DISK, 1), result
    assert result.evidence["disk_refused_by"] == "tmpfs, says the job"
    assert result.error is not None
    assert "[Errno 28]" in result.error.message


def test_a_mapped_page_without_a_byte_left_is_the_outcome_disk(run: Run, way: str) -> None:
    code = """
import mmap
file = open('mapped', 'wb+')
file.truncate(1 << 27)
pages = mmap.mmap(file.fileno(), 0)
for place in range(0, 1 << 27, 4096): pages[place] = 1
"""
    result = run(code, way=way)
    assert (result.outcome, result.signal) == (Outcome.DISK, signal.SIGBUS)


def test_a_disk_that_is_full_and_a_job_that_can_live_with_it_is_ok(run: Run, way: str) -> None:
    code = "try: open('big', 'wb').write(bytes(1 << 27))\nexcept OSError as error: print(error.errno)"
    result = run(code, way=way)
    assert (result.outcome, result.stdout, result.evidence) == (Outcome.OK, "28\n", {})


def test_a_failure_with_room_on_the_disk_is_not_the_disks(run: Run, way: str) -> None:
    code = """
import os
try: open('big', 'wb').write(bytes(1 << 27))
except OSError: os.unlink('big')
raise ValueError
"""
    assert run(code, way=way).outcome is Outcome.EXIT


def test_a_work_folder_without_a_file_left_is_the_outcome_disk(run: Run, way: str) -> None:
    code = "import os\nfor n in range(20_000): os.close(os.open(str(n), os.O_CREAT))\nprint('all of them')"
    result = run(code, way=way)
    if way.startswith("gvisor"):  # its tmpfs (release 20221219) counts bytes alone; memory bounds the names
        assert (result.outcome, result.stdout) == (Outcome.OK, "all of them\n")
        return
    assert (result.outcome, result.evidence["disk_full_of"]) == (Outcome.DISK, "inodes")
    assert result.error is not None
    assert "[Errno 28]" in result.error.message


def test_too_many_open_files_are_an_error_the_job_can_see(run: Run, bounded_way: str) -> None:
    result = run("files = [open('/dev/null') for _ in range(2000)]", way=bounded_way)
    assert (result.outcome, result.exit_code) == (Outcome.EXIT, 1)
    assert result.error is not None
    assert result.error.type == "OSError"
    assert "[Errno 24]" in result.error.message


@pytest.mark.parametrize("call", ["mount", "umount2", "ptrace", "reboot", "swapon", "acct", "setns"])
def test_a_system_call_no_honest_program_makes_is_the_outcome_syscall(
    run: Run, any_way: str, call: str
) -> None:
    code = (
        f"import ctypes\nprint('before', flush=True)\nctypes.CDLL(None).{call}(0, 0, 0, 0, 0)\nprint('after')"
    )
    result = run(code, way=any_way)
    assert (result.outcome, result.signal, result.exit_code) == (Outcome.SYSCALL, signal.SIGSYS, 159)
    assert result.stdout == "before\n"
    assert result.evidence["guest_signal"] == "SIGSYS"
    assert result.error is not None
    assert "system call" in result.error.message


def test_a_child_that_dies_of_a_system_call_does_not_take_the_job_along(run: Run, any_way: str) -> None:
    code = """
import ctypes, os
if os.fork() == 0:
    ctypes.CDLL(None).mount(0, 0, 0, 0, 0)
    os._exit(0)
print(os.waitpid(-1, 0)[1])
"""
    result = run(code, way=any_way)
    assert (result.outcome, result.stdout) == (Outcome.OK, f"{int(signal.SIGSYS)}\n")


def test_a_job_can_lay_no_filter_of_its_own(run: Run, any_way: str) -> None:
    code = """
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
allow = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7FFF0000))
described = struct.pack('HP', 1, ctypes.addressof(allow))
print(libc.prctl(22, 2, described, 0, 0), ctypes.get_errno())
print(libc.prctl(22, 1, 0, 0, 0), ctypes.get_errno())
"""
    assert run(code, way=any_way).stdout == "-1 1\n-1 1\n"


def test_files_stdin_arguments_inputs_value_and_artifacts_are_there(run: Run, any_way: str) -> None:
    code = """
import os, sys
from beside import double
os.mkdir('out')
open('out/answer', 'w').write(sys.stdin.read() + sys.argv[1])
{'doubled': double(given), 'folder': os.getcwd() == os.environ['HOME']}
"""
    result = run(
        code,
        way=any_way,
        files={"beside.py": b"def double(n): return 2 * n"},
        stdin=b"in ",
        args=("and out",),
        inputs={"given": 21},
        artifacts=("out/*",),
    )
    assert result.outcome is Outcome.OK, result
    assert result.value == {"doubled": 42, "folder": True}
    assert [(file.path, file.data) for file in result.artifacts] == [("out/answer", b"in and out")]


def test_what_is_not_wanted_can_be_written_to_dev_null(run: Run, any_way: str) -> None:
    """As many programs do, and with the flags that Python opens a file to write with: it may be made."""
    code = """
import contextlib, os, subprocess
with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
    print("not wanted")
print(subprocess.run(["true"], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL).returncode)
"""
    result = run(code, way=any_way)
    assert (result.outcome, result.stdout) == (Outcome.OK, "0\n"), result.error


def test_no_job_makes_files_beside_the_devices(run: Run, way: str) -> None:
    result = run("open('/dev/of-a-job', 'w')", way=way)
    assert result.error is not None
    assert (result.outcome, result.error.type) in {
        (Outcome.EXIT, "PermissionError"),
        (Outcome.EXIT, "OSError"),  # where it is read-only besides
    }
