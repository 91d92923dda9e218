"""Calls of the scripts that move one job, and their answers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Generic, TypeVar

from cellblock.ledger.declarations import Arguments
from cellblock.ledger.ends_without_worker import EndWithoutWorker
from cellblock.ledger.keys import JobOwner, Stay
from cellblock.ledger.reads import Reads
from cellblock.ledger.replies import CancelReply, CancelWord, WakingReply
from cellblock.ledger.store import Store

#: Spreads retries: jobs that failed together must not come back together.
_SPREAD_PERCENT = (50, 150)
#: Longer than any stay.
_NEVER_S = 10**9


W = TypeVar("W", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Transition(Generic[W]):
    """The effect on a job. ``wake``: jobs that can be claimed now; the sweep finds those not published."""

    job_id: str
    word: W
    wake: tuple[str, ...] = ()


class Transitions:
    """Calls of the scripts that end or move a job. Raises :class:`StoreUnavailable`."""

    def __init__(self, store: Store, reads: Reads) -> None:
        self._store = store
        self._keys, self._scripts = store.keys, store.scripts
        self._reads = reads

    def move(
        self,
        reply: type[WakingReply[W]],
        job_id: str,
        owner: JobOwner,
        arguments: Arguments,
        *,
        plan_ttl_s: int,
        message: str = "",
        more_keys: Mapping[str, str] = MappingProxyType({}),
    ) -> Transition[W]:
        """Calls the script of this reply for a job.

        ``plan_ttl_s``: how long its plan keeps its result, 0 without a plan. ``message``: the error of the
        result, for the job's event.
        """
        settings = self._store.settings
        stay = Stay.under(settings, plan_ttl_s)
        common: Arguments = {  # COMMON in scripts/prelude/constants.lua
            "lane": owner.lane,
            "slots": settings.tenant_slots,
            "job_ttl_s": settings.job_ttl_s,
            "kept_s": stay.well_s,
            "kept_failed_s": stay.failed_s,
            "kept_dead_s": stay.dead_s,
            "looked_at_s": self._store.hot_s if self._store.hot_s is not None else _NEVER_S,
            "memory_bytes": settings.memory_bytes,
            "measures": not self._store.embedded,
            "channel": self._keys.done(job_id),
            "message": message,
        }
        keys = {**self._keys.of_job(job_id, owner, stay), **more_keys}
        done = self._scripts.call(reply, keys, {"job_id": job_id, **arguments, **common})
        return Transition(job_id, done.word, done.wake)

    def cancel(
        self, job_id: str, end: EndWithoutWorker, *, frees_key: bool = False, only_uploading: bool = False
    ) -> Transition[CancelWord]:
        """Ends a waiting job now, or asks the worker of a running one to. Raises :class:`UnknownJob`.

        Args:
            job_id: The job.
            end: How it ends.
            frees_key: Whether another job may be accepted under the key of one that waited.
            only_uploading: Whether it ends only while its parts for the blob store are missing.
        """
        record = self._reads.record(job_id)
        result = end.result(job_id, record)
        return self.move(
            CancelReply,
            job_id,
            JobOwner.of_record(record),
            {
                "result": result,
                "control": self._keys.control,
                "frees_key": frees_key,
                "only_uploading": only_uploading,
            },
            plan_ttl_s=plan_ttl_s(record),
            more_keys={
                "idempotency": self._keys.idempotency(record["tenant"], record.get("idempotency", ""))
            },
        )


def spread() -> int:
    """A random percentage, to multiply a pause by."""
    return random.randint(*_SPREAD_PERCENT)  # noqa: S311 - guessing it gains an attacker nothing


def plan_ttl_s(record: Mapping[str, str]) -> int:
    """How long a job's plan keeps its result, in seconds; 0 without a plan."""
    return int(record.get("result_ttl_s", 0))


def ms(seconds: float) -> int:
    """Seconds as whole milliseconds, which scripts take."""
    return round(seconds * 1000)
