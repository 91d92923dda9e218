"""Whose fault it is that a trial went wrong: no program can choose to be left out of the score."""

from __future__ import annotations

import time

import pytest

from cellblock.contract.evaluations import Evaluation, FunctionCheck, Trial, TrialVerdict
from cellblock.contract.outcomes import Outcome
from sandbox.harness import Host
from sandbox.judging import CHECK, RIGHT, judge

FORGES = "import os, struct\ndef forge(text): os.write(102, struct.pack('>I', len(text)) + text)\n"


@pytest.fixture
def host(sandbox_hosts: dict[str, Host], evaluation_way: str) -> Host:
    return sandbox_hosts[evaluation_way]


@pytest.mark.long("several judges are ended")
def test_who_ends_a_judge_that_has_not_learnt_yet_is_judged_all_the_same(host: Host) -> None:
    """Replies of a size that ends it while it learns: our fault, it seems, and no part of the score."""
    calls = "\n".join(f"assert f({number}) == {number} + 1" for number in range(10))
    check = FunctionCheck(setup="import time\ntime.sleep(0.5)", functions=("f",), tests=calls)
    heavy = """
import os, struct
data = b"\\xff" * (1 << 20)
for _ in range(7):
    head = os.read(100, 5)
    os.read(100, int.from_bytes(head[1:], "big"))
    reply = struct.pack(">I", len(data)) + data
    while reply:
        reply = reply[os.write(102, reply):]
def f(n): return 0
"""
    programs = {"right": "def f(n): return n + 1", "heavy": heavy, "wrong": "def f(n): return 0"}
    for number, memory_bytes in enumerate((64 * 1024 * 1024, 128 * 1024 * 1024)):
        sources = {name: f"{source}\n# {number}" for name, source in programs.items()}
        found = judge(host, sources, check, timeout_s=5, memory_bytes=memory_bytes)
        verdicts = {name: one.verdict.value for name, one in found.items()}
        assert verdicts == {"right": "passed", "heavy": "failed", "wrong": "failed"}, found["heavy"]


@pytest.mark.parametrize("verdict", ["split", "inline"])
def test_tests_that_cannot_be_used_are_nobodys_failure(host: Host, verdict: str) -> None:
    check = FunctionCheck(functions=("f",), tests="assert f(2) ==\n")
    for found in judge(host, {"one": RIGHT, "other": RIGHT}, check, verdict).values():
        assert (found.verdict, found.outcome) == (TrialVerdict.UNUSABLE, Outcome.OK)
        assert found.error is not None
        assert (found.error.type, "SyntaxError" in found.error.message) == ("UnusableTests", True)


def test_tests_that_never_end_cost_one_trial_each(host: Host) -> None:
    check = FunctionCheck(functions=("f",), tests="f(1)\nwhile True: pass\n")
    found = judge(host, {"one": RIGHT, "two": RIGHT}, check, timeout_s=1.0)
    assert {one.verdict for one in found.values()} == {TrialVerdict.TIMED_OUT}


def test_calls_that_are_never_made_cost_nobody_anything(host: Host) -> None:
    check = FunctionCheck(functions=("f",), tests="n = 0\nwhile f(n) < 100: n += 1\nassert n == 12, n\n")
    source = "def f(n): return n if n < 2 else f(n - 1) + f(n - 2)\n"
    assert judge(host, {"it": source}, check, timeout_s=3.0)["it"].verdict is TrialVerdict.PASSED


@pytest.mark.parametrize(
    "source",
    [
        "def f(x): raise StopIteration\n",
        FORGES + "forge(b'[\"not plain\",\"' + b'A' * 1000000 + b'\"]')\n",
        FORGES + "forge(b'[\"raised\",\"' + b'K' * 1000000 + b'\",\"\",null]')\n",
        "def f(x): raise ValueError('\\ud800')\n",
        "import os\nos.write(102, b'\\0\\0\\0\\0' * 100000)\n",
        "import os\nos.write(102, b'\\xff' * 4)\n",
        "class E(Exception): pass\nE.__name__ = 'x' * 10000\ndef f(x): raise E('y' * 100000)\n",
    ],
)
def test_no_program_chooses_to_be_left_out_of_the_score(host: Host, source: str) -> None:
    check = FunctionCheck(functions=("f",), tests="assert all(map(f, [2, 3, 5]))\n")
    found = judge(host, {"it": source, "right": "def f(x): return True\n"}, check, timeout_s=3.0)
    assert found["it"].verdict in {TrialVerdict.FAILED, TrialVerdict.NEEDS_INLINE}, found["it"]
    assert found["right"].verdict is TrialVerdict.PASSED


@pytest.mark.parametrize(
    "source",
    [
        "def f(x): raise ValueError('\\ud800')\n",
        "import json, os, struct\n"
        "nonce = json.loads(os.read(100, 1000)[5:])\n"
        "text = json.dumps([nonce, [], {}, '\\ud800']).encode()\n"
        "os.write(102, struct.pack('>I', len(text)) + text)\n",
        "import os\nos.write(102, b'\\0\\0\\0\\x02[]')\n",
    ],
)
def test_no_inline_program_takes_the_others_of_its_job_along(host: Host, source: str) -> None:
    found = judge(host, {"it": source, "right": RIGHT}, verdict="inline")
    assert [one.verdict.value for one in found.values()] == ["failed", "passed"]


def test_a_setup_that_never_ends_costs_its_own_check_alone(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cellblock_workers.worker.evaluation.judge._LEARN_S", 1.0)
    endless = CHECK.model_copy(update={"setup": "while True: pass\n"})
    trials = [Trial(id=f"endless {number}", source=RIGHT, check=0) for number in range(30)]
    trials.append(Trial(id="right", source=RIGHT, check=1))
    evaluation = Evaluation(checks=(endless, CHECK), trials=tuple(trials))
    began = time.monotonic()
    result = host.run(None, evaluation=evaluation, limits={"timeout_s": 2.0})
    assert [one.verdict.value for one in result.trials] == ["unusable"] * 30 + ["passed"]
    assert time.monotonic() - began < 20, "it was tried once, not thirty times"


def test_output_that_cannot_be_filtered_stays_here_and_is_no_way_out_of_the_score(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: a defect of the filter."""

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("cellblock_workers.worker.evaluation.attempt.OutgoingFilter.look", broken)
    found = judge(host, {"it": "def f(x):\n    print('private')\n    raise ValueError('private')\n"})["it"]
    assert (found.verdict, found.error and found.error.type) == (TrialVerdict.FAILED, "Unfiltered")
    assert "private" not in found.model_dump_json()


def test_a_judge_that_cannot_be_interrupted_by_what_it_is_given_is_the_programs_doing(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the check was new to it, and its prediction known from before."""
    monkeypatch.setattr("cellblock_workers.worker.evaluation.judge._AROUND_S", 1.0)
    monkeypatch.setattr("cellblock_workers.worker.evaluation.judge._LEARN_S", 2.0)
    deaf = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])\nwhile given: pass\n"
    check = FunctionCheck(functions=("f",), tests=f"given = isinstance(f(1), str)\n{deaf}")
    for _ in range(2):
        found = judge(host, {"it": "def f(x): return 'x'\n"}, check, timeout_s=0.5)
        assert found["it"].verdict is TrialVerdict.TIMED_OUT, found["it"]
