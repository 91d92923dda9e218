"""Computes figures from results as they come, so that memory does not grow with their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cellblock.contract.evaluations import TrialVerdict
from cellblock.evaluation.pass_at_k import mean_pass_at_k, pass_at_k
from cellblock.evaluation.results import SCHEMA, SampleResult

#: The most kinds of errors that are told apart; all others count as "others".
_ERRORS_KEPT = 200


@dataclass(slots=True)
class TaskScore:
    """The counts of one problem: samples judged, and among them passed and invalid (which have failed);
    samples not judged for a fault of ours or of its tests; samples that need inline."""

    judged: int = 0
    passed: int = 0
    invalid: int = 0
    unjudged: int = 0
    unusable: int = 0
    needs_inline: int = 0


class Scores:
    """The counts of a run so far."""

    def __init__(self, task_ids: Iterable[str]) -> None:
        """``task_ids``: every problem, also those without samples."""
        self.tasks = {task_id: TaskScore() for task_id in task_ids}
        self.verdicts: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.invalid: Counter[str] = Counter()

    def add(self, result: SampleResult) -> None:
        """Counts a result."""
        task = self.tasks[result.task_id]
        task.unjudged += result.verdict is TrialVerdict.UNJUDGED
        task.unusable += result.verdict is TrialVerdict.UNUSABLE
        if result.verdict.scored:
            task.judged += 1
            task.passed += result.passed
            task.invalid += result.invalid is not None
            task.needs_inline += result.verdict is TrialVerdict.NEEDS_INLINE
        self.verdicts[result.verdict.value] += 1
        self.outcomes[result.outcome] += 1
        if result.invalid is not None:
            self.invalid[result.invalid] += 1
        if result.error is not None:
            known = result.error in self.errors or len(self.errors) < _ERRORS_KEPT
            self.errors[result.error if known else "others"] += 1

    @property
    def done(self) -> int:
        """The number of results so far."""
        return self.verdicts.total()

    @property
    def passed(self) -> int:
        """The number of samples that passed."""
        return self.verdicts[TrialVerdict.PASSED.value]

    def summary(
        self,
        ks: Sequence[int],
        seed: int = 0,
        not_run: int = 0,
        left_out: int = 0,
        bad_lines: Sequence[str] = (),
        lines_left_out: int = 0,
    ) -> dict[str, Any]:
        """All figures, ready for JSON. A pass@k is null if some problem has too few samples for it, or if
        samples were ``not_run`` because of the results of others: the estimator needs random samples.

        ``left_out``: unusable lines of samples and of problems; ``bad_lines``: the errors of the first of
        them; ``lines_left_out``: unusable lines of samples alone."""
        judged = {task_id: task for task_id, task in self.tasks.items() if task.judged}
        counts = [(task.judged, task.passed) for task in judged.values()]
        found = {k: None if not_run else mean_pass_at_k(counts, k, seed) for k in ks}
        return {
            "schema": SCHEMA,
            "seed": seed,
            "samples": self.done,
            "account": self._account(not_run, lines_left_out),
            "invalid": dict(sorted(self.invalid.items())),
            "not_run": not_run,
            "left_out": left_out,
            "bad_lines": list(bad_lines),
            "problems": len(self.tasks),
            "problems_judged": len(judged),
            "problems_solved": sum(task.passed > 0 for task in judged.values()),
            "pass_at": {str(k): asdict(one) if one is not None else None for k, one in found.items()},
            "verdicts": dict(sorted(self.verdicts.items())),
            "outcomes": dict(sorted(self.outcomes.items())),
            "errors": dict(self.errors.most_common()),
            "unusable": sorted(task_id for task_id, task in self.tasks.items() if task.unusable),
            "needs_inline": sorted(task_id for task_id, task in self.tasks.items() if task.needs_inline),
            "tasks": {
                task_id: {
                    **asdict(task),
                    "pass_at": {
                        str(k): pass_at_k(task.judged, task.passed, k)
                        for k in ks
                        if k <= task.judged and not not_run
                    },
                }
                for task_id, task in self.tasks.items()
            },
        }

    def _account(self, not_run: int, left_out: int) -> dict[str, int]:
        """The account of all input: given = judged + unjudged + unusable_tests + not_run + left_out, and
        judged = run + invalid."""
        unjudged = self.verdicts[TrialVerdict.UNJUDGED.value]
        unusable = self.verdicts[TrialVerdict.UNUSABLE.value]
        judged, invalid = self.done - unjudged - unusable, self.invalid.total()
        return {
            "given": self.done + not_run + left_out,
            "judged": judged,
            "unjudged": unjudged,
            "unusable_tests": unusable,
            "not_run": not_run,
            "left_out": left_out,
            "run": judged - invalid,
            "invalid": invalid,
        }
