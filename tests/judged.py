"""Samples and results as an evaluation has them, without a fleet; and tests that take over their judge."""

from __future__ import annotations

from cellblock.contract.evaluations import FunctionCheck, TrialResult, TrialVerdict
from cellblock.contract.outcomes import JobError, Outcome
from cellblock.evaluation import Problem, Sample

PROBLEM = Problem("a", "", FunctionCheck(functions=("f",), tests="assert f()"))


def sample(index: int, source: str | None = None) -> Sample:
    return Sample(index, PROBLEM, source or f"def f(): return {index}", {"task_id": "a", "completion": "…"})


def result(verdict: TrialVerdict, name: str = "") -> TrialResult:
    error = None if verdict is TrialVerdict.PASSED else JobError(type="AssertionError", message="no")
    return TrialResult(id=name, verdict=verdict, channel="split", outcome=Outcome.OK, error=error)


#: A call of ``f(1)``, as judges write it.
CALL = '["f", ["t", 1], ["d"]]'
_TAKES_OVER = """
import os, signal, sys
frame = sys._getframe()
while not hasattr(frame.f_locals.get("self"), "outward"):
    frame = frame.f_back
judge = frame.f_locals["self"]
if judge.program is None:
    judge.send({answered})
    judge.receive()
signal.setitimer(signal.ITIMER_REAL, 0)
"""


def taking_over(tests: str, answered: str = '["calls"]') -> str:
    """Tests that are the judge from here on (finding H1): asked which calls come they say ``answered``."""
    return _TAKES_OVER.replace("{answered}", answered) + tests


def saying(message: str) -> str:
    """A judge's replies: this to every question."""
    return f"while True:\n    judge.send({message})\n    judge.receive()\n"
