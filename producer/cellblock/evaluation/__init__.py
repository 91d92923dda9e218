"""Batch evaluation: problems and samples in, verdicts and pass@k out."""

from cellblock.evaluation.campaign import Campaign, Plan
from cellblock.evaluation.comparison import Comparison, Pair, compare, write_comparison
from cellblock.evaluation.formats import Problem
from cellblock.evaluation.lines import BadLine, BadLines
from cellblock.evaluation.passes import PassAtK, mean_pass_at_k, pass_at_k
from cellblock.evaluation.problems import ProblemSet
from cellblock.evaluation.report import write_report
from cellblock.evaluation.results import ResultFile, SampleResult
from cellblock.evaluation.rewards import rewards
from cellblock.evaluation.samples import Sample, SampleFile
from cellblock.evaluation.scores import Scores, TaskScore
from cellblock.trials import (
    FunctionCheck,
    PytestCheck,
    StdioCase,
    StdioCheck,
    TextFile,
    TrialResult,
    TrialVerdict,
)

__all__ = [
    "BadLine",
    "BadLines",
    "Campaign",
    "Comparison",
    "FunctionCheck",
    "Pair",
    "PassAtK",
    "Plan",
    "Problem",
    "ProblemSet",
    "PytestCheck",
    "ResultFile",
    "Sample",
    "SampleFile",
    "SampleResult",
    "Scores",
    "StdioCase",
    "StdioCheck",
    "TaskScore",
    "TextFile",
    "TrialResult",
    "TrialVerdict",
    "compare",
    "mean_pass_at_k",
    "pass_at_k",
    "rewards",
    "write_comparison",
    "write_report",
]
