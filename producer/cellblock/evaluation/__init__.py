"""Batch evaluation: problems and samples in, verdicts and pass@k out."""

from cellblock.evaluation.campaign import Campaign, Plan
from cellblock.evaluation.formats import Problem
from cellblock.evaluation.lines import BadLine
from cellblock.evaluation.passes import Estimate, estimate, pass_at_k
from cellblock.evaluation.problems import ProblemSet
from cellblock.evaluation.results import ResultFile, SampleResult, row
from cellblock.evaluation.rewards import rewards
from cellblock.evaluation.samples import Sample, SampleFile
from cellblock.evaluation.scores import Scores, TaskScore

__all__ = [
    "BadLine",
    "Campaign",
    "Estimate",
    "Plan",
    "Problem",
    "ProblemSet",
    "ResultFile",
    "Sample",
    "SampleFile",
    "SampleResult",
    "Scores",
    "TaskScore",
    "estimate",
    "pass_at_k",
    "rewards",
    "row",
]
