"""Compares two runs over the same problems: is one better, or can chance explain the difference?

The comparison is paired, problem by problem, because a problem is equally hard in both runs. For each problem
judged in both, d is its pass rate in B minus that in A; the difference of the runs is the mean of d.

* **p** is from the sign-flip permutation test (Fisher, "The Design of Experiments", 1935, section 21; for
  paired systems: Smucker, Allan and Carterette, CIKM 2007). If A and B were alike, each d could equally have
  the other sign; p is the share of all choices of signs whose mean is at least as far from 0 as the real one.
  The test tries every choice if at most 16 values of d are not 0. Otherwise it draws 10,000, and p is
  (1 + as far) / (1 + drawn), which is never 0 (Phipson and Smyth, "Permutation p-values should never be
  zero", 2010). It counts in whole numbers, so that no rounding takes a tie for a difference.
* The **interval** is the percentile bootstrap of the mean of d, over problems (Efron and Tibshirani, "An
  Introduction to the Bootstrap", 1993, chapter 13).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Literal

from cellblock.errors import InvalidJob
from cellblock.evaluation import pages
from cellblock.evaluation.pass_at_k import RESAMPLES, SHARE
from cellblock.evaluation.report_data import Example
from cellblock.evaluation.results import asked_of, rows, summary_of

EXACT_MOST = 16
FLIPS = 10_000
#: From this p on, the difference counts as chance.
ALPHA = 0.05
#: The number of signs that one random byte flips.
_BITS = 8


@dataclass(slots=True)
class Side:
    """One problem in one run. ``failed``: the first sample of it that did not pass."""

    judged: int = 0
    passed: int = 0
    failed: Example | None = None

    @property
    def rate(self) -> Fraction:
        """The share of its samples that passed."""
        return Fraction(self.passed, self.judged)


@dataclass(frozen=True, slots=True)
class Pair:
    """One problem in both runs."""

    task_id: str
    a: Side
    b: Side

    @property
    def difference(self) -> Fraction:
        """The pass rate in B minus that in A."""
        return self.b.rate - self.a.rate


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two runs. Rates and their differences are shares of 1.

    ``pairs``: every problem judged in both, the greatest loss first. ``differs``: the options in which the
    runs differ, with A's value and B's.
    """

    pairs: tuple[Pair, ...]
    rate_a: float
    rate_b: float
    difference: float
    low: float
    high: float
    p: float
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()
    differs: Mapping[str, tuple[object, object]] = field(default_factory=dict)

    @property
    def worse(self) -> tuple[Pair, ...]:
        """The problems with a lower pass rate in B, the greatest loss first."""
        return tuple(pair for pair in self.pairs if pair.difference < 0)

    @property
    def better(self) -> tuple[Pair, ...]:
        """The problems with a higher pass rate in B, the greatest gain first."""
        gained = [pair for pair in self.pairs if pair.difference > 0]
        return tuple(sorted(gained, key=lambda pair: (-pair.difference, pair.task_id)))

    @property
    def same(self) -> int:
        """The number of problems with equal pass rates in both."""
        return len(self.pairs) - len(self.worse) - len(self.better)

    @property
    def conclusion(self) -> Literal["better", "worse", "chance"]:
        """Whether B is better or worse than A, or the difference counts as chance."""
        if self.p >= ALPHA:
            return "chance"
        return "better" if self.difference > 0 else "worse"

    @property
    def sentence(self) -> str:
        """The conclusion as a sentence, with p."""
        changed = len(self.better) + len(self.worse)
        if self.conclusion == "chance" and 2.0 ** (1 - changed) >= ALPHA:
            return f"Of {changed} problems that differ, nothing could be more than chance (p = {self.p:.3g})."
        if self.conclusion == "chance":
            return f"The difference is no more than chance would make (p = {self.p:.3g})."
        return f"B is {self.conclusion} than A, by more than chance would make (p = {self.p:.3g})."


def compare(a: Path, b: Path, seed: int = 0) -> Comparison:
    """Compares two folders of results, each read once. The same seed gives the same result; A and B exchanged
    give the same p and the difference with the other sign.

    Raises :class:`InvalidJob` where a run has not ended, samples were left out because of the results of
    others, the runs had different files of problems, or no problem was judged in both.
    """
    asked_a, asked_b = asked_of(a), asked_of(b)
    for folder in (a, b):
        if left_out := summary_of(folder).get("not_run"):
            raise InvalidJob(
                str(folder),
                f"{left_out} of its samples were not run (--stop-early), so its rates say little; "
                "run the same command without --stop-early, which runs the rest",
            )
    known = [asked.get("problems") for asked in (asked_a, asked_b)]
    if None not in known and known[0] != known[1]:
        names = [dict(asked.get("files", {})).get("problems", "another file") for asked in (asked_a, asked_b)]
        raise InvalidJob(
            str(b),
            f"was run with other problems than {a}: {names[1]} and {names[0]} differ in content; "
            "run both with the same --problems",
        )
    sides_a, sides_b = _sides(a), _sides(b)
    shared = sides_a.keys() & sides_b.keys()
    if not shared:
        raise InvalidJob(str(b), f"no problem of it was judged in {a} too; run both with the same --problems")
    return _compared(
        [Pair(task_id, sides_a[task_id], sides_b[task_id]) for task_id in sorted(shared)],
        seed,
        only_a=tuple(sorted(sides_a.keys() - shared)),
        only_b=tuple(sorted(sides_b.keys() - shared)),
        differs={
            name: (asked_a.get(name), asked_b.get(name))
            for name in (*asked_a, *(name for name in asked_b if name not in asked_a))
            if name != "samples" and asked_a.get(name) != asked_b.get(name)
        },
    )


def _compared(
    pairs: Sequence[Pair],
    seed: int,
    *,
    only_a: tuple[str, ...],
    only_b: tuple[str, ...],
    differs: Mapping[str, tuple[object, object]],
) -> Comparison:
    differences = [pair.difference for pair in pairs]
    low, high = interval(differences, seed)
    return Comparison(
        pairs=tuple(sorted(pairs, key=lambda pair: (pair.difference, pair.task_id))),
        rate_a=float(sum(pair.a.rate for pair in pairs) / len(pairs)),
        rate_b=float(sum(pair.b.rate for pair in pairs) / len(pairs)),
        difference=float(sum(differences) / len(pairs)),
        low=low,
        high=high,
        p=sign_flip_p(differences, seed),
        only_a=only_a,
        only_b=only_b,
        differs=differs,
    )


def sign_flip_p(differences: Sequence[Fraction], seed: int = 0) -> float:
    """The probability of a mean at least as far from 0, if every sign were random."""
    found = [one for one in differences if one]
    scale = math.lcm(*(one.denominator for one in found))
    whole = [int(one * scale) for one in found]
    total = sum(whole)
    tables = [_flipped(whole[at : at + _BITS]) for at in range(0, len(whole), _BITS)]
    if len(whole) <= EXACT_MOST:
        sums = [0]
        for table in tables:
            sums = [one + other for one in sums for other in table]
        return sum(abs(total - 2 * one) >= abs(total) for one in sums) / len(sums)
    draw = random.Random(seed)  # noqa: S311 - the test must be repeatable
    as_far = 0
    for _ in range(FLIPS):
        chosen = draw.randbytes(len(tables))
        flipped = sum(table[byte % len(table)] for table, byte in zip(tables, chosen, strict=True))
        as_far += abs(total - 2 * flipped) >= abs(total)
    return (1 + as_far) / (1 + FLIPS)


def interval(differences: Sequence[Fraction], seed: int = 0) -> tuple[float, float]:
    """The 95 % interval of the mean difference. Raises ValueError without any differences."""
    if not differences:
        raise ValueError("no differences: there is no such interval")
    values = [float(one) for one in differences]
    draw = random.Random(seed)  # noqa: S311 - the bootstrap must be repeatable
    means = sorted(sum(draw.choices(values, k=len(values))) / len(values) for _ in range(RESAMPLES))
    cut = round((1 - SHARE) / 2 * RESAMPLES)
    return means[cut], means[-1 - cut]


def write_comparison(found: Comparison, path: Path, names: tuple[str, str]) -> None:
    """Writes a page of the problems that changed. ``names``: of A and B. Raises as :func:`pages.save`."""
    pages.save(path, "compare.html.j2", found=found, names=names, widest=_widest(found))


def _widest(found: Comparison) -> float:
    """How far the bar of the interval reaches to either side, as a share of 1."""
    return max(abs(found.low), abs(found.high), abs(found.difference), 0.01)


def _sides(folder: Path) -> dict[str, Side]:
    """Every judged problem of a run, by its id."""
    found: dict[str, Side] = {}
    for result, line in rows(folder):
        if not result.verdict.scored:
            continue
        side = found.setdefault(result.task_id, Side())
        side.judged += 1
        side.passed += result.passed
        if not result.passed and side.failed is None:
            side.failed = Example.of(result, line)
    return found


def _flipped(values: Sequence[int]) -> list[int]:
    """The sums of all subsets: for each choice of signs, the sum of the values that change their sign."""
    sums = [0]
    for value in values:
        sums += [one + value for one in sums]
    return sums
