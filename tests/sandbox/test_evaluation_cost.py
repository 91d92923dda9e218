"""An evaluation pays for what its programs and its tests compute, and stops at its cap."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cellblock import JobResult, JobSpec, Outcome
from cellblock.contract.evaluations import (
    Check,
    Evaluation,
    FunctionCheck,
    StdioCase,
    StdioCheck,
    Trial,
    TrialVerdict,
)
from cellblock_config.prices import Rates
from sandbox.harness import Host
from sandbox.judging import CHECK, RIGHT

#: A thousand micros for a CPU second; and one hundred for each run.
OF_CPU = Rates(per_run=0, per_cpu_second=10**9, per_gib_second=0, percent=100)
OF_RUNS = Rates(per_run=10**8, per_cpu_second=10**9, per_gib_second=0, percent=100)
#: Some twenty milliseconds of CPU time for each million. No clock: gVisor's goes on while the host is busy.
BURN = "for _ in range({millions} * 10**6): pass\n"
SPIN = "while True: pass\n"


@pytest.fixture
def host(sandbox_hosts: dict[str, Host], evaluation_way: str) -> Host:
    return sandbox_hosts[evaluation_way]


def evaluate(
    host: Host, trials: Sequence[tuple[str, Check]], cap_micros: int, rates: Rates = OF_CPU
) -> JobResult:
    """The result of these programs and checks, at a price and with ten seconds for each."""
    checks = list(dict.fromkeys(check for _, check in trials))
    listed = [Trial(id=str(n), source=s, check=checks.index(c)) for n, (s, c) in enumerate(trials)]
    evaluation = Evaluation(checks=tuple(checks), trials=tuple(listed))
    spec = JobSpec(evaluation=evaluation, level="permissive", limits={"timeout_s": 10})
    return host.run_at_price(spec, rates, cap_micros)


def test_what_tests_compute_and_raise_is_paid_for(host: Host) -> None:
    """They need no program: the answer comes back as the reason why they cannot be used."""
    check = FunctionCheck(
        setup=BURN.format(millions=40) + "raise ValueError('the answer')", functions=("f",), tests="f(1)\n"
    )
    result = evaluate(host, [(RIGHT, check), (f"{RIGHT}# 2", check)], 10**6, OF_RUNS)
    assert [one.verdict for one in result.trials] == [TrialVerdict.UNUSABLE] * 2
    assert result.usage.cpu_ms >= 300
    assert result.cost_micros is not None
    assert 300 + 2 * 100 <= result.cost_micros <= 6000


def test_what_tests_compute_between_calls_is_paid_for(host: Host) -> None:
    check = FunctionCheck(functions=("f",), tests=BURN.format(millions=40) + "assert f(2) == 5\n")
    result = evaluate(host, [(RIGHT, check)], 10**6)
    assert result.trials[0].verdict is TrialVerdict.PASSED
    assert result.cost_micros is not None
    assert 300 <= result.cost_micros <= 6000


@pytest.mark.parametrize("where", ["tests", "program", "program that prints", "checker"])
def test_the_cap_holds_within_a_trial(host: Host, where: str) -> None:
    every: dict[str, tuple[str, Check]] = {
        "tests": (RIGHT, FunctionCheck(functions=("f",), tests=f"f(2)\n{SPIN}")),
        "program": (f"def f(x):\n    {SPIN}", CHECK),
        "program that prints": (SPIN, StdioCheck(cases=(StdioCase(stdin="", stdout=""),))),
        "checker": ("", StdioCheck(cases=(StdioCase(stdin="", stdout=""),), checker=SPIN)),
    }
    result = evaluate(host, [every[where]], 1000)
    trial = result.trials[0]
    assert (trial.verdict, trial.outcome) == (TrialVerdict.FAILED, Outcome.COST_CAP), result
    assert result.cost_micros == 1000
    assert 800 <= result.usage.paid_cpu_ms <= 3000, "stopped, and not at its timeout of ten seconds"


def test_of_programs_that_are_stopped_one_after_the_other_each_is_paid_for(host: Host) -> None:
    """They may share a sandbox, one after the other, and a stopped one is the last in it."""
    spins = [(f"def f(x):\n    {SPIN}# {n}\n", CHECK) for n in range(4)]
    result = evaluate(host, spins, 1000)
    assert result.outcome is Outcome.COST_CAP
    assert result.cost_micros == 1000
    assert 800 <= result.usage.paid_cpu_ms <= 3000


def test_the_cap_holds_for_all_trials_together(host: Host) -> None:
    burns = BURN.format(millions=30) + RIGHT
    result = evaluate(host, [(f"{burns}# {n}", CHECK) for n in range(6)], 600)
    assert result.outcome is Outcome.COST_CAP
    assert len(result.trials) == 6
    assert {one.verdict for one in result.trials[-3:]} == {TrialVerdict.UNJUDGED}


def test_runs_that_are_begun_anew_are_paid_for_each_time(host: Host) -> None:
    """Tests that call otherwise than was predicted have the program run again."""
    check = FunctionCheck(functions=("f",), tests="import time\nfor n in range(3): f(time.time_ns())\n")
    source = BURN.format(millions=10) + "def f(x): pass\n"
    result = evaluate(host, [(source, check)], 10**6)
    assert result.trials[0].verdict is TrialVerdict.PASSED
    assert result.cost_micros is not None
    assert result.cost_micros >= 1.5 * result.trials[0].usage.cpu_ms, "two runs, of which one is the trial's"
    assert result.usage.cpu_ms >= 1.5 * result.trials[0].usage.cpu_ms


def test_an_honest_evaluation_costs_little_more_than_its_programs(host: Host) -> None:
    result = evaluate(host, [(f"{RIGHT}# {n}", CHECK) for n in range(20)], 10**6)
    assert result.outcome is Outcome.OK
    of_trials = sum(one.usage.cpu_ms for one in result.trials)
    assert of_trials <= result.usage.cpu_ms <= of_trials + 1500
