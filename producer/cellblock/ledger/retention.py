"""Removes ended jobs from the store: when their time has come, and earlier where memory is short."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from cellblock.ledger.archiving import ARCHIVE_GROUP, Archiving
from cellblock.ledger.connection import store_errors
from cellblock.ledger.crowded_tenants import CrowdedTenants
from cellblock.ledger.event_retention import EventStream
from cellblock.ledger.figures import Figures
from cellblock.ledger.kept_lists import ALL, ARCHIVED, FETCHED, UNFETCHED, YOUNG, KeptLists, Rules, Wanted
from cellblock.ledger.pressure import (
    ADMITS_BELOW,
    LEAVE_ABOVE,
    LEAVE_DOWN_TO,
    TAKES_LARGE_BELOW,
    Pressure,
)
from cellblock.ledger.store import Store
from cellblock.ledger.upkeep import Round

#: The lists looked at in one call for room, and for time.
_LISTS_PAGE, _DUE_LISTS_PAGE = 1000, 100
#: The most time for each part of a round: the next round does the rest.
_WORK_S = 0.3
#: The most between the time of a job's end and the id of its event.
_MARGIN_MS = 1000


@dataclass(frozen=True, slots=True)
class _Held:
    """The bytes of a tenant in Redis: all of them, and of its ended jobs."""

    total_bytes: int
    kept_bytes: int


class Retention:
    """The part of the upkeep that makes room. Raises :class:`StoreUnavailable`."""

    def __init__(self, store: Store, figures: Figures, archiving: Archiving) -> None:
        self._store = store
        self._redis, self._keys = store.redis, store.keys
        self._stream = EventStream(store.redis, store.keys)
        self._archiving = archiving
        self._lists = KeptLists(store)
        self.crowded_tenants = CrowdedTenants(store, figures, archiving, self._lists)
        self._looked_at = 0  #: lists that earlier rounds looked at in vain: the next round goes on here

    def make_room(self, begun: Round) -> int:
        """Removes jobs whose time has come, and others where the store or a tenant needs room.

        Returns the bytes that were freed, by the ledger's own count.
        """
        self._lists.archived_until_ms = self._archived_until()
        # Each part has a time of its own, so that none keeps the others from their work.
        freed = self._forget_the_due(begun.epoch, time.monotonic() + _WORK_S)
        freed += self._relieve(begun.epoch, begun.pressure, time.monotonic() + _WORK_S)
        pressure = begun.pressure.less(freed)
        return freed + self.crowded_tenants.relieve(begun.epoch, pressure, time.monotonic() + _WORK_S)

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
                    by_ms = min(now_ms, self._lists.archived_until_ms - 1 + 1000 * self._store.hot_s)
                due = self._redis.zrange(
                    self._keys.keepers, "-inf", by_ms, byscore=True, offset=0, num=_DUE_LISTS_PAGE
                )
            left = 0
            for keeper in cast(list[str], due):
                page = self._lists.forget_due(epoch, keeper, now_ms)
                freed, left = freed + page.freed_bytes, left + page.left
            if not left and len(due) < _DUE_LISTS_PAGE:
                break
        return freed

    def _relieve(self, epoch: int, pressure: Pressure, until: float) -> int:
        """Removes jobs of the tenants that hold most, down to one level for all, so that a tenant that fills
        the store loses its own.

        Young ones leave only from a store that is almost full; and once it is full for others, those of
        tenants that hold more than an even part of it.
        """
        wanted = pressure.above(LEAVE_DOWN_TO) if pressure.above(LEAVE_ABOVE) else 0
        passes = self._passes(pressure)
        freed = 0
        while freed < wanted and time.monotonic() < until:
            with store_errors("choosing ended jobs to remove"):
                page = cast(
                    list[str],
                    self._redis.zrange(
                        self._keys.keepers, self._looked_at, self._looked_at + _LISTS_PAGE - 1
                    ),
                )
            tenants = dict.fromkeys(keeper.rpartition(" ")[0] for keeper in page)
            for left, (rules, even) in zip(range(len(passes), 0, -1), passes, strict=True):
                # Each has its part of the time: the first might look at all in vain, round after round.
                part_s = (until - time.monotonic()) / left
                freed += self._level(
                    epoch,
                    tenants,
                    wanted - freed,
                    rules,
                    until=time.monotonic() + part_s,
                    even_under=pressure if even else None,
                )
            if freed >= wanted:
                return freed  # the next round goes on here
            if len(page) < _LISTS_PAGE:
                self._looked_at = 0
                break
            self._looked_at += len(page)
        return freed

    def _passes(self, pressure: Pressure) -> list[tuple[Rules, bool]]:
        """The rules by which jobs leave a store this full, one after the other, and for each whether only
        those of tenants above an even part do."""
        passes = [] if self._store.hot_s is None else [(ARCHIVED, False)]
        if self._store.hot_s is None or pressure.above(ADMITS_BELOW):
            passes += [(FETCHED, False), (UNFETCHED, False)]
        if pressure.above(TAKES_LARGE_BELOW):
            passes.append((ALL, False))
        if pressure.above(ADMITS_BELOW):
            passes.append((YOUNG, True))
        return passes

    def _level(
        self,
        epoch: int,
        tenants: Iterable[str],
        wanted_bytes: int,
        rules: Rules,
        until: float,
        even_under: Pressure | None = None,
    ) -> int:
        """Removes jobs of those of these tenants that hold most until bytes are freed. Returns the bytes.

        ``even_under``: only down to an even part of what this store admits, and only where several share it.
        """
        freed = 0
        while freed < wanted_bytes and time.monotonic() < until:
            held = self._held(tenants)
            level_bytes = level_of(held, wanted_bytes - freed)
            if even_under is not None:
                if len(held) < 2:
                    break
                level_bytes = max(
                    level_bytes, even_under.limit_bytes * ADMITS_BELOW // 100 // (len(held) + 1)
                )
            before = freed
            for tenant, holds in sorted(held.items(), key=lambda item: -item[1].total_bytes):
                beyond = min(holds.kept_bytes, holds.total_bytes - level_bytes)
                if beyond <= 0 or time.monotonic() > until:
                    continue
                freed += (
                    beyond
                    - self._lists.forget_of_tenant(epoch, tenant, Wanted(beyond), rules, until).held_bytes
                )
            if freed == before:
                break
        return freed

    def _held(self, tenants: Iterable[str]) -> dict[str, _Held]:
        names = list(tenants)
        with store_errors("reading what tenants hold"):
            pipe = self._redis.pipeline(transaction=False)
            for tenant in names:
                pipe.hmget(self._keys.account(tenant), "held_bytes", "kept_bytes")
            replies = cast(list[list[str | None]], pipe.execute()) if names else []
        pairs = [(int(held or 0), int(kept or 0)) for held, kept in replies]
        return {name: _Held(held + kept, kept) for name, (held, kept) in zip(names, pairs, strict=True)}


def level_of(held: Mapping[str, _Held], wanted_bytes: int) -> int:
    """The highest level that frees these bytes if all above it go down to it, as far as ended jobs go: what
    waits or runs cannot leave, and its tenant must not keep the level above everybody else."""
    low, high = 0, max((holds.total_bytes for holds in held.values()), default=0)
    while low < high:
        level = (low + high + 1) // 2
        free = sum(max(0, min(holds.kept_bytes, holds.total_bytes - level)) for holds in held.values())
        low, high = (level, high) if free >= wanted_bytes else (low, level - 1)
    return low
