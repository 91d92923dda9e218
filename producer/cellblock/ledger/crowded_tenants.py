"""Tenants that keep too much for the job they want next: enough of it leaves, however full the store is.

A tenant becomes crowded when a job of it is refused by its bytes (``admit``), or when its long result waits.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import cast

from cellblock.ledger.archiving import Archiving
from cellblock.ledger.connection import store_errors
from cellblock.ledger.figures import Figures
from cellblock.ledger.kept_lists import ALL, ARCHIVED, FETCHED, UNFETCHED, KeptLists, Wanted
from cellblock.ledger.pressure import (
    ADMITS_BELOW,
    LARGE_BYTES,
    SHARED_ABOVE,
    TAKES_LARGE_BELOW,
    TENANT_DOWN_TO,
    TENANT_TAKES_UNARCHIVED_TO,
    TENANT_WHOLE,
    Pressure,
)
from cellblock.ledger.store import Store

#: The crowded tenants in one round.
_TENANTS_PAGE = 100
#: The most time for one of them.
_TENANT_WORK_S = 0.05
#: Percent of what a tenant may hold of a filling store, down to which its jobs leave when it is refused.
_SHARE_DOWN_TO = 60
#: The most that an ended job takes beside its result (scripts/prelude/account.lua).
_RECORD_BYTES = 4096
#: Where the store admits no job, a long result waits if its tenant holds more than this percentage of it.
_HEAVY = 20

#: When a tenant was refused a job, its ended jobs leave by these rules until it holds at most this percentage
#: of its limit, and has room for that job. Young ones leave only beyond the limit itself.
_FOR_A_JOB = (
    (TENANT_DOWN_TO, ARCHIVED),
    (TENANT_TAKES_UNARCHIVED_TO, FETCHED),
    (TENANT_TAKES_UNARCHIVED_TO, UNFETCHED),
    (TENANT_WHOLE, ALL),
)
_FOR_A_JOB_WITHOUT_ARCHIVE = (
    (TENANT_DOWN_TO, FETCHED),
    (TENANT_DOWN_TO, UNFETCHED),
    (TENANT_WHOLE, ALL),
)
#: When a tenant's long result waits, its other jobs leave, also young ones.
_FOR_A_RESULT = ((TENANT_DOWN_TO, FETCHED), (TENANT_DOWN_TO, UNFETCHED), (TENANT_DOWN_TO, ALL))


@dataclass(frozen=True, slots=True)
class _Account:
    """A tenant's bytes; the names are those of its account (scripts/prelude/lanes.lua)."""

    held_bytes: int = 0
    kept_bytes: int = 0
    bytes_held: int = 0
    wanted_bytes: int = 0
    blob_bytes: int = 0
    bytes_stored: int = 0
    wanted_stored_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """What its jobs take of the store: those that wait or run, and those that have ended."""
        return self.held_bytes + self.kept_bytes


class ResultTooLong(Exception):
    """A result is longer than all that its tenant may have of a store: it would leave at once.

    ``limit``: ``bytes_held`` or ``bytes_stored``.
    """

    def __init__(self, limit: str) -> None:
        super().__init__(f"the result is longer than its tenant's {limit}")
        self.limit = limit


class CrowdedTenants:
    """Makes room for single tenants. Raises :class:`StoreUnavailable`."""

    def __init__(self, store: Store, figures: Figures, archiving: Archiving, lists: KeptLists) -> None:
        self._store = store
        self._redis, self._keys = store.redis, store.keys
        self._figures = figures
        self._archiving = archiving
        self._lists = lists

    def any_waits(self) -> bool:
        """Whether a tenant waits for room."""
        with store_errors("looking for tenants without room"):
            return bool(self._redis.exists(self._keys.crowded))

    def check_length(self, tenant: str, size_bytes: int, *, as_blob: bool) -> None:
        """Raises :class:`ResultTooLong` for a result that is longer than all that its tenant may have.

        ``as_blob``: it goes to the blob store.
        """
        account = self._account(tenant)
        if 0 < account.bytes_stored < size_bytes and (as_blob or self._archiving.is_known()):
            raise ResultTooLong("bytes_stored")
        if not as_blob and 0 < self._most(account, self._figures.pressure()) < size_bytes + _RECORD_BYTES:
            raise ResultTooLong("bytes_held")

    def has_room(self, tenant: str, job_id: str, size_bytes: int) -> bool:
        """Whether a long result of this tenant's fits into the store, and into the tenant's part of it.

        It takes the place of its job, which does not run any more.
        """
        account, pressure = self._account(tenant), self._figures.pressure()
        if pressure.above(TAKES_LARGE_BELOW, more=size_bytes):
            return False
        if pressure.above(ADMITS_BELOW, more=size_bytes):
            holds_bytes = account.total_bytes + size_bytes
            if holds_bytes * 100 > pressure.limit_bytes * _HEAVY:
                return False  # or it would keep the store shut for others
        with store_errors("reading what a job holds"):
            own = int(cast(str | None, self._redis.hget(self._keys.job(job_id), "bytes")) or 0) + LARGE_BYTES
        more_bytes = size_bytes + _RECORD_BYTES - own
        most = self._most(account, pressure)
        if not most or account.total_bytes + more_bytes <= most:
            return True
        if account.kept_bytes:
            with store_errors("asking for a tenant's room"):
                self._redis.zadd(self._keys.crowded, {tenant: max(1, more_bytes)}, gt=True)
        return False

    def relieve(self, epoch: int, pressure: Pressure, until: float) -> int:
        """Removes ended jobs of crowded tenants. Returns the bytes that were freed."""
        freed = 0
        with store_errors("looking for tenants without room"):
            tenants = cast(list[str], self._redis.zrandmember(self._keys.crowded, _TENANTS_PAGE))
            # So that nobody is always among those for whom there is no time: Redis gives up to a page of them
            # in the order that they stand in.
            random.shuffle(tenants)
            sizes = self._redis.zmscore(self._keys.crowded, tenants) if tenants else []
        for tenant, result_bytes in zip(tenants, sizes, strict=True):
            if time.monotonic() > until:
                break
            its_until = min(until, time.monotonic() + _TENANT_WORK_S)
            freed += self._relieve(epoch, tenant, int(result_bytes or 0), pressure.less(freed), its_until)
            with store_errors("looking after a tenant"):  # one that is refused again is added again
                self._redis.hdel(self._keys.account(tenant), "wanted_bytes", "wanted_stored_bytes")
                self._redis.zrem(self._keys.crowded, tenant)
        return freed

    def _relieve(self, epoch: int, tenant: str, result_bytes: int, pressure: Pressure, until: float) -> int:
        """``result_bytes``: of a long result that waits; 0 where a job was refused."""
        for_a_job = _FOR_A_JOB if self._store.hot_s is not None else _FOR_A_JOB_WITHOUT_ARCHIVE
        freed = 0
        for percent, rules in _FOR_A_RESULT if result_bytes else for_a_job:
            account = self._account(tenant)
            for_job = not rules.young
            wanted = Wanted(
                self._beyond(
                    account,
                    pressure.less(freed),
                    percent=percent,
                    more_bytes=result_bytes,
                    job_bytes=account.wanted_bytes if for_job else 0,
                    shared=for_job and not result_bytes,
                ),
                self._stored_beyond(
                    account, percent=percent, job_bytes=account.wanted_stored_bytes if for_job else 0
                ),
            )
            if wanted:
                left = self._lists.forget_of_tenant(epoch, tenant, wanted, rules, until)
                freed += wanted.held_bytes - left.held_bytes
        return freed

    def _account(self, tenant: str) -> _Account:
        names = tuple(_Account.__dataclass_fields__)
        with store_errors("reading what a tenant holds"):
            fields = cast(list[str | None], self._redis.hmget(self._keys.account(tenant), names))
        return _Account(**{name: int(value or 0) for name, value in zip(names, fields, strict=True)})

    def _beyond(
        self,
        account: _Account,
        pressure: Pressure,
        *,
        percent: int,
        more_bytes: int = 0,
        job_bytes: int = 0,
        shared: bool = False,
    ) -> int:
        """The bytes of ended jobs that a tenant keeps, plus ``more_bytes``, beyond this part of its limit.

        ``job_bytes``: or beyond what leaves room for a job of this size. ``shared``: or beyond what it may
        hold of a store that is filling.
        """
        most = self._most(account, pressure)
        down_to = min(most * percent // 100, most - job_bytes)
        beyond = account.total_bytes + more_bytes - down_to if most else 0
        if shared and pressure.above(SHARED_ABOVE):
            # `admit` lets a tenant hold as much as is free. Below that by a good part, or it would be refused
            # again at once.
            even = (account.total_bytes + pressure.below(ADMITS_BELOW)) // 2
            beyond = max(beyond, account.total_bytes - min(even * _SHARE_DOWN_TO // 100, even - job_bytes))
        return min(account.kept_bytes, beyond)

    def _most(self, account: _Account, pressure: Pressure) -> int:
        """What a tenant may hold of the store; 0 for no limit."""
        share = pressure.limit_bytes * self._store.settings.tenant_percent // 100
        return min(account.bytes_held or share, share or account.bytes_held)

    @staticmethod
    def _stored_beyond(account: _Account, *, percent: int, job_bytes: int) -> int:
        """The bytes that a tenant has in the blob store beyond this part of its plan's limit, or beyond what
        leaves room for a job of this size."""
        limit = account.bytes_stored
        return account.blob_bytes - min(limit * percent // 100, limit - job_bytes) if limit else 0
