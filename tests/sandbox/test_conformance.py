"""Every way a job can end has the same name on every isolation, with the evidence it rests on."""

from __future__ import annotations

import signal
import time

import pytest

from cellblock import Outcome
from sandbox.conftest import Run
from sandbox.harness import MIB

pytestmark = pytest.mark.docker


def test_printing_ends_ok_with_plausible_usage(run: Run, isolation: str) -> None:
    result = run("print(6*7)", isolation=isolation)
    assert (result.outcome, result.exit_code, result.signal) == (Outcome.OK, 0, None)
    assert (result.stdout, result.stderr, result.error, result.truncated) == ("42\n", "", None, {})
    assert (result.isolation, result.backend, result.attempt) == (isolation, "docker", 1)
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
    run: Run, isolation: str, argument: str, code: int, stderr: str
) -> None:
    result = run(f"import sys; sys.exit({argument})", isolation=isolation)
    assert (result.outcome, result.exit_code) == (Outcome.EXIT if code else Outcome.OK, code)
    assert result.stderr == stderr


def test_an_uncaught_exception_shows_only_the_jobs_own_frames(run: Run, isolation: str) -> None:
    result = run("def f():\n    raise ValueError('bad é')\nf()\n", isolation=isolation)
    assert (result.outcome, result.exit_code) == (Outcome.EXIT, 1)
    assert result.error is not None
    assert (result.error.type, result.error.message) == ("ValueError", "bad é")
    assert result.error.traceback == result.stderr
    assert result.stderr.count("File ") == 2
    assert "main.py" in result.stderr
    assert "<string>" not in result.stderr
    assert result.stderr.startswith("Traceback (most recent call last):\n")
    assert result.stderr.endswith("ValueError: bad é\n")


def test_code_that_does_not_compile_is_the_jobs_own_failure(run: Run, isolation: str) -> None:
    result = run("print('never')\nif:\n", isolation=isolation)
    assert (result.outcome, result.exit_code, result.stdout) == (Outcome.EXIT, 1, "")
    assert result.error is not None
    assert result.error.type == "SyntaxError"
    assert "<string>" not in result.stderr
    assert "line 2" in result.stderr


def test_leaving_past_the_interpreter_is_an_ordinary_end(run: Run, isolation: str) -> None:
    result = run("import os; print('flushed', flush=True); os._exit(0)", isolation=isolation)
    assert (result.outcome, result.exit_code, result.stdout) == (Outcome.OK, 0, "flushed\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSEGV, signal.SIGKILL])
def test_a_signal_of_its_own_making_is_named(run: Run, isolation: str, number: signal.Signals) -> None:
    result = run(f"import os; print('before'); os.kill(os.getpid(), {int(number)})", isolation=isolation)
    assert (result.outcome, result.signal, result.exit_code) == (Outcome.SIGNAL, number, 128 + number)
    assert result.error is not None
    assert number.name in result.error.message
    assert result.stdout == "before\n"


def test_an_endless_loop_ends_at_the_wall_limit(run: Run, isolation: str) -> None:
    result = run("while True: pass", isolation=isolation, limits={"timeout_s": 1})
    assert result.outcome is Outcome.WALL_TIMEOUT
    assert result.exit_code == 137
    assert result.evidence["stopped_by"] == "guest"
    assert 1000 <= result.usage.wall_ms < 4000


def test_an_endless_loop_ends_at_the_cpu_limit(run: Run, isolation: str) -> None:
    result = run("while True: pass", isolation=isolation, limits={"timeout_s": 20, "cpu_s": 1})
    assert (result.outcome, result.signal) == (Outcome.CPU_TIMEOUT, signal.SIGXCPU)
    assert result.error is not None
    assert "1 s" in result.error.message


def test_ignoring_the_cpu_signal_gains_one_second(run: Run, isolation: str) -> None:
    code = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    result = run(code, isolation=isolation, limits={"timeout_s": 20, "cpu_s": 1})
    assert (result.outcome, result.signal) == (Outcome.CPU_TIMEOUT, signal.SIGKILL)


def test_output_before_a_wall_timeout_is_kept(run: Run, isolation: str) -> None:
    code = "import time\nprint('said this')\ntime.sleep(1000)"
    result = run(code, isolation=isolation, limits={"timeout_s": 1})
    assert (result.outcome, result.stdout) == (Outcome.WALL_TIMEOUT, "said this\n")
    assert result.usage.wall_ms < 4000


def test_too_much_memory_is_proven_by_the_kernel_and_keeps_earlier_output(run: Run, isolation: str) -> None:
    code = "print('so far', flush=True)\nx = 'x' * 2**30\nprint('never')"
    result = run(code, isolation=isolation, limits={"memory_bytes": 256 * MIB})
    assert (result.outcome, result.exit_code, result.stdout) == (Outcome.MEMORY, 137, "so far\n")
    assert int(result.evidence["oom_kills"]) >= 1
    assert result.error is not None
    assert "Memory Limit Exceeded" in result.error.message
    assert str(256 * MIB) in result.error.message


def test_a_refused_fork_is_an_error_the_job_can_see(run: Run, isolation: str) -> None:
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
    result = run(code, isolation=isolation)
    assert result.outcome in {Outcome.PIDS, Outcome.EXIT}
    assert result.error is not None
    assert result.error.type == "BlockingIOError"
    assert int(result.stdout) <= 50
    if isolation == "runc":
        assert result.outcome is Outcome.PIDS
        assert int(result.evidence["pids_refused"]) >= 1


def test_a_fork_bomb_that_never_gives_up_ends_at_its_deadline(run: Run, isolation: str) -> None:
    code = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
    before = time.monotonic()
    result = run(code, isolation=isolation, limits={"timeout_s": 1})
    assert result.outcome is Outcome.WALL_TIMEOUT
    assert time.monotonic() - before < 15


def test_threads_and_exit_handlers_finish_before_the_end(run: Run, isolation: str) -> None:
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
    result = run(code, isolation=isolation)
    assert (result.outcome, result.stdout) == (Outcome.OK, "main\nthread\natexit\n")
    assert result.usage.wall_ms < 10_000


@pytest.mark.parametrize("detach", ["", "os.setsid()"])
def test_children_left_behind_neither_delay_nor_hang_the_end(run: Run, isolation: str, detach: str) -> None:
    code = f"""
import os, time
if os.fork() == 0:
    {detach}
    time.sleep(60)
    os._exit(0)
print('parent done')
"""
    result = run(code, isolation=isolation)
    assert (result.outcome, result.stdout) == (Outcome.OK, "parent done\n")
    assert result.usage.wall_ms < 5000
