"""A tenant writes the tests of its evaluation, and they can take over the judge: it is not believed."""

from __future__ import annotations

import time

import pytest

from cellblock.contract.evaluations import FunctionCheck, TrialVerdict
from cellblock.contract.outcomes import Outcome
from judged import CALL, saying, taking_over
from sandbox.harness import MIB, Host, forget_peak_rss, peak_rss_bytes
from sandbox.judging import CHECK, RIGHT, judge

pytestmark = pytest.mark.no_rerun

PASSED = "['verdict', 'passed', '', '']"


@pytest.fixture(params=["namespaces", "gvisor-oci"])
def evaluation_way(request: pytest.FixtureRequest) -> str:
    """In series, and one by one."""
    return str(request.param)


@pytest.fixture
def host(sandbox_hosts: dict[str, Host], evaluation_way: str) -> Host:
    return sandbox_hosts[evaluation_way]


def hostile(tests: str) -> FunctionCheck:
    return FunctionCheck(functions=("f",), tests=taking_over(tests))


def says(message: str, answered: str = '["calls"]') -> FunctionCheck:
    """Tests that answer the question for a verdict with this message, again and again."""
    return FunctionCheck(functions=("f",), tests=taking_over(saying(message), answered))


def test_calls_without_end_take_the_time_of_one_trial(host: Host) -> None:
    check = hostile(f"while True:\n    judge.send(['call', '{CALL}'])\n    judge.receive()\n")
    began = time.monotonic()
    found = judge(host, {"one": RIGHT, "two": f"{RIGHT}# two"}, check, timeout_s=1)
    assert time.monotonic() - began < 60, "six minutes, when each call has a time of its own"
    assert {one.verdict for one in found.values()} == {TrialVerdict.TIMED_OUT}


def test_calls_to_a_program_that_is_gone_are_not_kept(host: Host) -> None:
    call = "judge.send(['call', '[\"f\", [\"t\", \"' + 'x' * 500_000 + '\"], [\"d\"]]'])"
    ask_often = f"for _ in range(200):\n    {call}\n    judge.receive()\n"
    check = hostile(ask_often + f"judge.send(['call', '{CALL}'])\n")
    source = "import os\ndef f(x): os._exit(0)\n"
    judge(host, {"warm": source}, CHECK)
    held = forget_peak_rss()
    judge(host, {"one": source}, check, timeout_s=5)
    assert peak_rss_bytes() - held < 60 * MIB, "100 MB of calls"  # the verdict is its own to give


def test_predicted_calls_are_few_or_none_are_made(host: Host) -> None:
    answered = f"['calls', *['{CALL.replace(' ', '')}'] * 25_000]"
    source = "import time\ndef f(x): time.sleep(0.001)\n"
    found = judge(host, {"one": source}, says(PASSED, answered), timeout_s=10)["one"]
    assert found.verdict is TrialVerdict.PASSED, "it is the judge's to give"
    assert found.usage.wall_ms < 5000, "the program was busy with calls that nobody needs"


@pytest.mark.parametrize("word", ["failed", "timed_out", "needs_inline"])
def test_what_a_judge_says_is_short(host: Host, word: str) -> None:
    verdict = f"['verdict', '{word}', 'K' * 400_000, 'm' * 400_000]"
    error = judge(host, {"one": RIGHT}, says(verdict))["one"].error
    assert error is not None
    assert (len(error.type), len(error.message)) == (2000, 2000)


@pytest.mark.parametrize("nonsense", ["['deviates', 0]", "['deviates', -1]", "['call', 'x' * 1_000_000]"])
def test_nonsense_is_no_fault_of_the_workers(host: Host, nonsense: str) -> None:
    """It ends with a verdict of its own trial, or none; the other trial has its own."""
    trials = [("hostile", RIGHT, says(nonsense)), ("other", RIGHT, CHECK)]
    result = host.judge(trials, timeout_s=2)
    assert result.trials[0].verdict is not TrialVerdict.PASSED
    assert result.trials[1].verdict is TrialVerdict.PASSED


def test_one_tenants_judge_says_nothing_about_anothers_program(host: Host) -> None:
    """It knows a problem that others use as well, and says that its tests make one call more."""
    evil = '["burn", ["t"], ["d"]]'
    takes_over = hostile(f"""
predict = type(judge).predict_calls
type(judge).predict_calls = lambda self, check: [*predict(self, check), '{evil}']
judge.send({PASSED})
while True:
    word, *rest = judge.receive()
    if word in ("check", "files"):
        judge.send(judge.learn(word, *rest))
    elif word == "predict":
        judge.send(["calls", *judge.predict_calls(judge.checks[rest[0]])])
    else:
        judge.send(judge.judge(**rest[0]))
""")
    public = CHECK.model_copy(update={"setup": "# a problem that everybody uses"})
    program = f"import time\ndef burn(): time.sleep(4)\n{RIGHT}"
    first = host.judge([("a", RIGHT, takes_over), ("b", program, public)], timeout_s=6)
    assert [one.verdict for one in first.trials] == [TrialVerdict.PASSED] * 2
    assert first.trials[1].usage.wall_ms > 3000, "the attack works on who plays it"
    other = host.judge([("c", f"{program}# c", public)], timeout_s=6)
    assert other.outcome is Outcome.OK
    assert other.trials[0].verdict is TrialVerdict.PASSED
    assert other.trials[0].usage.wall_ms < 3000, "a call that another tenant's judge asked for"
