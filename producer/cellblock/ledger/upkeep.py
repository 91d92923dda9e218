"""The ledger's upkeep: what reapers call every second."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from cellblock.errors import UnknownJob
from cellblock.ledger import closing
from cellblock.ledger.closing import closing_result
from cellblock.ledger.connection import store_errors
from cellblock.ledger.transitions import Transition, Transitions, Wake, ms, spread, wakes_of
from cellblock.models import JobState, Outcome

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """A job that waits for longer than a message should take. ``overtaken``: later ones have been claimed."""

    job_id: str
    priority: str
    overtaken: bool


class Upkeep(Transitions):
    """Lost, late, delayed and parked jobs, and messages that were lost. Any number of reapers may call.

    Raises :class:`StoreUnavailable`.
    """

    def tick(self, *, failed: bool = False) -> int | None:
        """To be called before :meth:`reap`. How many leases an outage had it extend; None: there was none.

        An outage is what the store itself saw: no reaper of the fleet began a round for longer than a lease,
        or, if the caller's last one ``failed``, for so long that leases may have run out unrenewed.
        """
        lease_ms = ms(self._settings.lease_s)
        args = [lease_ms, ms(self._settings.quiet_s) if failed else lease_ms]
        _, *extended = self._scripts.run(
            "tick", [self.keys.ticked, self.keys.leases, self.keys.watermarks], args
        )
        return int(extended[0]) if extended else None

    def reap(self, limit: int = 100) -> Iterator[Transition]:
        """Judge up to ``limit`` jobs whose lease has run out: ``requeued``, ``lost``, ``cancelled``.

        Nobody is judged when the last :meth:`tick` was so long ago that leases may have run out unrenewed.
        """
        backoffs = ",".join(str(ms(pause_s)) for pause_s in self._settings.loss_backoff_s)
        for job_id, record in self._overdue(self.keys.leases, limit):
            lost = closing_result(job_id, record, Outcome.WORKER_LOST, closing.WORKER_LOST)
            cancelled = closing_result(job_id, record, Outcome.CANCELLED, closing.CANCELLED)
            args = [
                ms(self._settings.quiet_s),
                self._settings.loss_limit,
                backoffs,
                spread(),
                lost,
                cancelled,
            ]
            done = self._transition("reap", job_id, record["tenant"], args)
            if done.word not in {"live", "gone"}:
                yield done

    def expire(self, limit: int = 100) -> Iterator[Transition]:
        """End up to ``limit`` jobs that were not started in time: ``expired`` each."""
        for job_id, record in self._overdue(self.keys.deadlines, limit):
            late = closing_result(job_id, record, Outcome.REJECTED, closing.EXPIRED)
            done = self._transition("expire", job_id, record["tenant"], [late])
            if done.word == "expired":
                yield done

    def wake_delayed(self, limit: int = 1000) -> list[Wake]:
        """Up to ``limit`` jobs whose delay is over, now waiting, to be published."""
        wakes: list[Wake] = []
        for job_id, record in self._overdue(self.keys.delayed, limit):
            _, *woken = self._scripts.run("wake", self.keys.of_job(job_id, record["tenant"]), [job_id])
            wakes += wakes_of(woken)
        return wakes

    def promote_parked(self, limit: int = 100) -> list[Wake]:
        """Jobs of up to ``limit`` tenants that have a free slot, should a promotion have been missed."""
        with store_errors("looking for parked jobs"):
            tenants = cast(list[str], self._redis.srandmember(self.keys.parked_tenants, limit))
        wakes: list[Wake] = []
        for tenant in tenants:
            args = [tenant, self._settings.tenant_slots, ms(self._settings.lease_s)]
            _, *woken = self._scripts.run("promote", self.keys.of_job("-", tenant), args)
            wakes += wakes_of(woken)
        return wakes

    def unclaimed(self, offset: int = 0, limit: int = 1000) -> list[Unclaimed]:
        """Jobs published longer than ``republish_after_s`` ago and not yet claimed, from ``offset`` on."""
        after_ms = ms(self._settings.republish_after_s)
        with store_errors("looking for jobs without a message"):
            before = self._now_ms() - after_ms
            published = cast(
                list[tuple[str, float]],
                self._redis.zrange(
                    self.keys.waiting, "-inf", before, byscore=True, offset=offset, num=limit, withscores=True
                ),
            )
            pipe = self._redis.pipeline(transaction=False)
            pipe.hgetall(self.keys.watermarks)
            for job_id, _ in published:
                pipe.hmget(self.keys.job(job_id), ["priority", "queued_ms", "state"])
            watermarks, *found = pipe.execute()
            gone = [
                job_id
                for (job_id, _), (priority, *_) in zip(published, found, strict=True)
                if priority is None
            ]
            if gone:
                self._redis.zrem(self.keys.waiting, *gone)  # their records have expired
        unclaimed = []
        for (job_id, score), (priority, queued_ms, state) in zip(published, found, strict=True):
            if priority is not None:
                # A promoted job was queued long ago, and its message sent when it was promoted.
                sent_ms = score if state == JobState.PARKED else int(queued_ms)
                overtaken = sent_ms + after_ms < int(watermarks.get(priority, 0))
                unclaimed.append(Unclaimed(job_id, priority, overtaken))
        return unclaimed

    def republished(self, job_id: str) -> None:
        """Note that a waiting job's message was sent again; a job claimed meanwhile is left alone."""
        args = [job_id, ms(self._settings.republish_after_s)]
        self._scripts.run("republish", self.keys.of_job(job_id, "-"), args)

    def forget_the_dead(self) -> None:
        """Drop dead letters older than ``dead_ttl_s``, and of too many the oldest with their payloads."""
        with store_errors("forgetting old dead letters"):
            before = self._now_ms() - 1000 * self._settings.dead_ttl_s
            self._redis.zremrangebyscore(self.keys.dead, "-inf", before)
            surplus = cast(list[str], self._redis.zrange(self.keys.dead, 0, -1 - self._settings.dead_kept))
        for job_id in surplus:
            self._scripts.run("drop", self.keys.of_job(job_id, "-"), [job_id, "-"])

    def _overdue(self, index: str, limit: int) -> Iterator[tuple[str, dict[str, str]]]:
        """(id, record) of up to ``limit`` jobs whose time in this index has passed."""
        with store_errors("looking for what is due"):
            now = self._now_ms()
            due = cast(list[str], self._redis.zrange(index, "-inf", now, byscore=True, offset=0, num=limit))
        for job_id in due:
            try:
                record = self._record(job_id)
                _check_whole(job_id, record)
            except UnknownJob:
                pass
            except (KeyError, ValueError):  # not written by us: it may not stop the others
                _log.error("the record of job %s is not whole: %s leaves it alone now", job_id, index)
            else:
                yield job_id, record
                continue
            with store_errors("forgetting a job without a record"):
                self._redis.zrem(index, job_id)


def _check_whole(job_id: str, record: Mapping[str, str]) -> None:
    """Raises KeyError, ValueError for what scripts and results could not use."""
    closing_result(job_id, record, Outcome.CANCELLED, closing.CANCELLED)
    for field in ("losses", "window_ms", "expires_ms"):
        int(record[field])
    for field in ("tenant", "priority", "state"):
        record[field]
