"""The figures of a report, from results read once, one at a time: memory does not grow with their number."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from cellblock.contract.evaluations import TrialVerdict
from cellblock.evaluation.results import SampleResult

#: Steps per doubling: a quantile is within 4.5 % of the exact value.
_STEPS = 8
#: Steps per bar of a histogram.
_BAR_STEPS = 4
#: The most kinds of failures that are told apart; all others count as OTHERS.
_KINDS_KEPT = 200
OTHERS = "others"
_EXAMPLES = 3
_NAME_CHARS = 120
_MESSAGE_CHARS = 600
_OUTPUT_CHARS = 1200


@dataclass(frozen=True, slots=True)
class Bar:
    """The number of values from ``low`` to below ``high``."""

    low: float
    high: float
    count: int


class Spread:
    """A distribution of values in buckets whose bounds grow by 9 %: its memory does not grow with the values.
    Values below 1 count as 1."""

    def __init__(self) -> None:
        self._steps: Counter[int] = Counter()
        self.count = 0
        self.most = 0

    def add(self, value: int) -> None:
        """Counts a value."""
        self._steps[math.floor(_STEPS * math.log2(max(1, value)))] += 1
        self.count += 1
        self.most = max(self.most, value)

    def quantile(self, share: float) -> float:
        """The value that this share of all values does not exceed, to within 4.5 %; 0 without values."""
        wanted, seen = math.ceil(share * self.count), 0
        for step, count in sorted(self._steps.items()):
            seen += count
            if seen >= wanted:
                return min(2 ** ((step + 0.5) / _STEPS), max(1, self.most))
        return 0.0

    def bars(self, least: int = 1) -> list[Bar]:
        """Two bars per doubling, from the first with values to the last, including empty ones. Fewer than
        ``least`` get empty bars added on either side. Without values the list is empty."""
        found: Counter[int] = Counter()
        for step, count in self._steps.items():
            found[step // _BAR_STEPS] += count
        if not found:
            return []
        spare = max(0, least - (max(found) + 1 - min(found)))
        first, by_doubling = max(0, min(found) - spare // 2), _STEPS // _BAR_STEPS
        return [
            Bar(2 ** (bar / by_doubling), 2 ** ((bar + 1) / by_doubling), found[bar])
            for bar in range(first, max(max(found) + 1, first + least))
        ]


@dataclass(frozen=True, slots=True)
class Example:
    """One sample that did not pass, its texts cut."""

    task_id: str
    index: int
    message: str
    stdout: str
    stderr: str

    @classmethod
    def of(cls, result: SampleResult, line: dict[str, Any]) -> Example:
        """The part of a line that the report shows."""
        error = line.get("error") or {}
        return cls(
            task_id=shortened(result.task_id, _NAME_CHARS),
            index=result.index,
            message=shortened(str(error.get("message") or ""), _MESSAGE_CHARS),
            stdout=shortened(str(line.get("stdout") or ""), _OUTPUT_CHARS),
            stderr=shortened(str(line.get("stderr") or ""), _OUTPUT_CHARS),
        )


@dataclass(slots=True)
class Failures:
    """Samples that failed in the same way. ``examples``: one from each of the first problems with it."""

    verdict: TrialVerdict
    error: str
    count: int = 0
    tasks: set[str] = field(default_factory=set)
    examples: list[Example] = field(default_factory=list)


class Digest:
    """Time, memory and failures of a run. It holds some numbers for each problem, and a few texts."""

    def __init__(self, results: Iterable[tuple[SampleResult, dict[str, Any]]]) -> None:
        """``results``: those of :func:`cellblock.evaluation.results.rows`; read once."""
        self.wall_ms, self.memory_bytes = Spread(), Spread()
        self.unmeasured = 0
        self.by_task: dict[str, Spread] = {}
        self._failures: dict[tuple[TrialVerdict, str], Failures] = {}
        for result, line in results:
            self._measure(result)
            if not result.passed:
                self._file(result, line)

    @property
    def failures(self) -> list[Failures]:
        """Each kind of failure, the most frequent first."""
        return sorted(self._failures.values(), key=lambda one: (-one.count, one.verdict, one.error))

    def slowest(self, most: int) -> Iterator[tuple[str, Spread]]:
        """The ``most`` slowest problems by median time, the slowest first."""
        order = sorted(self.by_task.items(), key=lambda one: (-one[1].quantile(0.5), -one[1].most, one[0]))
        yield from order[:most]

    def _measure(self, result: SampleResult) -> None:
        """Counts a sample's time and memory. Samples that were not judged or are invalid have none."""
        if not result.verdict.scored or result.invalid is not None:
            return
        self.wall_ms.add(result.wall_ms)
        self.by_task.setdefault(result.task_id, Spread()).add(result.wall_ms)
        if result.peak_memory_bytes:
            self.memory_bytes.add(result.peak_memory_bytes)
        else:
            self.unmeasured += 1

    def _file(self, result: SampleResult, line: dict[str, Any]) -> None:
        error = shortened(result.error or result.outcome, _NAME_CHARS)
        if (result.verdict, error) not in self._failures and len(self._failures) >= _KINDS_KEPT:
            error = OTHERS
        kind = self._failures.setdefault((result.verdict, error), Failures(result.verdict, error))
        kind.count += 1
        if result.task_id not in kind.tasks and len(kind.examples) < _EXAMPLES:
            kind.examples.append(Example.of(result, line))
        kind.tasks.add(result.task_id)


def shortened(text: str, most: int) -> str:
    """The text; if it is longer than ``most``, its start, its end, and the number of characters left out."""
    if len(text) <= most:
        return text
    tail = most // 3
    return f"{text[: most - tail]} […{len(text) - most:,} characters left out…] {text[-tail:]}"
