"""The ledger's upkeep: the methods that its leader calls every second."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from cellblock.errors import UnknownJob
from cellblock.ledger.archiving import ARCHIVE_GROUP, Archiving
from cellblock.ledger.connection import store_errors
from cellblock.ledger.ends_without_worker import CANCELLED, EXPIRED, NOT_UPLOADED, WORKER_LOST
from cellblock.ledger.event_retention import EventStream, trim_before
from cellblock.ledger.figures import Figures
from cellblock.ledger.keys import NOBODY, JobOwner
from cellblock.ledger.pressure import Pressure
from cellblock.ledger.reads import Reads
from cellblock.ledger.store import Store
from cellblock.ledger.transitions import Transition, Transitions, ms, plan_ttl_s, spread
from cellblock.ledger.upkeep_replies import (
    DropReply,
    DropWord,
    ExpireReply,
    ExpireWord,
    FreeSlotReply,
    ReapReply,
    ReapWord,
    RefreshReply,
    ResignReply,
    TickReply,
    TickWord,
    TrimReply,
    WakeReply,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Round:
    """A round of upkeep that has begun. ``epoch``: the fence of the lead. ``extended``: the number of leases
    that it extended after an outage; None without an outage."""

    epoch: int
    pressure: Pressure
    extended: int | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """A store's name, and when it began (Unix seconds): it does not know blobs that are older."""

    name: str
    born: float


@dataclass(frozen=True, slots=True)
class Following:
    """Another worker leads the upkeep; unless it renews its lead, that ends in ``ends_in_s`` seconds."""

    ends_in_s: float


class Upkeep:
    """Cares for lost, late, delayed and parked jobs, and for lost messages. Each decision is one script, so a
    leader that has been replaced without noticing does no harm.

    Raises :class:`StoreUnavailable`.
    """

    def __init__(
        self, store: Store, *, reads: Reads, figures: Figures, transitions: Transitions, archiving: Archiving
    ) -> None:
        self._store = store
        self._redis, self._keys, self._scripts = store.redis, store.keys, store.scripts
        self._reads = reads
        self._figures = figures
        self._transitions = transitions
        self._stream = EventStream(store.redis, store.keys)
        self._archiving = archiving

    def tick(self, leader: str, *, failed: bool = False) -> Round | Following:
        """Begins a round if this leader leads, or if there is no leader. Call it before :meth:`reap`.

        The store itself detects an outage: no round began for longer than a lease, or, if the caller's last
        round ``failed``, for longer than ``quiet_s``, after which leases might have run out unrenewed.
        """
        settings, keys = self._store.settings, self._keys
        lease_ms = ms(settings.lease_s)
        ticked = self._scripts.call(
            TickReply,
            {
                "leader": keys.leader,
                "upkeep": keys.upkeep,
                "leases": keys.leases,
                "workers": keys.workers,
                "pressure": keys.pressure,
            },
            {
                "name": leader,
                "lead_ms": ms(settings.lead_s),
                "lease_ms": lease_ms,
                "quiet_ms": ms(settings.quiet_s) if failed else lease_ms,
                "memory_bytes": settings.memory_bytes,
                "measures": not self._store.embedded,
            },
        )
        if ticked.word is TickWord.FOLLOWS:
            return Following(ticked.left_ms / 1000)
        # An archiver can exist that this process's settings do not name, or can have been detached meanwhile.
        has_archive = self._store.has_archive or self._archiving.is_known()
        self._store.hot_s = self._store.own_hot_s if has_archive else None
        return Round(ticked.epoch, Pressure(ticked.used_bytes, ticked.limit_bytes), ticked.extended)

    def lead_ends_in_s(self) -> float | None:
        """How long the present lead lasts unless it is renewed, in seconds; None without a leader."""
        with store_errors("looking for the leader of the upkeep"):
            left_ms = self._redis.pttl(self._keys.leader)
        return left_ms / 1000 if left_ms > 0 else None

    def resign(self, leader: str) -> None:
        """Gives up the lead, so that the next worker that asks may lead."""
        self._scripts.call(ResignReply, {"leader": self._keys.leader}, {"name": leader})

    def reap(self, limit: int = 100) -> Iterator[Transition[ReapWord]]:
        """Decides on up to ``limit`` jobs whose lease has run out: ``requeued``, ``lost``, ``cancelled``.

        It decides on no job when the last :meth:`tick` was too long ago: leases might be unrenewed because
        the store was away.
        """
        backoffs = ",".join(str(ms(pause_s)) for pause_s in self._store.settings.loss_backoff_s)
        for job_id, record in self._overdue(self._keys.leases, limit):
            lost = WORKER_LOST.result(job_id, record)
            cancelled = CANCELLED.result(job_id, record)
            done = self._transitions.move(
                ReapReply,
                job_id,
                JobOwner.of_record(record),
                {
                    "quiet_ms": ms(self._store.settings.quiet_s),
                    "loss_limit": self._store.settings.loss_limit,
                    "backoffs": backoffs,
                    "spread_percent": spread(),
                    "lost_result": lost,
                    "cancelled_result": cancelled,
                },
                plan_ttl_s=plan_ttl_s(record),
                message=WORKER_LOST.error.summary(),
            )
            if done.word not in {ReapWord.LIVE, ReapWord.GONE}:
                yield done

    def expire(self, limit: int = 100) -> Iterator[Transition[ExpireWord]]:
        """Ends up to ``limit`` jobs that were not started in time: ``expired`` each."""
        for job_id, record in self._overdue(self._keys.deadlines, limit):
            if _is_uploading(record):
                continue  # its upload was to be over by then: wake_delayed cancels it
            late = EXPIRED.result(job_id, record)
            done = self._transitions.move(
                ExpireReply,
                job_id,
                JobOwner.of_record(record),
                {"result": late},
                plan_ttl_s=plan_ttl_s(record),
                message=EXPIRED.error.summary(),
            )
            if done.word is ExpireWord.EXPIRED:
                yield done

    def wake_delayed(self, limit: int = 1000) -> list[str]:
        """Makes up to ``limit`` jobs ready whose pauses are over. Returns jobs that can be claimed now.

        A job whose parts for the blob store are still missing is cancelled, and its key is free.
        """
        wakes: list[str] = []
        for job_id, record in self._overdue(self._keys.delayed, limit):
            if _is_uploading(record):
                wakes += self._end_not_uploaded(job_id)
                continue
            owner = JobOwner.of_record(record)
            woken = self._scripts.call(
                WakeReply,
                self._keys.of_job(job_id, owner),
                {"job_id": job_id, "lane": owner.lane, "slots": self._store.settings.tenant_slots},
            )
            wakes += woken.wake
        return wakes

    def _end_not_uploaded(self, job_id: str) -> Sequence[str]:
        try:
            return self._transitions.cancel(job_id, NOT_UPLOADED, frees_key=True, only_uploading=True).wake
        except UnknownJob:  # the next round forgets it
            return ()

    def look_at_parked(self, limit: int = 100) -> list[str]:
        """Returns jobs of up to ``limit`` parked lanes that have a free slot after all: its holder has gone,
        or the settings have changed."""
        with store_errors("looking for parked jobs"):
            lanes = cast(list[str], self._redis.srandmember(self._keys.parked, limit))
        for lane in lanes:
            self._free_slots(lane)
        return self._refresh(lanes)

    def _free_slots(self, lane: str) -> None:
        """Frees slots without a holder, first those of nested runs: they can keep their parent's slot."""
        owner = JobOwner.of_lane(lane)
        with store_errors("looking for slots of nobody"):
            holders = sorted(cast(set[str], self._redis.smembers(self._keys.slots(lane))))
            leases = self._redis.zmscore(self._keys.leases, holders) if holders else []
        for job_id, lease in zip(holders, leases, strict=True):
            if lease is None:
                self._free_slots(JobOwner(owner.tenant, job_id).lane)
                self._scripts.call(FreeSlotReply, self._keys.of_job(job_id, owner), {"job_id": job_id})

    def unclaimed(self, limit: int = 100) -> list[str]:
        """Returns jobs of up to ``limit`` lanes that could be claimed for longer than ``republish_after_s``.

        If no message is on its way, their messages were lost.
        """
        with store_errors("looking for jobs without a message"):
            before_ms = self._store.now_ms() - ms(self._store.settings.republish_after_s)
            heads = self._figures.heads(
                cast(list[str], self._redis.zrandmember(self._keys.lane_turns, limit))
            )
        # A head without a record belongs to an expired job: the claim that its message causes removes it.
        late = [lane for lane, queued_ms in heads.items() if queued_ms is None or queued_ms <= before_ms]
        return self._refresh(late, all=True)

    def _refresh(self, lanes: Sequence[str], *, all: bool = False) -> list[str]:
        wakes: list[str] = []
        for lane in lanes:
            refreshed = self._scripts.call(
                RefreshReply,
                self._keys.of_job("-", JobOwner.of_lane(lane)),
                {"lane": lane, "slots": self._store.settings.tenant_slots, "all": all},
            )
            wakes += refreshed.wake
        return wakes

    def forget_the_dead(self) -> None:
        """Drops dead letters older than ``dead_ttl_s``; beyond ``dead_kept``, the oldest with payloads."""
        with store_errors("forgetting old dead letters"):
            before = self._store.now_ms() - 1000 * self._store.settings.dead_ttl_s
            self._redis.zremrangebyscore(self._keys.dead, "-inf", before)
            surplus = cast(
                list[str],
                self._redis.zrange(self._keys.dead, 0, -1 - self._store.settings.dead_kept),
            )
        for job_id in surplus:
            self.drop_dead(job_id, "-")

    def drop_dead(self, job_id: str, operation: str) -> bool:
        """Forgets a dead letter, its payload and history; its result stays. Returns whether it was one."""
        tenant = self._reads.tenant(job_id)
        owner = JobOwner(tenant) if tenant is not None else NOBODY
        dropped = self._scripts.call(
            DropReply, self._keys.of_job(job_id, owner), {"job_id": job_id, "op": operation}
        )
        return dropped.word is DropWord.DROPPED

    def trim_events(self, begun: Round) -> int:
        """Drops events whose time is over (event_retention.py). Returns their number."""
        with store_errors("looking at the clock"):
            now_ms = self._store.now_ms()
        before = trim_before(
            now_ms,
            begun.pressure,
            self._store.settings,
            read_by_all=self._stream.read_by_all(),
            oldest_kept=self._stream.oldest_of_last(self._store.settings.events_kept),
        )
        trimmed = self._scripts.call(
            TrimReply,
            {"upkeep": self._keys.upkeep, "events": self._keys.events},
            {"epoch": begun.epoch, "before": before, "archive": self._archive_at()},
        )
        return trimmed.count

    def identity(self) -> Identity:
        """The identity of this store for the blob store. The first call creates it."""
        with store_errors("asking who the store is"):
            self._redis.set(self._keys.store, f"{secrets.token_hex(8)} {self._store.now_ms()}", nx=True)
            name, _, born_ms = str(self._redis.get(self._keys.store)).partition(" ")
        return Identity(name, int(born_ms) / 1000)

    def known_as(self) -> str | None:
        """The name of this store in :meth:`identity`; None before its first call."""
        with store_errors("asking who the store is"):
            found = cast(str | None, self._redis.get(self._keys.store))
        return None if found is None else found.partition(" ")[0]

    def unname_blobs(self, names: Sequence[str]) -> None:
        """Forgets these names: their blobs are gone, although jobs might name them."""
        if names:
            with store_errors("forgetting the names of blobs"):
                self._redis.hdel(self._keys.blobs, *names)

    def _archive_at(self) -> str:
        """The first event that the archive has not finished with; "" without an archive."""
        if self._store.hot_s is None:
            return ""
        return self._stream.first_open(ARCHIVE_GROUP) or "0-1"

    def _overdue(self, index: str, limit: int) -> Iterator[tuple[str, dict[str, str]]]:
        """(id, record) of up to ``limit`` jobs whose time in this index has passed."""
        with store_errors("looking for what is due"):
            now = self._store.now_ms()
            due = cast(list[str], self._redis.zrange(index, "-inf", now, byscore=True, offset=0, num=limit))
        for job_id in due:
            try:
                record = self._reads.record(job_id)
                _check_whole(job_id, record)
            except UnknownJob:
                pass
            except (KeyError, ValueError):  # not our record: it must not stop the others
                _log.error("the record of job %s is not whole: %s leaves it alone now", job_id, index)
            else:
                yield job_id, record
                continue
            with store_errors("forgetting a job without a record"):
                self._redis.zrem(index, job_id)


def _is_uploading(record: Mapping[str, str]) -> bool:
    """Whether the job waits for its caller to put its parts into the blob store."""
    return "uploading" in record


def _check_whole(job_id: str, record: Mapping[str, str]) -> None:
    """Raises KeyError, ValueError for a record that scripts and results could not use."""
    CANCELLED.result(job_id, record)
    for field in ("window_ms", "expires_ms"):
        int(record[field])
    for field in ("tenant", "priority", "state"):
        record[field]
