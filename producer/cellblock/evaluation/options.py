"""How samples are run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, get_args

from cellblock.contract.evaluations import SERIES_MOST, TRIALS_MAX, VerdictMode
from cellblock.errors import InvalidJob
from cellblock_config import LedgerSettings

#: Samples of one job where nobody knows how many there will be, and where it is known: at least and at most.
#: What a job takes by itself (a judge, a message, a claim, a result) is shared by them: docs/performance.md.
BATCH_OF_A_STREAM, BATCH_LEAST, BATCH_MOST = 32, 4, 128
#: How much text a job may have where nobody says (the default of ``ledger.evaluation_bytes``).
JOB_BYTES = LedgerSettings().evaluation_bytes


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """How samples are run.

    ``batch``: samples of one job, None: by how many there are; ``window``: jobs on their way at once;
    ``retries``: how often what is our fault is tried again; ``dedupe``: whether a program that comes again is
    judged once; ``stop_early``: a problem is done with its first pass, and no sample of it is begun after it;
    ``fields``: of each job besides, such as level, limits and tenant.
    """

    verdict: VerdictMode = "split"
    batch: int | None = None
    window: int = 16
    retries: int = 2
    dedupe: bool = True
    stop_early: bool = False
    fields: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises :class:`InvalidJob` for what no run could have."""
        if self.batch is not None and not 1 <= self.batch <= TRIALS_MAX:
            raise InvalidJob("batch", f"is {self.batch}; it is 1 to {TRIALS_MAX}")
        if self.window < 1:
            raise InvalidJob("window", f"is {self.window}; it is 1 or more")
        if self.retries < 0:
            raise InvalidJob("retries", f"is {self.retries}; it is 0 or more")
        if self.verdict not in (known := get_args(VerdictMode)):
            raise InvalidJob("verdict", f"is {self.verdict!r:.80}; it is {' or '.join(known)}")

    def batch_of(self, total: int | None) -> int:
        """Samples of one job, where there are so many in all: as many as leave something for every job of the
        window. None: nobody knows."""
        if self.batch is not None:
            return self.batch
        if total is None:
            return BATCH_OF_A_STREAM
        share = min(BATCH_MOST, total // self.window)
        return max(BATCH_LEAST, share - share % SERIES_MOST if share > SERIES_MOST else share)
