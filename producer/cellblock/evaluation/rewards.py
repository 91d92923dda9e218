"""Rewards for training loops: one number for each completion, in their order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from cellblock.contract.evaluations import TrialResult, TrialVerdict
from cellblock.evaluation.formats import Problem
from cellblock.evaluation.options import EvaluationOptions
from cellblock.evaluation.samples import Sample

#: Judges samples, in any order, as :meth:`cellblock.Client.evaluate` does. It is called with the samples, and
#: with the options where there are any.
Evaluate = Callable[..., Iterator[tuple[Sample, TrialResult]]]


def rewards(
    evaluate: Evaluate,
    problems: Sequence[Problem],
    completions: Sequence[str | None],
    options: EvaluationOptions | None = None,
) -> list[float]:
    """1.0 for a completion that passes its problem, 0.0 for one that does not pass or cannot be run, and NaN
    for one that could not be judged: a fault of ours never counts as a wrong answer.

    ``options``: handed to ``evaluate``, such as a timeout for each completion.

    >>> rewards(client.evaluate, problems, completions, options)        # doctest: +SKIP
    [1.0, 0.0, nan]

    Raises ValueError unless there are as many problems as completions.
    """
    if len(problems) != len(completions):
        raise ValueError(f"{len(problems)} problems and {len(completions)} completions: give one for each")
    pairs = enumerate(zip(problems, completions, strict=True))
    samples = [Sample.of(index, problem, text, {}) for index, (problem, text) in pairs]
    found = [math.nan] * len(samples)
    for sample, result in evaluate(samples, *(() if options is None else (options,))):
        if result.verdict.scored:
            found[sample.index] = float(result.verdict is TrialVerdict.PASSED)
    return found
