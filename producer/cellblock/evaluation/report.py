"""``report.html``: the results of a run on one page for people."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cellblock.contract.evaluations import TrialVerdict
from cellblock.evaluation import pages
from cellblock.evaluation.report_data import Digest, Spread
from cellblock.evaluation.results import asked_of, rows, summary_of
from cellblock.evaluation.samples import InvalidReason

FILE = "report.html"

#: The most cells of the strip, where further problems share cells, and the most rows of the table.
_CELLS = 1_000
_SLOWEST = 10
_BARS = 7
_KINDS = 40
_TICKS = 6
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_ASKED = {
    "verdict": "verdict mode",
    "level": "isolation level",
    "timeout_s": "timeout of a sample, in seconds",
    "image": "image",
    "samples": "samples, SHA-256",
    "problems": "problems, SHA-256",
}
#: Why a sample cannot be run (``InvalidReason``), in words.
_REASONS = {
    InvalidReason.MISSING: "have no completion",
    InvalidReason.NOT_TEXT: "are not text",
    InvalidReason.NOT_UNICODE: "are not valid Unicode",
    InvalidReason.TOO_LARGE: "are too large",
    InvalidReason.UNREADABLE: "are not JSON that can be read",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the strip: one problem, or several neighbours."""

    name: str
    judged: int
    passed: int
    unjudged: int

    @property
    def rate(self) -> float | None:
        """The share of judged samples that passed; None if none was judged."""
        return self.passed / self.judged if self.judged else None


@dataclass(frozen=True, slots=True)
class Column:
    """A bar of a chart, in hundredths of its width and height."""

    left: float
    width: float
    height: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class Chart:
    """A histogram with a logarithmic axis. ``ticks`` and ``marks``: values with their places on the axis."""

    count: int
    columns: tuple[Column, ...]
    ticks: tuple[tuple[float, float], ...]
    marks: Mapping[str, tuple[float, float]]
    most: int

    @classmethod
    def of(cls, spread: Spread) -> Chart:
        """The chart of these counts."""
        bars = spread.bars(_BARS)
        highest = max((bar.count for bar in bars), default=1)
        wide = 100 / max(1, len(bars))
        columns = tuple(
            Column(
                left=at * wide,
                width=wide,
                height=100 * bar.count / highest,
                low=bar.low,
                high=bar.high,
                count=bar.count,
            )
            for at, bar in enumerate(bars)
        )
        bounds = (bars[0].low, bars[-1].high) if bars else (1.0, 2.0)
        marks = {name: spread.quantile(share) for name, share in _QUANTILES.items()}
        return cls(
            count=spread.count,
            columns=columns,
            ticks=tuple((value, _along(value, bounds)) for value in _ticks(bounds)),
            marks={name: (value, _along(value, bounds)) for name, value in marks.items()},
            most=spread.most,
        )


def write_report(folder: Path, files: Mapping[str, str] | None = None) -> Path:
    """Writes ``report.html`` into a folder that has results and a summary. Returns its path.

    ``files``: the names of the input files, which the folder does not record. The results are read once, a
    line at a time. The same files give the same bytes. Raises :class:`InvalidJob` where one of them cannot be
    used, and :class:`NotConfigured` without jinja2.
    """
    summary, digest = summary_of(folder), Digest(rows(folder))
    asked = asked_of(folder)
    kinds = digest.failures
    path = folder / FILE
    pages.save(
        path,
        "report.html.j2",
        asked=[*(files or {}).items(), *((_ASKED.get(name, name), value) for name, value in asked.items())],
        summary=summary,
        account=summary["account"],
        reasons=_REASONS,
        passed=summary["verdicts"].get(TrialVerdict.PASSED, 0),
        unjudged=summary["verdicts"].get(TrialVerdict.UNJUDGED, 0),
        cells=list(_cells(summary["tasks"])),
        problems=[_problem(name, task, digest) for name, task in list(summary["tasks"].items())[:_CELLS]],
        wall=Chart.of(digest.wall_ms),
        memory=Chart.of(digest.memory_bytes),
        unmeasured=digest.unmeasured,
        slowest=[(name, spread.quantile(0.5), spread.most) for name, spread in digest.slowest(_SLOWEST)],
        kinds=kinds[:_KINDS],
        further=kinds[_KINDS:],
    )
    return path


def _cells(tasks: Mapping[str, Mapping[str, int]]) -> Iterator[Cell]:
    names, together = list(tasks), math.ceil(len(tasks) / _CELLS) or 1
    for at in range(0, len(names), together):
        those = names[at : at + together]
        yield Cell(
            name=those[0] if len(those) == 1 else f"{those[0]} to {those[-1]}",
            judged=sum(tasks[name]["judged"] for name in those),
            passed=sum(tasks[name]["passed"] for name in those),
            unjudged=sum(tasks[name]["unjudged"] + tasks[name]["unusable"] for name in those),
        )


def _problem(name: str, task: Mapping[str, int], digest: Digest) -> tuple[Cell, float | None]:
    spread = digest.by_task.get(name)
    cell = Cell(name, task["judged"], task["passed"], task["unjudged"] + task["unusable"])
    return cell, spread.quantile(0.5) if spread else None


def _ticks(bounds: tuple[float, float]) -> Iterator[float]:
    """Powers of two between the bounds, at equal distances on the axis."""
    first, last = math.ceil(math.log2(bounds[0])), math.floor(math.log2(bounds[1]))
    return (2.0**power for power in range(first, last + 1, math.ceil((last - first + 1) / _TICKS) or 1))


def _along(value: float, bounds: tuple[float, float]) -> float:
    low, high = map(math.log2, bounds)
    return min(100.0, max(0.0, 100 * (math.log2(max(1, value)) - low) / (high - low)))
