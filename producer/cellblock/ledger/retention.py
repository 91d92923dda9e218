"""When jobs that have ended leave the store: in time, and earlier where memory is short."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from cellblock.ledger.archiving import ARCHIVE_GROUP, Archiving
from cellblock.ledger.connection import store_errors
from cellblock.ledger.event_retention import EventStream
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
from cellblock.ledger.reads import Reads
from cellblock.ledger.store import Store
from cellblock.ledger.upkeep import Round
from cellblock.ledger.upkeep_replies import ForgetReply, ForgetWord

#: Jobs that leave in one call, and tenants looked at in one.
_PAGE = 100
#: How long each part of a round may take: what is left is the next one's.
_WORK_S = 0.3
#: The longest number that scripts take.
_MOST = 10**15 - 1
#: As long as scripts/prelude.lua has Redis itself wait for a leader.
_UNARCHIVED_MS = 86_400_000
#: A list that is due and has to wait is looked at again after this.
_AGAIN_MS = 5000
#: Between when a job ended and the id of that event.
_MARGIN_MS = 1000
_DEAD = ("worker_lost", "sandbox_error")


@dataclass(frozen=True, slots=True)
class _Rules:
    """What may leave before its time. What the archive has always may.

    ``unarchived``: also what it does not have. ``young``: of that, also what ended less than
    ``result_least_s`` ago.
    """

    young: bool = False
    unarchived: bool = False


_ALL = _Rules(young=True, unarchived=True)
#: When a tenant was refused a job, its ended jobs leave by these rules until it holds no more than this many
#: percents of its limit. Young ones leave only beyond the limit itself.
_FOR_A_JOB = (
    (TENANT_DOWN_TO, _Rules()),
    (TENANT_TAKES_UNARCHIVED_TO, _Rules(unarchived=True)),
    (TENANT_WHOLE, _ALL),
)
#: When a tenant's long result waits, its other jobs leave, also young ones.
_FOR_A_RESULT = ((TENANT_DOWN_TO, _ALL),)


@dataclass(frozen=True, slots=True)
class _Page:
    """What left in one call: how many entries of a list, and their bytes by the ledger's own count."""

    left: int
    freed_bytes: int


class Retention:
    """The part of the upkeep that makes room. Raises :class:`StoreUnavailable`."""

    def __init__(self, store: Store, reads: Reads, archiving: Archiving) -> None:
        self._store = store
        self._redis, self._keys, self._scripts = store.redis, store.keys, store.scripts
        self._reads = reads
        self._stream = EventStream(store.redis, store.keys)
        self._archiving = archiving
        self._archived_until_ms = 0  #: what ended before is in the archive
        self._looked_at = 0  #: how many lists were found too young before the time of a round was over

    def make_room(self, begun: Round) -> int:
        """End the stay of jobs whose time has come, and of others where the store or a tenant needs room.

        Returns the bytes that were freed, by the ledger's own count.
        """
        self._archived_until_ms = self._archived_until()
        # Each with a time of its own: none of them may keep the others from it.
        freed = self._forget_the_due(begun.epoch, time.monotonic() + _WORK_S)
        freed += self._relieve(begun.epoch, begun.pressure, time.monotonic() + _WORK_S)
        until = time.monotonic() + _WORK_S
        return freed + self._relieve_tenants(begun.epoch, begun.pressure.limit_bytes, until)

    def _archived_until(self) -> int:
        """Until the archive has looked at everything again after it missed events, it counts as empty."""
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
                if self._store.hot_s is not None:  # what the archive does not have is not looked at
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
        """Those leave first that would leave first, but nobody whose caller may not have looked yet."""
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
                freed += self._forget_of(epoch, keeper, wanted - freed, rules, until)
            self._looked_at += len(page)
            if not page:
                break
        else:
            if freed < wanted:
                return freed  # the next round goes on here
        self._looked_at = 0
        return freed

    def _that_may_leave(self, keepers: Sequence[str], rules: _Rules) -> list[str]:
        """Those of these lists whose first job may leave, found in two round trips."""
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
        """Whether a long result of this tenant's fits into the store, and into its own part of it."""
        pressure = self._reads.pressure()
        if pressure.above(TAKES_LARGE_BELOW, more=size_bytes):
            return False
        if self._beyond(tenant, pressure.limit_bytes, percent=TENANT_WHOLE, more=size_bytes) <= 0:
            return True
        with store_errors("asking for a tenant's room"):
            self._redis.zadd(self._keys.crowded, {tenant: size_bytes}, gt=True)
        return False

    def _relieve_tenants(self, epoch: int, limit_bytes: int, until: float) -> int:
        """What tenants keep that were refused for it, or that keep large results."""
        freed = 0
        with store_errors("looking for tenants without room"):
            found = self._redis.zrange(self._keys.crowded, 0, _PAGE - 1, withscores=True, desc=True)
        for tenant, asked in cast(list[tuple[str, float]], found):
            if time.monotonic() > until:
                break
            for percent, rules in _FOR_A_RESULT if asked else _FOR_A_JOB:
                wanted = self._beyond(tenant, limit_bytes, percent=percent, more=int(asked))
                for keeper in self._keepers_of(tenant) if wanted > 0 else ():
                    left = self._forget_of(epoch, keeper, wanted, self._with_archive(rules), until)
                    freed, wanted = freed + left, wanted - left
            with store_errors("looking after a tenant"):
                self._redis.zrem(self._keys.crowded, tenant)  # whoever is refused again says so again
        return freed

    def _with_archive(self, rules: _Rules) -> _Rules:
        return rules if self._store.hot_s is not None else replace(rules, unarchived=True)

    def is_crowded(self) -> bool:
        """Whether some tenant waits for room."""
        with store_errors("looking for tenants without room"):
            return bool(self._redis.exists(self._keys.crowded))

    def _keepers_of(self, tenant: str) -> list[str]:
        """Its lists of ended jobs, the one first whose first job leaves first."""
        with store_errors("looking for what a tenant keeps"):
            fields = cast(list[str], self._redis.hkeys(self._keys.account(tenant)))
            lists = [field.removeprefix("list:") for field in fields if field.startswith("list:")]
            names = [f"{tenant} {seconds}" for seconds in lists]
            scores = self._redis.zmscore(self._keys.keepers, names) if names else []
        found = [(score, name) for score, name in zip(scores, names, strict=True) if score is not None]
        return [name for _, name in sorted(found)]

    def _forget_of(self, epoch: int, keeper: str, wanted: int, rules: _Rules, until: float) -> int:
        """Of one list, as much as is wanted and may leave."""
        freed = 0
        while freed < wanted and time.monotonic() < until:
            page = self._forget(epoch, keeper, wanted_bytes=wanted - freed, rules=rules)
            freed += page.freed_bytes
            if not page.left:
                break
        return freed

    def _beyond(self, tenant: str, limit_bytes: int, *, percent: int, more: int = 0) -> int:
        """What a tenant keeps that is beyond this part of its limit, with so many bytes more."""
        with store_errors("reading what a tenant holds"):
            found = self._redis.hmget(self._keys.account(tenant), "held_bytes", "kept_bytes", "bytes_held")
        held, kept, own = (int(value or 0) for value in cast(list[str | None], found))
        share = limit_bytes * self._store.settings.tenant_percent // 100
        most = min(own or share, share or own)
        return min(kept, held + kept + more - most * percent // 100) if most else 0

    def _forget(
        self,
        epoch: int,
        keeper: str,
        *,
        leaves_by_ms: int = _MOST,
        wanted_bytes: int = _MOST,
        rules: _Rules = _ALL,
    ) -> _Page:
        """The first of a list leave, a page at most: those that would leave by then, as many as needed."""
        keys, (tenant, _, seconds) = self._keys, keeper.rpartition(" ")
        stays_ms = 1000 * int(seconds)
        kept = keys.kept(tenant, int(seconds))
        leaving: list[tuple[str, str]] = []
        next_ms, freed_bytes, archived = 1, 0, 0
        with store_errors("looking for what a tenant keeps"):
            entries = cast(list[str], self._redis.lrange(kept, 0, _PAGE - 1))
            now_ms = self._store.now_ms()
            for entry, (finished_ms, name, outcome) in zip(entries, self._ends(entries), strict=True):
                ended_ms = int(finished_ms or 0)
                leaves_ms = self._leaves_ms(ended_ms, stays_ms, dead=outcome in _DEAD)
                held = self._is_held(ended_ms, now_ms, rules)
                if leaves_ms > leaves_by_ms or held or freed_bytes >= wanted_bytes:
                    next_ms = self._looked_at_ms(ended_ms, stays_ms, dead=outcome in _DEAD)
                    if leaves_ms > leaves_by_ms:  # it waits for the archive, and not in front of others
                        next_ms = max(next_ms, now_ms + _AGAIN_MS)
                    break
                if archived == len(leaving):
                    archived += self._is_archived(ended_ms)
                leaving.append((entry, name or ""))
                freed_bytes += int(entry.partition(" ")[2])
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
        return _Page(len(leaving) if forgot.word is ForgetWord.FORGOT else 0, forgot.freed_bytes)

    def _looked_at_ms(self, ended_ms: int, stays_ms: int, *, dead: bool) -> int:
        """When a list with this first job is looked at, as scripts/prelude.lua says."""
        hot_ms = stays_ms if self._store.hot_s is None or dead else 1000 * self._store.hot_s
        return ended_ms + min(hot_ms, stays_ms)

    def _is_archived(self, ended_ms: int) -> bool:
        return ended_ms < self._archived_until_ms

    def _leaves_ms(self, ended_ms: int, stays_ms: int, *, dead: bool) -> int:
        """What the archive has leaves early, but for dead letters, which an operator may retry; what it does
        not have yet waits for it, a day beyond its time."""
        if self._store.hot_s is None or dead:
            return ended_ms + stays_ms
        if self._is_archived(ended_ms):
            return ended_ms + min(1000 * self._store.hot_s, stays_ms)
        return ended_ms + stays_ms + _UNARCHIVED_MS

    def _ends(self, entries: Sequence[str]) -> list[list[str | None]]:
        """Of each: when it ended, None if it is gone or runs again; the key it was accepted under; how."""
        pipe = self._redis.pipeline(transaction=False)
        for entry in entries:
            pipe.hmget(self._keys.job(entry.partition(" ")[0]), "finished_ms", "idempotency", "outcome")
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
