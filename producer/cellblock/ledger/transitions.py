"""How every script about a job is called, and what it answers: the base of the ledger's two halves."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from redis import Redis

from cellblock.archive import Archive
from cellblock.blobs import Blobs
from cellblock.contract.models import JobError, Outcome
from cellblock.ledger.keys import JobOwner, Keys, Stay
from cellblock.ledger.ledger_results import ledger_result
from cellblock.ledger.reads import Reads
from cellblock.ledger.scripts import Scripts
from cellblock_config import Settings

#: Retries spread out: what failed together must not come back together.
_SPREAD_PERCENT = (50, 150)
#: Longer than any stay.
_NEVER_S = 10**9


@dataclass(frozen=True, slots=True)
class Transition:
    """What became of a job. ``wake``: jobs that can be claimed now; the sweep finds what is not published."""

    job_id: str
    word: str
    wake: tuple[str, ...] = ()


class Transitions(Reads):
    """The calling half of :class:`~cellblock.ledger.Ledger`. Raises :class:`StoreUnavailable`."""

    def __init__(
        self,
        redis: Redis,
        settings: Settings,
        *,
        embedded: bool = False,
        blobs: Blobs | None = None,
        archive: Archive | None = None,
    ) -> None:
        """``blobs``: where long results are. ``archive``: where jobs are that have left."""
        has_archive = settings.archive.url is not None
        super().__init__(
            redis,
            Keys(settings.redis.key_prefix),
            embedded=embedded,
            blobs=blobs,
            archive=archive,
            has_archive=has_archive,
        )
        self._settings = settings.ledger
        self._scripts = Scripts(redis, embedded=embedded)
        self._measures = not embedded
        self._archive_settings = settings.archive
        #: How long an ended job stays that the archive has; None without an archive.
        self._hot_s = settings.archive.hot_s if has_archive else None

    def _transition(
        self, name: str, job_id: str, owner: JobOwner, args: Sequence[object], *, plan_ttl_s: int
    ) -> Transition:
        """``plan_ttl_s``: how long its plan keeps its result, 0 without a plan."""
        settings = self._settings
        stay = Stay.under(settings, plan_ttl_s)
        common = [
            owner.lane,
            settings.tenant_slots,
            settings.job_ttl_s,
            stay.well_s,
            stay.failed_s,
            stay.dead_s,
            self._hot_s if self._hot_s is not None else _NEVER_S,
            settings.memory_bytes,
            int(self._measures),
            self.keys.done(job_id),
        ]
        word, *wake = self._scripts.run(name, self.keys.of_job(job_id, owner, stay), [job_id, *args, *common])
        return Transition(job_id, word, () if word in {"stale", "terminal", "no room"} else tuple(wake))

    def _cancel(self, job_id: str, why: JobError) -> Transition:
        """End it now if it waits, else ask its worker to. Raises :class:`UnknownJob`."""
        record = self._record(job_id)
        result = ledger_result(job_id, record, Outcome.CANCELLED, why)
        owner, args = JobOwner.of_record(record), [result, self.keys.control]
        return self._transition("cancel", job_id, owner, args, plan_ttl_s=plan_ttl_s(record))


def spread() -> int:
    """Percent of a pause: a random one."""
    return random.randint(*_SPREAD_PERCENT)  # noqa: S311 - nobody gains by guessing it


def plan_ttl_s(record: Mapping[str, str]) -> int:
    """How long a job's plan keeps its result, 0 without a plan."""
    return int(record.get("result_ttl_s", 0))


def ms(seconds: float) -> int:
    """Whole milliseconds, as scripts take them."""
    return round(seconds * 1000)
