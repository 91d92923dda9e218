"""Programs that read and print: judged outside by what they print, case by case."""

from __future__ import annotations

import uuid
from contextlib import closing
from typing import Any

import pytest

from cellblock import JobSpec
from cellblock.admission.costs import Charge
from cellblock.admission.resolve import resolve
from cellblock.contract.evaluations import Evaluation, StdioCase, StdioCheck, Trial, TrialResult
from cellblock.contract.results import JobResult
from cellblock_config.prices import Rates
from cellblock_workers.launcher.client import BorrowedSandbox
from sandbox.harness import MIB, Host, words

SUM = "a, b = map(int, input().split())\nprint(a + b)\n"


def cases(*pairs: tuple[str, str]) -> tuple[StdioCase, ...]:
    return tuple(StdioCase(stdin=stdin, stdout=stdout) for stdin, stdout in pairs)


CHECK = StdioCheck(cases=cases(("1 2\n", "3\n"), ("10 20\n", "30\n"), ("-1 1", "0")))


@pytest.fixture
def host(sandbox_hosts: dict[str, Host], evaluation_way: str) -> Host:
    return sandbox_hosts[evaluation_way]


def run(host: Host, programs: dict[str, str], check: StdioCheck = CHECK, **limits: float) -> JobResult:
    return host.judge([(name, source, check) for name, source in programs.items()], "split", **limits)


def judge(
    host: Host, programs: dict[str, str], check: StdioCheck = CHECK, **limits: float
) -> dict[str, TrialResult]:
    return {trial.id: trial for trial in run(host, programs, check, **limits).trials}


def test_each_is_judged_by_what_it_prints(host: Host) -> None:
    found = judge(
        host,
        {
            "right": SUM,
            "right under main": f"if __name__ == '__main__':\n    {SUM.splitlines()[0]}\n    print(a + b)\n",
            "wrong at last": SUM.replace("a + b)", "a + b or 'none')"),
            "silent": "pass",
            "raises": "print(3)\nint('x')\n",
            "leaves": "import os\nprint(3, flush=True)\nos._exit(4)\n",
            "right again": SUM,
        },
    )
    assert words(found) == {
        "right": ("passed", ""),
        "right under main": ("passed", ""),
        "wrong at last": ("failed", "WrongAnswer: case 3 of 3: word 1: expected '0', printed 'none'"),
        "silent": ("failed", "WrongAnswer: case 1 of 3: printed 0 words, and more are expected"),
        "raises": ("failed", "ValueError: case 1 of 3: invalid literal for int() with base 10: 'x'"),
        "leaves": ("failed", "Exit: case 1 of 3: Exited with code 4"),
        "right again": ("passed", ""),
    }
    assert {one.channel for one in found.values()} == {"split"}
    assert found["raises"].stdout == "3\n"
    assert found["right"].stdout == "", "nobody reads what passed"


def test_what_goes_too_far_is_stopped_and_the_next_is_not_harmed(host: Host) -> None:
    found = judge(
        host,
        {
            "endless": "while True: pass",
            "right": SUM,
            "waits for more": "import sys\nsys.stdin.read()\nimport time\ntime.sleep(60)",
            "right again": SUM,
        },
        timeout_s=3.0,
    )
    assert {name: (one.verdict.value, one.outcome.value) for name, one in found.items()} == {
        "endless": ("timed_out", "wall_timeout"),
        "right": ("passed", "ok"),
        "waits for more": ("timed_out", "wall_timeout"),
        "right again": ("passed", "ok"),
    }
    floods = {"floods": "while True: print('3' * 10000)", "right": SUM}
    found = judge(host, floods, timeout_s=10.0, output_bytes=1 * MIB)
    assert {name: (one.verdict.value, one.outcome.value) for name, one in found.items()} == {
        "floods": ("failed", "output_limit"),
        "right": ("passed", "ok"),
    }


def test_a_long_conversation_is_compared_whole(host: Host) -> None:
    numbers = " ".join(map(str, range(60_000)))
    check = StdioCheck(cases=cases((numbers, numbers), ("1", "1")), compare="whitespace")
    late = "import sys\ntext = sys.stdin.read().split()\nif len(text) > 1: text[-1] = 'x'\nprint(*text)"
    ignores = "print('whatever')"
    found = judge(host, {"echo": "print(input())", "ignores": ignores, "late": late}, check)
    assert words(found) == {
        "echo": ("passed", ""),
        "ignores": ("failed", "WrongAnswer: case 1 of 2: word 1: expected '0', printed 'whatever'"),
        "late": ("failed", "WrongAnswer: case 1 of 2: word 60000: expected '59999', printed 'x'"),
    }


CHECKER = """
import sys
given, printed, expected = (open(name).read() for name in sys.argv[1:])
found = [int(word) for word in printed.split()]
if len(found) != 2 or sum(found) != int(given):
    sys.exit('sums to ' + str(sum(found)))
"""


def test_a_checker_decides_where_there_are_many_right_answers(host: Host) -> None:
    check = StdioCheck(cases=cases(("10", "5 5"), ("7", "0 7")), checker=CHECKER)
    found = judge(
        host,
        {
            "one": "n = int(input())\nprint(1, n - 1)",
            "other": "n = int(input())\nprint(n, 0)",
            "wrong": "print(5, 5)",
            "not what a checker reads": "print('[' * 100000)",
            "talks to it": "print('OK')\nimport sys\nsys.exit(0)",
        },
        check,
    )
    assert found["one"].verdict.value == found["other"].verdict.value == "passed"
    assert words(found)["wrong"] == ("failed", "WrongAnswer: case 2 of 2: the checker says no: sums to 10")
    assert found["not what a checker reads"].verdict.value == "failed"
    assert found["talks to it"].verdict.value == "failed"


HUNT = """
import gc, glob, os
found, paths = [], []
for pattern in ('/proc/*/environ', '/proc/*/cmdline', '/proc/*/fd/*', '/tmp/**', '/dev/shm/**'):
    paths += glob.glob(pattern, recursive=True)
for path in paths:
    try:
        with open(path, 'rb', buffering=0) as file: found.append(os.pread(file.fileno(), 65536, 0))
    except OSError: pass
found += [repr(one).encode() for one in gc.get_objects() if type(one) in (str, bytes, list, dict)]
needle = bytes.fromhex('74686520616e73776572206973203432')
print('found' if any(needle in one for one in found) else 'not found')
"""
REMEMBERS = """
import os
try:
    for place in ('/tmp/sandbox/seen', '/dev/shm/seen', '/tmp/seen', '/var/tmp/seen'):
        try:
            if os.path.exists(place): print('the answer is 42')
            open(place, 'a').write(input())
        except OSError: pass
except EOFError: pass
"""


def test_the_answer_is_nowhere_near_and_no_case_hears_of_another(host: Host) -> None:
    check = StdioCheck(cases=cases(("7", "the answer is 42"), ("7", "the answer is 42")), compare="exact")
    found = judge(host, {"hunts": HUNT, "hunts again": HUNT}, check)
    assert [one.stdout for one in found.values()] == ["not found\n", "not found\n"]
    again = StdioCheck(cases=cases(("1", ""), ("1", "the answer is 42\n")))
    assert judge(host, {"remembers": REMEMBERS}, again)["remembers"].verdict.value == "failed"


@pytest.mark.parametrize("broken", ["import nowhere\n", "def check(\n"])
def test_a_checker_that_cannot_run_is_nobodys_failure(host: Host, broken: str) -> None:
    check = StdioCheck(cases=cases(("10", "5 5")), checker=broken)
    found = judge(host, {"ends": "raise SystemExit(1)", "any": "print('5 5')"}, check)
    why = "No module named 'nowhere'" if "nowhere" in broken else "'(' was never closed"
    assert {word for word, _ in words(found).values()} == {"unusable"}, "whatever the programs do"
    assert all(
        "UnusableTests: the checker cannot run: " in said and why in said for _, said in words(found).values()
    )


def test_what_is_printed_makes_no_checker_one_that_cannot_run(host: Host) -> None:
    """Else a wrong answer would have a way out of the score."""
    trusting = "import sys\nexec(open(sys.argv[2]).read() or 'a wrong one')\n"
    for expected in ("assert True", ""):
        check = StdioCheck(cases=cases(("10", expected)), checker=trusting)
        programs = {"import": "print('import nowhere')", "syntax": "print('(')", "right": "print('1')"}
        found = {name: one.verdict.value for name, one in judge(host, programs, check).items()}
        assert found == {"import": "failed", "syntax": "failed", "right": "passed"}, expected


def test_what_makes_tests_unusable_is_filtered_too(host: Host) -> None:
    key = "AK" + "IA" + "QWERTYUIOPASDFGH"
    check = StdioCheck(cases=cases(("10", "5 5")), checker=f"raise ImportError('{key} \\x1b[31m')\n")
    (_, said), *_ = words(judge(host, {"any": "print('5 5')"}, check)).values()
    assert "the checker cannot run" in said
    assert key not in said
    assert "\x1b" not in said


def test_all_runs_of_a_program_are_counted(host: Host) -> None:
    burns = "import time\nend = time.process_time() + 0.1\nwhile time.process_time() < end: pass\n" + SUM
    result = run(host, {"burns": burns})
    assert result.trials[0].verdict.value == "passed"
    assert result.trials[0].usage.wall_ms >= 300
    assert result.usage.wall_ms == result.trials[0].usage.wall_ms


def test_input_that_nobody_reads_is_nobody_elses(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was on its way to a program that has ended is not the next one's, in the same series."""
    check = StdioCheck(cases=cases(("x" * 3_000_000, "done")))
    leaves = "import os\nos.write(1, b'done')\nos._exit(0)\n"
    acquire, lent = host.launcher.acquire, []

    def counted(*args: Any, **options: Any) -> BorrowedSandbox:
        lent.append(acquire(*args, **options))
        return lent[-1]

    monkeypatch.setattr(host.launcher, "acquire", counted)
    found = judge(host, {f"{number}": leaves + f"# {number}" for number in range(6)}, check)
    assert {one.verdict.value for one in found.values()} == {"passed"}, found
    assert len(lent) == (1 if lent[0].series else 6), "none had to be begun anew"


def test_what_costs_all_it_may_by_itself_is_no_way_out_of_the_score(host: Host) -> None:
    # Not by the clock: gVisor's has run on where others had the processor.
    burns = "for _ in range(30_000_000): pass\n"
    trials = tuple(Trial(id=name, source=burns + SUM, check=0) for name in ("it", "other"))
    rates = Rates(per_run=0, per_cpu_second=10**9, per_gib_second=0, percent=100)  # 1,000 micros a second
    for count, verdict in ((1, "failed"), (2, "unjudged")):  # with others it may have been their doing
        spec = JobSpec(evaluation=Evaluation(checks=(CHECK,), trials=trials[:count]), limits={"timeout_s": 9})
        charge = Charge(rates=rates, cap_micros=400)
        manifest = resolve(spec, host.settings).model_copy(update={"charge": charge})
        job_id = host.ledger.admissions.admit(uuid.uuid4().hex, manifest).job_id
        host.runner.run(job_id)
        result = host.ledger.reads.result(job_id)
        assert result is not None
        assert {one.verdict.value for one in result.trials} == {verdict}, result


def test_the_cases_of_a_trial_take_no_worker_for_longer_than_a_trial_may_take(host: Host) -> None:
    """Each of a thousand within its timeout."""
    short = Host(host.settings.launcher.socket, sandbox={"trial_max_s": 2.0})
    check = StdioCheck(cases=cases(*(("", ""),) * 1000))
    with closing(short.launcher):
        found = judge(short, {"slow": "import time\ntime.sleep(0.9)"}, check, timeout_s=2)["slow"]
    assert found.error is not None
    assert (found.verdict.value, found.error.type) == ("timed_out", "TimedOut")
    assert "of 1000: the cases before it took 2 s (sandbox.trial_max_s)" in found.error.message
    assert found.usage.wall_ms < 6000
