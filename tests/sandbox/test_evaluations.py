"""Trials of one evaluation: what came of each, and that none knows of another."""

from __future__ import annotations

import ast

import pytest

from cellblock.contract.evaluations import Evaluation, FunctionCheck, Trial, TrialVerdict
from cellblock.contract.outcomes import JobError, Outcome
from sandbox.harness import Host
from sandbox.judging import CHECK, RIGHT, judge


@pytest.fixture
def host(sandbox_hosts: dict[str, Host], evaluation_way: str) -> Host:
    return sandbox_hosts[evaluation_way]


def test_the_memory_of_each_is_its_own(host: Host) -> None:
    found = judge(
        host,
        {"large": f"held = b'x' * 100_000_000\n{RIGHT}", **{str(n): f"{RIGHT}# {n}" for n in range(5)}},
    )
    peaks = {name: one.usage.peak_memory_bytes for name, one in found.items()}
    assert 100_000_000 < peaks.pop("large") < 200_000_000
    assert all(1_000_000 < peak < 90_000_000 for peak in peaks.values()), peaks


@pytest.mark.parametrize("verdict", ["split", "inline"])
def test_an_assertion_without_words_says_its_line(host: Host, verdict: str) -> None:
    tests = "assert f(1) == 1\nassert f(2) == 4\n"
    check = FunctionCheck(functions=("f",), tests=tests)
    found = judge(host, {"wrong": "def f(x): return x", "none": "g = 1"}, check, verdict)
    errors = {name: one.error for name, one in found.items()}
    assert errors["wrong"] == JobError(type="AssertionError", message="assert f(2) == 4")
    assert errors["none"] == JobError(type="NameError", message="name 'f' is not defined")


def test_a_problem_is_done_with_its_first_pass(host: Host) -> None:
    sources = ["def f(x): return 0\n", RIGHT, f"{RIGHT}# again", "def f(x): return 1\n"]
    trials = tuple(Trial(id=str(number), source=source, check=0) for number, source in enumerate(sources))
    asked = Evaluation(checks=(CHECK,), trials=trials, stop_early=True)
    result = host.run(None, evaluation=asked, limits={"timeout_s": 10.0})
    assert [(one.id, one.verdict.value) for one in result.trials] == [("0", "failed"), ("1", "passed")]
    assert result.outcome is Outcome.OK


def test_what_a_time_slice_does_not_reach_is_given_back(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cellblock_workers.worker.evaluation.attempt._TIME_SLICE_S", 0.5)
    slow = f"import time\ntime.sleep(0.3)\n{RIGHT}"
    trials = tuple(Trial(id=str(number), source=f"{slow}# {number}", check=0) for number in range(5))
    asked = Evaluation(checks=(CHECK,), trials=trials)
    result = host.run(None, evaluation=asked, limits={"timeout_s": 10.0})
    assert result.outcome is Outcome.OK
    assert [trial.verdict.value for trial in result.trials] == ["passed"] * len(result.trials)
    assert [trial.id for trial in result.trials] in (["0"], ["0", "1"])
    assert len(judge(host, {trial.id: trial.source for trial in trials})) == 5, (
        "in the end all have a verdict"
    )


@pytest.mark.parametrize("verdict", ["split", "inline"])
def test_a_line_printed_in_each_call_costs_no_wait(host: Host, verdict: str) -> None:
    check = FunctionCheck(functions=("f",), tests="assert [f(n) for n in range(200)] == list(range(200))\n")
    said = "def f(n):\n    print(n % 10)\n    return n\n"
    wrong = said.replace("return n", "return n if n < 199 else None")
    found = judge(host, {"right": said, "wrong": wrong}, check, verdict, timeout_s=4.0)
    assert {name: one.verdict.value for name, one in found.items()} == {"right": "passed", "wrong": "failed"}
    assert found["wrong"].stdout == "".join(f"{number % 10}\n" for number in range(200))


LATE = """
import os, time
def f(n):
    time.sleep(0.05)  # longer than output gathers
    {says}
    return n
"""


@pytest.mark.parametrize("verdict", ["split", "inline"])
def test_what_is_said_together_with_a_reply_costs_no_verdict(host: Host, verdict: str) -> None:
    check = FunctionCheck(functions=("f",), tests="for n in range(6): assert f(n) == n\n")
    says = {
        "prints": "print('asked for', n)",
        "prints errors": "print(n, file=__import__('sys').stderr)",
        "closes its output": "n == 3 and os.close(1)",
        "closes both": "n == 2 and (os.write(2, b'x'), os.close(2), os.close(1))",
    }
    found = judge(host, {name: LATE.format(says=code) for name, code in says.items()}, check, verdict)
    assert {name: one.verdict.value for name, one in found.items()} == dict.fromkeys(says, "passed")


@pytest.mark.parametrize("verdict", ["split", "inline"])
def test_each_is_judged_by_itself(host: Host, verdict: str) -> None:
    found = judge(
        host,
        {
            "right": RIGHT,
            "wrong": "def f(x):\n    print('I am', x)\n    return 0\n",
            "broken": "def f(x) return\n",
            "raises": "def f(x): raise ValueError('no idea')\n",
            "leaves": "import os\nos._exit(3)\n",
            "right again": RIGHT,
        },
        verdict=verdict,
    )
    words = {name: (one.verdict.value, one.error.type if one.error else None) for name, one in found.items()}
    assert words == {
        "right": ("passed", None),
        "wrong": ("failed", "AssertionError"),
        "broken": ("failed", "SyntaxError"),
        "raises": ("failed", "ValueError"),
        "leaves": ("failed", "Exit"),
        "right again": ("passed", None),
    }
    assert {one.channel for one in found.values()} == {verdict}
    assert found["wrong"].stdout.startswith("I am 2\n")
    assert found["right"].stdout == "", "nobody reads what passed"
    assert found["leaves"].outcome is Outcome.EXIT


def test_a_program_that_goes_too_far_is_stopped_and_the_next_is_not_harmed(host: Host) -> None:
    endless = judge(host, {"never ends": "def f(x):\n    while True: pass\n", "right": RIGHT}, timeout_s=3.0)
    assert [one.verdict.value for one in endless.values()] == ["timed_out", "passed"]
    assert endless["never ends"].outcome is Outcome.WALL_TIMEOUT
    found = judge(
        host,
        {
            "takes all memory": "def f(x):\n    held = []\n    while True: held.append(bytes(1 << 24))\n",
            "floods": "def f(x):\n    while True: print('x' * 10000)\n",
            "right": RIGHT,
        },
        timeout_s=20.0,
        memory_bytes=128 * 1024 * 1024,
        output_bytes=1024 * 1024,
    )
    assert {name: (one.verdict, one.outcome) for name, one in found.items()} == {
        "takes all memory": (TrialVerdict.FAILED, Outcome.MEMORY),
        "floods": (TrialVerdict.FAILED, Outcome.OUTPUT_LIMIT),
        "right": (TrialVerdict.PASSED, Outcome.OK),
    }


CONFINED = r"""
import os, socket
status = dict(line.split(':\t', 1) for line in open('/proc/self/status').read().splitlines() if ':\t' in line)
found = {name: status.get(name, '') for name in ('CapEff', 'CapPrm', 'CapBnd', 'NoNewPrivs', 'Seccomp')}
try:
    socket.create_connection(('1.1.1.1', 80), 1)
    found['network'] = 'there'
except OSError as error: found['network'] = error.errno
for place in ('/', '/usr', '/etc'):
    try:
        open(place + '/written', 'w')
        found['written'] = place
    except OSError: pass
found['uid'] = [os.getuid(), os.geteuid()]
found['processes'] = len([name for name in os.listdir('/proc') if name.isdigit()]) <= 2
found['host'] = os.uname().nodename
def f(): return found
"""


@pytest.mark.way("namespaces")
def test_in_a_series_each_has_every_control_of_a_single_one(sandbox_hosts: dict[str, Host]) -> None:
    host = sandbox_hosts["namespaces"]
    single = host.run(CONFINED + "result = found\n").value
    check = FunctionCheck(functions=("f",), tests="assert f() == None, f()\n")
    series = judge(host, dict.fromkeys("abcdef", CONFINED), check)
    assert isinstance(single, dict)
    assert single["CapEff"] == "0" * 16
    assert (single["Seccomp"], single["host"]) == ("2", "sandbox")
    assert single["network"] in {101, 113}
    single["CapBnd"] = "0" * 16  # a single one's guest needs three to make its job another
    for one in series.values():
        assert one.error is not None
        assert ast.literal_eval(one.error.message) == single


def test_what_is_more_than_a_value_says_so(host: Host) -> None:
    programs = {
        "generator": "def f(x): yield x\n",
        "class": "def f(x): return type('X', (), {})\n",
        "right": RIGHT,
    }
    found = judge(host, programs)
    assert [one.verdict.value for one in found.values()] == ["needs_inline", "needs_inline", "passed"]
    error = found["generator"].error
    assert error is not None and "generator" in error.message
    passes_one = FunctionCheck(functions=("f",), tests="assert f(lambda: 1) == 1\n")
    program = {"calls it": "def f(x): return x()\n"}
    assert judge(host, program, passes_one)["calls it"].verdict is TrialVerdict.NEEDS_INLINE
    assert judge(host, program, passes_one, "inline")["calls it"].verdict is TrialVerdict.PASSED


def test_values_cross_as_what_they_are(host: Host) -> None:
    check = FunctionCheck(
        functions=("f", "change"),
        tests="""
import math
for value in (0, -1, 2**4000, 2**200000, True, None, 1.5, float('inf'), 1j, '', 'ü\\ud800', b'\\xff\\0', [],
              (), {}):
    got = f(value)
    assert got == value and type(got) is type(value), (got, value)
assert math.isnan(f(float('nan')))
nested = {(1, 'a'): [{2.5: {3}}, frozenset({b'x', (1,)})], None: ({},)}
assert f(nested) == nested
assert f(x=1) == 1
rows = [[1, 2], [3]]
first = rows[0]
assert change(rows, {'a': {1}}) is None
assert rows == [[1, 2, 'new'], [3], []] and first is rows[0] and first == [1, 2, 'new']
try: f()
except TypeError as error: assert 'argument' in str(error)
else: assert False
""",
    )
    source = """
def f(x): return x
def change(rows, more):
    rows[0].append('new')
    rows.append([])
"""
    found = judge(host, {"it": source}, check)["it"]
    assert found.verdict is TrialVerdict.PASSED, found


def test_subclasses_arrive_as_what_they_hold(host: Host) -> None:
    check = FunctionCheck(
        functions=("f",), tests="for n in range(9):\n    assert type(f(n)).__module__ == 'builtins', n\n"
    )
    source = """
import collections, enum
class E(enum.IntEnum): A = 7
class S(str): pass
class B(bytes): pass
class L(list): pass
class F(float): pass
P = collections.namedtuple('P', 'x y')
made = [E.A, S('s'), B(b'b'), L([1]), F(2.5), P(1, 2), collections.defaultdict(int, a=1),
        collections.OrderedDict(a=1), collections.Counter('aab')]
def f(n): return made[n]
"""
    assert judge(host, {"it": source}, check)["it"].verdict is TrialVerdict.PASSED


def test_calls_that_hang_on_answers_are_made_one_by_one(host: Host) -> None:
    """And a program that counts its calls sees no other ones than the tests make."""
    check = FunctionCheck(
        functions=("f",),
        tests="n = 1\nfor _ in range(5):\n    n = f(n)\nassert n == 32, n\nassert f(0) == 6\n",
    )
    source = "calls = 0\ndef f(n):\n    global calls\n    calls += 1\n    return calls if n == 0 else 2 * n\n"
    assert judge(host, {"one": source, "two": source}, check) and all(
        one.verdict is TrialVerdict.PASSED
        for one in judge(host, {"one": source, "two": source}, check).values()
    )


def test_what_stands_under_main_is_not_run(host: Host) -> None:
    found = judge(host, {"it": RIGHT + "if __name__ == '__main__':\n    raise SystemExit(1)\n"})
    assert found["it"].verdict is TrialVerdict.PASSED


def test_secrets_that_a_program_prints_stay_here(host: Host) -> None:
    key = "AKIA" + "IOSFODNN7EXAMPLF"
    found = judge(host, {"it": f"print('{key}')\ndef f(x): raise ValueError('{key}')\n"})["it"]
    assert key not in found.model_dump_json()
    assert "REDACTED" in found.stdout


def test_a_program_knows_no_call_before_it_has_answered_the_one_before(host: Host) -> None:
    """Or the later ones would tell it what to answer to the earlier."""
    check = FunctionCheck(
        functions=("enc", "dec"),
        tests="""
for word in ('abc', 'xyz'):
    assert enc(word) == word[::-1]
    assert dec(word[::-1]) == word
""",
    )
    cheat = """
import json, os, select, sys
known, frame = [], sys._getframe()
while frame:
    known += [str(one) for one in frame.f_locals.values()]
    frame = frame.f_back
def enc(word):
    if select.select([100], [], [], 0)[0]: known.append(os.read(100, 100000).decode())
    return 'cba' if any('cba' in text for text in known) else None
def dec(word): return None
"""
    honest = "def enc(word): return word[::-1]\ndec = enc\n"
    found = judge(host, {"cheat": cheat, "honest": honest}, check)
    assert [one.verdict for one in found.values()] == [TrialVerdict.FAILED, TrialVerdict.PASSED]


def test_a_call_that_was_predicted_and_is_not_made_answers_no_other(host: Host) -> None:
    check = FunctionCheck(functions=("f",), tests="n = f(1)\nassert f(2 if n == 7 else 3) == 30\n")
    found = judge(host, {"it": "def f(x): return 10 * x\n"}, check)
    assert found["it"].verdict is TrialVerdict.PASSED, found["it"].error
