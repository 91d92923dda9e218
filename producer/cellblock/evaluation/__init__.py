"""Batch evaluation: problems and samples in, verdicts and pass@k out."""

from cellblock.contract.evaluations import (
    Check,
    FunctionCheck,
    PytestCheck,
    StdioCase,
    StdioCheck,
    TextFile,
    TrialResult,
    TrialVerdict,
    VerdictMode,
)
from cellblock.evaluation.campaign import Campaign
from cellblock.evaluation.comparison import Comparison, Pair, compare, write_comparison
from cellblock.evaluation.formats import Problem
from cellblock.evaluation.json_lines import BadLine, BadLines, Line
from cellblock.evaluation.options import EvaluationOptions
from cellblock.evaluation.pass_at_k import PassAtK, mean_pass_at_k, pass_at_k
from cellblock.evaluation.problems import ProblemSet
from cellblock.evaluation.report import write_report
from cellblock.evaluation.results import ResultFile, SampleResult, write_summary
from cellblock.evaluation.rewards import rewards
from cellblock.evaluation.samples import Invalid, InvalidReason, Sample, SampleFile
from cellblock.evaluation.scores import Scores, TaskScore

__all__ = [
    "BadLine",
    "BadLines",
    "Campaign",
    "Check",
    "Comparison",
    "EvaluationOptions",
    "FunctionCheck",
    "Invalid",
    "InvalidReason",
    "Line",
    "Pair",
    "PassAtK",
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
    "VerdictMode",
    "compare",
    "mean_pass_at_k",
    "pass_at_k",
    "rewards",
    "write_comparison",
    "write_report",
    "write_summary",
]
