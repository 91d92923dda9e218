"""Removes ended jobs from the store: when their time has come, and earlier where memory is short."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from cellblock.contract.outcomes import OUR_FAULT
from cellblock.ledger.archiving import ARCHIVE_GROUP, Archiving
from cellblock.ledger.connection import store_errors
from cellblock.ledger.event_retention import EventStream
from cellblock.ledger.figures import Figures
from cellblock.ledger.pressure import (
    ADMITS_BELOW,
    LEAVE_ABOVE,
    LEAVE_DOWN_TO,
    TAKES_LARGE_BELOW,
    TENANT_DOWN_TO,
    TENANT_TAKES_UNARCHIVED_TO,
    TENANT_WHOLE,
    Pressure,
)
from cellblock.ledger.store import Store
from cellblock.ledger.upkeep import Round
from cellblock.ledger.upkeep_replies import ForgetReply, ForgetWord

#: The most jobs that leave in one call, and the most tenants looked at in one.
_PAGE = 100
#: The fields of a record that say how its job ended, and what it has in the blob store.
_END = ("finished_ms", "idempotency", "outcome", "result_bytes")
#: The most time for each part of a round: the next round does the rest.
_WORK_S = 0.3
#: The longest number that scripts take.
_MOST = 10**15 - 1
#: UNLED_S of scripts/prelude/constants.lua: how long Redis itself waits for a leader.
_UNARCHIVED_MS = 86_400_000
#: A list that is due and has to wait is looked at again after this.
_AGAIN_MS = 5000
#: The most between the time of a job's end and the id of its event.
_MARGIN_MS = 1000


@dataclass(frozen=True, slots=True)
class _Rules:
    """Which jobs may leave before their time. Jobs that the archive has always may.

    ``unarchived``: also jobs that it does not have. ``young``: among these, also jobs that ended less than
    ``result_least_s`` ago.
    """

    young: bool = False
    unarchived: bool = False


_ALL = _Rules(young=True, unarchived=True)
#: When a tenant was refused a job, its ended jobs leave by these rules until it holds at most this percentage
#: of its limit. Young ones leave only beyond the limit itself.
_FOR_A_JOB = (
    (TENANT_DOWN_TO, _Rules()),
    (TENANT_TAKES_UNARCHIVED_TO, _Rules(unarchived=True)),
    (TENANT_WHOLE, _ALL),
)
#: When a tenant's long result waits, its other jobs leave, also young ones.
_FOR_A_RESULT = ((TENANT_DOWN_TO, _ALL),)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Room to make: in Redis, and in the blob store."""

    held_bytes: int = 0
    stored_bytes: int = 0

    def __bool__(self) -> bool:
        return self.held_bytes > 0 or self.stored_bytes > 0

    def less(self, page: _Page) -> _Wanted:
        """What is wanted after this page has left."""
        return _Wanted(self.held_bytes - page.freed_bytes, self.stored_bytes - page.freed_stored_bytes)


@dataclass(frozen=True, slots=True)
class _Page:
    """The entries that left in one call: their number, and their bytes by the ledger's own count.

    ``freed_stored_bytes``: of these in the blob store.
    """

    left: int
    freed_bytes: int
    freed_stored_bytes: int = 0


class Retention:
    """The part of the upkeep that makes room. Raises :class:`StoreUnavailable`."""

    def __init__(self, store: Store, figures: Figures, archiving: Archiving) -> None:
        self._store = store
        self._redis, self._keys, self._scripts = store.redis, store.keys, store.scripts
        self._figures = figures
        self._stream = EventStream(store.redis, store.keys)
        self._archiving = archiving
        self._archived_until_ms = 0  #: jobs that ended before this are in the archive
        self._looked_at = 0  #: lists that earlier rounds found too young: the next round goes on here

    def make_room(self, begun: Round) -> int:
        """Removes jobs whose time has come, and others where the store or a tenant needs room.

        Returns the bytes that were freed, by the ledger's own count.
        """
        self._archived_until_ms = self._archived_until()
        # Each part has a time of its own, so that none keeps the others from their work.
        freed = self._forget_the_due(begun.epoch, time.monotonic() + _WORK_S)
        freed += self._relieve(begun.epoch, begun.pressure, time.monotonic() + _WORK_S)
        until = time.monotonic() + _WORK_S
        return freed + self._relieve_tenants(begun.epoch, begun.pressure.limit_bytes, until)

    def _archived_until(self) -> int:
        """The time (ms) before which the archive has every ended job; 0 while it owes a look at all."""
        if self._store.hot_s is None or self._archiving.owes_since() is not None:
            return 0
        with store_errors("looking at the clock"):
            now_ms = self._store.now_ms()
        return self._stream.done_until_ms(ARCHIVE_GROUP, now_ms) - _MARGIN_MS

    def _forget_the_due(self, epoch: int, until: float) -> int:
        freed = 0
        while time.monotonic() < until:
            with store_errors("looking for jobs whose time has come"):
                now_ms = by_ms = self._store.now_ms()
                if self._store.hot_s is not None:  # jobs that the archive does not have wait
                    by_ms = min(now_ms, self._archived_until_ms - 1 + 1000 * self._store.hot_s)
                due = self._redis.zrange(self._keys.keepers, "-inf", by_ms, byscore=True, offset=0, num=_PAGE)
            left = 0
            for keeper in cast(list[str], due):
                page = self._forget(epoch, keeper, leaves_by_ms=now_ms)
                freed, left = freed + page.freed_bytes, left + page.left
            if not left and len(due) < _PAGE:
                break
        return freed

    def _relieve(self, epoch: int, pressure: Pressure, until: float) -> int:
        """Removes jobs in the order of their time, but not young ones: callers might not have read them."""
        wanted = pressure.above(LEAVE_DOWN_TO) if pressure.above(LEAVE_ABOVE) else 0
        rules = _Rules(
            young=pressure.above(TAKES_LARGE_BELOW) > 0,
            unarchived=self._store.hot_s is None or pressure.above(ADMITS_BELOW) > 0,
        )
        freed = 0
        while freed < wanted and time.monotonic() < until:
            with store_errors("looking for who leaves first"):
                page = self._redis.zrange(self._keys.keepers, self._looked_at, self._looked_at + _PAGE - 1)
            for keeper in self._that_may_leave(cast(list[str], page), rules):
                left = self._forget_of(
                    epoch=epoch, keeper=keeper, wanted=_Wanted(wanted - freed), rules=rules, until=until
                )
                freed += wanted - freed - left.held_bytes
            self._looked_at += len(page)
            if not page:
                break
        else:
            if freed < wanted:
                return freed  # the next round goes on here
        self._looked_at = 0
        return freed

    def _that_may_leave(self, keepers: Sequence[str], rules: _Rules) -> list[str]:
        """The subset of these lists whose first job may leave, found in two round trips."""
        if not keepers:
            return []
        with store_errors("looking for who may leave"):
            pipe = self._redis.pipeline(transaction=False)
            for keeper in keepers:
                tenant, _, seconds = keeper.rpartition(" ")
                pipe.lindex(self._keys.kept(tenant, int(seconds)), 0)
            firsts = [str(entry or "-") for entry in pipe.execute()]
            ends = self._ends(firsts)
            now_ms = self._store.now_ms()
        return [
            keeper
            for keeper, (finished_ms, *_) in zip(keepers, ends, strict=True)
            if not self._is_held(int(finished_ms or 0), now_ms, rules)
        ]

    def _is_held(self, ended_ms: int, now_ms: int, rules: _Rules) -> bool:
        if self._is_archived(ended_ms):
            return False
        young = ended_ms > now_ms - 1000 * self._store.settings.result_least_s
        return not rules.unarchived or (young and not rules.young)

    def has_room(self, tenant: str, size_bytes: int) -> bool:
        """Whether a long result of this tenant's fits into the store, and into the tenant's part of it."""
        pressure = self._figures.pressure()
        if pressure.above(TAKES_LARGE_BELOW, more=size_bytes):
            return False
        if self._beyond(tenant, pressure.limit_bytes, percent=TENANT_WHOLE, more=size_bytes) <= 0:
            return True
        with store_errors("asking for a tenant's room"):
            self._redis.zadd(self._keys.crowded, {tenant: size_bytes}, gt=True)
        return False

    def _relieve_tenants(self, epoch: int, limit_bytes: int, until: float) -> int:
        """Removes ended jobs of tenants that were refused for them, or that keep large results."""
        freed = 0
        with store_errors("looking for tenants without room"):
            found = self._redis.zrange(self._keys.crowded, 0, _PAGE - 1, withscores=True, desc=True)
        for tenant, asked in cast(list[tuple[str, float]], found):
            if time.monotonic() > until:
                break
            for percent, rules in _FOR_A_RESULT if asked else _FOR_A_JOB:
                wanted = _Wanted(
                    self._beyond(tenant, limit_bytes, percent=percent, more=int(asked)),
                    self._stored_beyond(tenant, percent=percent),
                )
                for keeper in self._keepers_of(tenant) if wanted else ():
                    left = self._forget_of(
                        epoch=epoch,
                        keeper=keeper,
                        wanted=wanted,
                        rules=self._with_archive(rules),
                        until=until,
                    )
                    freed, wanted = freed + wanted.held_bytes - left.held_bytes, left
            with store_errors("looking after a tenant"):
                self._redis.zrem(self._keys.crowded, tenant)  # a tenant that is refused again is added again
        return freed

    def _with_archive(self, rules: _Rules) -> _Rules:
        return rules if self._store.hot_s is not None else replace(rules, unarchived=True)

    def is_crowded(self) -> bool:
        """Whether a tenant waits for room."""
        with store_errors("looking for tenants without room"):
            return bool(self._redis.exists(self._keys.crowded))

    def _keepers_of(self, tenant: str) -> list[str]:
        """The tenant's lists of ended jobs, sorted by when their first jobs leave."""
        with store_errors("looking for what a tenant keeps"):
            fields = cast(list[str], self._redis.hkeys(self._keys.account(tenant)))
            lists = [field.removeprefix("list:") for field in fields if field.startswith("list:")]
            names = [f"{tenant} {seconds}" for seconds in lists]
            scores = self._redis.zmscore(self._keys.keepers, names) if names else []
        found = [(score, name) for score, name in zip(scores, names, strict=True) if score is not None]
        return [name for _, name in sorted(found)]

    def _forget_of(self, epoch: int, keeper: str, wanted: _Wanted, rules: _Rules, until: float) -> _Wanted:
        """Removes jobs of one list until there is room or no more may leave. Returns what is still wanted."""
        while wanted and time.monotonic() < until:
            page = self._forget(epoch, keeper, wanted=wanted, rules=rules)
            wanted = wanted.less(page)
            if not page.left:
                break
        return wanted

    def _beyond(self, tenant: str, limit_bytes: int, *, percent: int, more: int = 0) -> int:
        """The bytes of ended jobs that a tenant keeps, plus ``more``, beyond this part of its limit."""
        with store_errors("reading what a tenant holds"):
            found = self._redis.hmget(self._keys.account(tenant), "held_bytes", "kept_bytes", "bytes_held")
        held, kept, own = (int(value or 0) for value in cast(list[str | None], found))
        share = limit_bytes * self._store.settings.tenant_percent // 100
        most = min(own or share, share or own)
        return min(kept, held + kept + more - most * percent // 100) if most else 0

    def _stored_beyond(self, tenant: str, *, percent: int) -> int:
        """The bytes that a tenant has in the blob store beyond this part of its plan's limit."""
        with store_errors("reading what a tenant has stored"):
            fields = self._redis.hmget(self._keys.account(tenant), "blob_bytes", "bytes_stored")
        stored, limit = (int(value or 0) for value in cast(list[str | None], fields))
        return stored - limit * percent // 100 if limit else 0

    def _forget(
        self,
        epoch: int,
        keeper: str,
        *,
        leaves_by_ms: int = _MOST,
        wanted: _Wanted = _Wanted(_MOST),
        rules: _Rules = _ALL,
    ) -> _Page:
        """Removes the first jobs of a list that leave by then: a page at most, and only as many as needed."""
        keys, (tenant, _, seconds) = self._keys, keeper.rpartition(" ")
        stays_ms = 1000 * int(seconds)
        kept = keys.kept(tenant, int(seconds))
        leaving: list[tuple[str, str]] = []
        next_ms, freed, archived = 1, _Page(0, 0), 0
        with store_errors("looking for what a tenant keeps"):
            entries = cast(list[str], self._redis.lrange(kept, 0, _PAGE - 1))
            now_ms = self._store.now_ms()
            for entry, (finished_ms, name, outcome, stored) in zip(entries, self._ends(entries), strict=True):
                ended_ms = int(finished_ms or 0)
                leaves_ms = self._leaves_ms(ended_ms, stays_ms, dead=outcome in OUR_FAULT)
                held = self._is_held(ended_ms, now_ms, rules)
                if leaves_ms > leaves_by_ms or held or not wanted.less(freed):
                    next_ms = self._looked_at_ms(ended_ms, stays_ms, dead=outcome in OUR_FAULT)
                    if leaves_ms > leaves_by_ms:  # it waits for the archive, and must not block others
                        next_ms = max(next_ms, now_ms + _AGAIN_MS)
                    break
                if archived == len(leaving):
                    archived += self._is_archived(ended_ms)
                leaving.append((entry, name or ""))
                freed = _Page(
                    freed.left + 1,
                    freed.freed_bytes + int(entry.partition(" ")[2]),
                    freed.freed_stored_bytes + int(stored or 0),
                )
        of_jobs = [
            key for entry, name in leaving for key in self._keys_of(entry.partition(" ")[0], tenant, name)
        ]
        forgot = self._scripts.call(
            ForgetReply,
            {
                "upkeep": keys.upkeep,
                "kept": kept,
                "keepers": keys.keepers,
                "account": keys.account(tenant),
                "dead": keys.dead,
                "blobs": keys.blobs,
                "of_jobs": of_jobs,
            },
            {
                "epoch": epoch,
                "archived": archived,
                "keeper": keeper,
                "next_ms": next_ms,
                "leaving": [entry for entry, _ in leaving],
            },
        )
        if forgot.word is not ForgetWord.FORGOT:
            return _Page(0, 0)
        return replace(freed, freed_bytes=forgot.freed_bytes)

    def _looked_at_ms(self, ended_ms: int, stays_ms: int, *, dead: bool) -> int:
        """When (ms) the leader looks at a list with this first job; prelude/ending.lua computes the same."""
        hot_ms = stays_ms if self._store.hot_s is None or dead else 1000 * self._store.hot_s
        return ended_ms + min(hot_ms, stays_ms)

    def _is_archived(self, ended_ms: int) -> bool:
        return ended_ms < self._archived_until_ms

    def _leaves_ms(self, ended_ms: int, stays_ms: int, *, dead: bool) -> int:
        """When (ms) a job leaves. An archived job leaves early, unless it is a dead letter, which an operator
        can retry. A job that the archive does not have waits for it, up to a day beyond its time."""
        if self._store.hot_s is None or dead:
            return ended_ms + stays_ms
        if self._is_archived(ended_ms):
            return ended_ms + min(1000 * self._store.hot_s, stays_ms)
        return ended_ms + stays_ms + _UNARCHIVED_MS

    def _ends(self, entries: Sequence[str]) -> list[list[str | None]]:
        """For each job when it ended (None if it is gone or runs again), its idempotency key, its outcome and
        the bytes of its result in the blob store."""
        pipe = self._redis.pipeline(transaction=False)
        for entry in entries:
            pipe.hmget(
                self._keys.job(entry.partition(" ")[0]),
                "finished_ms",
                "idempotency",
                "outcome",
                "result_bytes",
            )
        return cast(list[list[str | None]], pipe.execute()) if entries else []

    def _keys_of(self, job_id: str, tenant: str, idempotency: str) -> tuple[str, ...]:
        keys = self._keys
        return (
            keys.job(job_id),
            keys.result(job_id),
            keys.spec(job_id),
            keys.attempts(job_id),
            keys.idempotency(tenant, idempotency),
        )
