"""The options of an evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, get_args

from cellblock.contract.evaluations import TRIALS_MAX, VerdictMode
from cellblock.errors import InvalidJob
from cellblock_config import LedgerSettings
from cellblock_config.levels import SERIES_MOST

#: Samples of one job: where their total number is unknown; and where it is known, at least and at most.
#: They share the costs of a job (a judge, a message, a claim, a result): docs/adr/0023.
BATCH_OF_A_STREAM, BATCH_LEAST, BATCH_MOST = 32, 4, 128
#: The most text of one job by default (the default of ``ledger.evaluation_bytes``).
JOB_BYTES = LedgerSettings().evaluation_bytes


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """The options of an evaluation.

    ``batch``: samples of one job, None: chosen from their number; ``window``: jobs in flight at once;
    ``retries``: how often a program is tried again after a fault of ours; ``dedupe``: whether equal programs
    are judged once; ``stop_early``: whether a problem ends with its first pass, so that no more of its
    samples begin; ``fields``: further fields of each job, such as level, limits and tenant.
    """

    verdict: VerdictMode = "split"
    batch: int | None = None
    window: int = 16
    retries: int = 2
    dedupe: bool = True
    stop_early: bool = False
    fields: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises :class:`InvalidJob` for impossible values."""
        if self.batch is not None and not 1 <= self.batch <= TRIALS_MAX:
            raise InvalidJob("batch", f"is {self.batch}; it is 1 to {TRIALS_MAX}")
        if self.window < 1:
            raise InvalidJob("window", f"is {self.window}; it is 1 or more")
        if self.retries < 0:
            raise InvalidJob("retries", f"is {self.retries}; it is 0 or more")
        if self.verdict not in (known := get_args(VerdictMode)):
            raise InvalidJob("verdict", f"is {self.verdict!r:.80}; it is {' or '.join(known)}")

    def batch_of(self, total: int | None) -> int:
        """The number of samples of one job, small enough to give every job of the window some. ``total``: the
        number of all samples; None if it is unknown."""
        if self.batch is not None:
            return self.batch
        if total is None:
            return BATCH_OF_A_STREAM
        share = min(BATCH_MOST, total // self.window)
        return max(BATCH_LEAST, share - share % SERIES_MOST if share > SERIES_MOST else share)
