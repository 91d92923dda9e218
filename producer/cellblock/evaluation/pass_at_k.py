"""pass@k: the chance that at least one of k programs passes, estimated from n programs of which c passed.

The unbiased estimator of Chen et al., "Evaluating Large Language Models Trained on Code" (2021), equation 1:
1 - C(n-c, k) / C(n, k), in the product form of its appendix. Reported is its mean over problems. The interval
is the bootstrap over problems (Efron 1979), because the figure depends most on which problems a set has.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

RESAMPLES = 1000
SHARE = 0.95


@dataclass(frozen=True, slots=True)
class PassAtK:
    """pass@k with the bounds of its interval; None where a problem has fewer than k judged samples."""

    value: float
    low: float
    high: float


def pass_at_k(n: int, c: int, k: int) -> float:
    """pass@k of one problem. Raises ValueError unless 0 <= c <= n and 1 <= k <= n."""
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass@{k} of {c} passed among {n}: there is no such estimate")
    missed = 1.0
    for others in range(n - c + 1, n + 1):
        missed *= 1.0 - k / others
    return 1.0 - max(0.0, missed)


def mean_pass_at_k(counts: Sequence[tuple[int, int]], k: int, seed: int = 0) -> PassAtK | None:
    """The mean over problems. ``counts``: (judged, passed) of each. The same seed gives the same interval."""
    if not counts or any(n < k for n, _ in counts):
        return None
    values = [pass_at_k(n, c, k) for n, c in counts]
    draw = random.Random(seed)  # noqa: S311 - the bootstrap must be repeatable
    means = sorted(sum(draw.choices(values, k=len(values))) / len(values) for _ in range(RESAMPLES))
    cut = round((1 - SHARE) / 2 * RESAMPLES)
    return PassAtK(sum(values) / len(values), means[cut], means[-1 - cut])
