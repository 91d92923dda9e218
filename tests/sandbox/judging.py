"""Programs judged by one check, on a host of the tests."""

from __future__ import annotations

from cellblock.contract.evaluations import FunctionCheck, TrialResult
from sandbox.harness import Host

CHECK = FunctionCheck(functions=("f",), tests="assert f(2) == 5\nassert f([3]) == [3]\n")
RIGHT = "def f(x): return x if isinstance(x, list) else 2 * x + 1\n"


def judge(
    host: Host,
    programs: dict[str, str],
    check: FunctionCheck = CHECK,
    verdict: str = "split",
    **limits: float,
) -> dict[str, TrialResult]:
    trials = [(name, source, check) for name, source in programs.items()]
    result = host.judge(trials, verdict, **limits)
    assert result.usage.wall_ms == sum(trial.usage.wall_ms for trial in result.trials)
    return {trial.id: trial for trial in result.trials}
