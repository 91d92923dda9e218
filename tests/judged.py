"""Samples and results as an evaluation has them, without a fleet."""

from __future__ import annotations

from cellblock.evaluation import Problem, Sample
from cellblock.models import JobError, Outcome
from cellblock.trials import FunctionCheck, TrialResult, TrialVerdict

PROBLEM = Problem("a", "", FunctionCheck(functions=("f",), tests="assert f()"))


def sample(index: int, source: str | None = None) -> Sample:
    return Sample(index, PROBLEM, source or f"def f(): return {index}", {"task_id": "a", "completion": "…"})


def result(verdict: TrialVerdict, name: str = "") -> TrialResult:
    error = None if verdict is TrialVerdict.PASSED else JobError(type="AssertionError", message="no")
    return TrialResult(id=name, verdict=verdict, channel="split", outcome=Outcome.OK, error=error)
