"""When jobs that have ended leave the store: in time, and earlier where memory is short."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from cellblock.ledger.connection import store_errors
from cellblock.ledger.groups import ARCHIVE_GROUP
from cellblock.ledger.pressure import (
    ADMITS_BELOW,
    LEAVE_ABOVE,
    LEAVE_DOWN_TO,
    TAKES_LARGE_BELOW,
    TENANT_DOWN_TO,
    Pressure,
)
from cellblock.ledger.reads import literal
from cellblock.ledger.upkeep import Round, Upkeep

#: Jobs that leave in one call, and tenants looked at in one.
_PAGE = 100
#: How long one round may work at it: what is left is the next one's.
_WORK_S = 0.5
_MOST = 10**15 - 1
#: What is not in the archive yet is looked at again so much later.
_LOOK_AGAIN_MS = 2000
#: As long as scripts/prelude.lua has Redis itself wait for a leader.
_UNARCHIVED_MS = 86_400_000
#: Between when a job ended and the id of that event.
_MARGIN_MS = 1000
_DEAD = ("worker_lost", "sandbox_error")


@dataclass(frozen=True, slots=True)
class _Page:
    """What left in one call: so many entries of a list, and the bytes of them by the ledger's own count."""

    left: int
    freed_bytes: int


class Retention(Upkeep):
    """The half of the upkeep that makes room. Raises :class:`StoreUnavailable`."""

    def make_room(self, begun: Round) -> int:
        """End the stay of jobs whose time has come, and of others where the store or a tenant needs room.

        Returns the bytes that were freed, by the ledger's own count.
        """
        until = time.monotonic() + _WORK_S
        self._archived_until_ms = self._archived_until()
        freed = self._forget_the_due(begun.epoch, until)
        freed += self._relieve(begun.epoch, begun.pressure, until)
        return freed + self._relieve_tenants(begun.epoch, begun.pressure.limit_bytes, until)

    _archived_until_ms = 0  #: what ended before is in the archive

    def _archived_until(self) -> int:
        if self._hot_s is None:
            return 0
        with store_errors("looking at the clock"):
            now_ms = self._now_ms()
        return self._stream.done_until_ms(ARCHIVE_GROUP, now_ms) - _MARGIN_MS

    def _forget_the_due(self, epoch: int, until: float) -> int:
        freed = 0
        while time.monotonic() < until:
            with store_errors("looking for jobs whose time has come"):
                now_ms = self._now_ms()
                due = self._redis.zrange(self.keys.keepers, "-inf", now_ms, byscore=True, offset=0, num=_PAGE)
            if not due:
                break
            for keeper in cast(list[str], due):
                freed += self._forget(epoch, keeper, leaves_by_ms=now_ms).freed_bytes
        return freed

    def _relieve(self, epoch: int, pressure: Pressure, until: float) -> int:
        """Those leave first that would leave first, but nobody whose caller may not have looked yet."""
        wanted = pressure.above(LEAVE_DOWN_TO) if pressure.above(LEAVE_ABOVE) else 0
        young = pressure.above(TAKES_LARGE_BELOW) > 0
        unarchived = self._hot_s is None or pressure.above(ADMITS_BELOW) > 0
        freed, passed = 0, 0
        while freed < wanted and time.monotonic() < until:
            with store_errors("looking for who leaves first"):
                first = cast(list[str], self._redis.zrange(self.keys.keepers, passed, passed))
            if not first:
                break
            page = self._forget(
                epoch, first[0], young=young, unarchived=unarchived, wanted_bytes=wanted - freed
            )
            freed += page.freed_bytes
            passed += not page.left  # all the rest is too young: the next list's
        return freed

    def has_room(self, tenant: str, size_bytes: int) -> bool:
        """Whether a long result of this tenant's fits into the store, and into its own part of it."""
        pressure = self.pressure()
        if pressure.above(TAKES_LARGE_BELOW, more=size_bytes):
            return False
        if self._beyond(tenant, pressure.limit_bytes, percent=100, more=size_bytes) <= 0:
            return True
        with store_errors("asking for a tenant's room"):
            self._redis.zadd(self.keys.crowded, {tenant: size_bytes}, gt=True)
        return False

    def _relieve_tenants(self, epoch: int, limit_bytes: int, until: float) -> int:
        """What tenants keep that were refused for it, or that keep large results."""
        freed = 0
        with store_errors("looking for tenants without room"):
            found = self._redis.zrange(self.keys.crowded, 0, _PAGE - 1, withscores=True, desc=True)
        for tenant, asked in cast(list[tuple[str, float]], found):
            if time.monotonic() > until:
                break
            wanted = self._beyond(tenant, limit_bytes, percent=TENANT_DOWN_TO, more=int(asked))
            # A long result waits in a worker: of its own tenant's others even young ones leave for it.
            freed += self._relieve_tenant(epoch, tenant, wanted, until, young=asked > 0)
            with store_errors("looking after a tenant"):
                self._redis.zrem(self.keys.crowded, tenant)  # whoever is refused again says so again
        return freed

    def is_crowded(self) -> bool:
        """Whether some tenant waits for room."""
        with store_errors("looking for tenants without room"):
            return bool(self._redis.exists(self.keys.crowded))

    def _relieve_tenant(self, epoch: int, tenant: str, wanted: int, until: float, *, young: bool) -> int:
        freed = 0
        unarchived = young or self._hot_s is None
        for keeper in self._keepers_of(tenant) if wanted > 0 else ():
            while freed < wanted and time.monotonic() < until:
                page = self._forget(
                    epoch, keeper, young=young, unarchived=unarchived, wanted_bytes=wanted - freed
                )
                freed += page.freed_bytes
                if not page.left:
                    break
        return freed

    def _keepers_of(self, tenant: str) -> list[str]:
        """Its lists of ended jobs, the one first whose first job leaves first."""
        with store_errors("looking for what a tenant keeps"):
            found = [
                (score, str(keeper))
                for keeper, score in self._redis.zscan_iter(self.keys.keepers, f"{literal(tenant)} *")
            ]
        return [keeper for _, keeper in sorted(found)]

    def _beyond(self, tenant: str, limit_bytes: int, *, percent: int, more: int = 0) -> int:
        """What a tenant keeps that is beyond this part of its limit, with so many bytes more."""
        with store_errors("reading what a tenant holds"):
            found = self._redis.hmget(self.keys.account(tenant), "held_bytes", "kept_bytes", "bytes_held")
        held, kept, own = (int(value or 0) for value in cast(list[str | None], found))
        share = limit_bytes * self._settings.tenant_percent // 100
        most = min(own or share, share or own)
        return min(kept, held + kept + more - most * percent // 100) if most else 0

    def _forget(
        self,
        epoch: int,
        keeper: str,
        *,
        leaves_by_ms: int = _MOST,
        wanted_bytes: int = _MOST,
        young: bool = True,
        unarchived: bool = True,
    ) -> _Page:
        """The first of a list leave, a page at most: those that would leave by then, and no more than needed.

        Without ``young`` those stay that have ended less than ``result_least_s`` ago, without ``unarchived``
        those that the archive does not have. All of a page are in the archive, or none.
        """
        keys, (tenant, _, seconds) = self.keys, keeper.rpartition(" ")
        stays_ms, least_ms = 1000 * int(seconds), 0 if young else 1000 * self._settings.result_least_s
        kept = keys.kept(tenant, int(seconds))
        leaving: list[tuple[str, str]] = []
        next_ms, freed_bytes, of_archived = 1, 0, False
        with store_errors("looking for what a tenant keeps"):
            entries = cast(list[str], self._redis.lrange(kept, 0, _PAGE - 1))
            now_ms = self._now_ms()
            for entry, (finished_ms, name, outcome) in zip(entries, self._ends(entries), strict=True):
                ended_ms = int(finished_ms or 0)
                leaves_ms = self._leaves_ms(ended_ms, stays_ms, dead=outcome in _DEAD)
                archived = self._is_archived(ended_ms)
                held = not archived and (not unarchived or ended_ms > now_ms - least_ms)
                other = bool(leaving) and archived != of_archived
                if leaves_ms > leaves_by_ms or held or other or freed_bytes >= wanted_bytes:
                    waits = self._hot_s is not None and not archived
                    next_ms = min(leaves_ms, now_ms + _LOOK_AGAIN_MS) if waits else leaves_ms
                    break
                of_archived = archived
                leaving.append((entry, name or ""))
                freed_bytes += int(entry.partition(" ")[2])
        of_jobs = [
            key for entry, name in leaving for key in self._keys_of(entry.partition(" ")[0], tenant, name)
        ]
        word, *freed = self._scripts.run(
            "forget",
            [keys.upkeep, kept, keys.keepers, keys.account(tenant), keys.dead, keys.blobs, *of_jobs],
            [epoch, int(of_archived), keeper, next_ms, *(entry for entry, _ in leaving)],
        )
        return _Page(len(leaving), int(freed[0])) if word == "forgot" else _Page(0, 0)

    def _is_archived(self, ended_ms: int) -> bool:
        return ended_ms < self._archived_until_ms

    def _leaves_ms(self, ended_ms: int, stays_ms: int, *, dead: bool) -> int:
        """What the archive has leaves early, but for dead letters, which an operator may retry; what it does
        not have yet waits for it, a day beyond its time."""
        if self._hot_s is None or dead:
            return ended_ms + stays_ms
        if self._is_archived(ended_ms):
            return ended_ms + min(1000 * self._hot_s, stays_ms)
        return ended_ms + stays_ms + _UNARCHIVED_MS

    def _ends(self, entries: Sequence[str]) -> list[list[str | None]]:
        """Of each: when it ended, None if it is gone or runs again; the key it was accepted under; how."""
        pipe = self._redis.pipeline(transaction=False)
        for entry in entries:
            pipe.hmget(self.keys.job(entry.partition(" ")[0]), "finished_ms", "idempotency", "outcome")
        return cast(list[list[str | None]], pipe.execute()) if entries else []

    def _keys_of(self, job_id: str, tenant: str, idempotency: str) -> tuple[str, ...]:
        keys = self.keys
        return (
            keys.job(job_id),
            keys.result(job_id),
            keys.spec(job_id),
            keys.attempts(job_id),
            keys.idempotency(tenant, idempotency),
        )
