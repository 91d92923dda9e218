"""When jobs that have ended leave the store: in time, and earlier where memory is short."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import cast

from cellblock.ledger.connection import store_errors
from cellblock.ledger.pressure import LEAVE_ABOVE, LEAVE_DOWN_TO, TAKES_LARGE_BELOW, TENANT_DOWN_TO, Pressure
from cellblock.ledger.upkeep import Round, Upkeep

#: Jobs that leave in one call, and tenants looked at in one.
_PAGE = 100
#: How long one round may work at it: what is left is the next one's.
_WORK_S = 0.5
_ALL_MS = 10**15 - 1


class Retention(Upkeep):
    """The half of the upkeep that makes room. Raises :class:`StoreUnavailable`."""

    def make_room(self, begun: Round) -> int:
        """End the stay of jobs whose time has come, and of others where the store or a tenant needs room.

        Returns the bytes that were freed by the ledger's own count.
        """
        until = time.monotonic() + _WORK_S
        freed = self._forget_the_due(begun.epoch, until)
        freed += self._relieve(begun.epoch, begun.pressure, until)
        return freed + self._relieve_tenants(begun.epoch, begun.pressure.limit_bytes, until)

    def _forget_the_due(self, epoch: int, until: float) -> int:
        freed = 0
        while time.monotonic() < until:
            with store_errors("looking for jobs whose time has come"):
                now_ms = self._now_ms()
                tenants = cast(
                    list[str],
                    self._redis.zrange(self.keys.keepers, "-inf", now_ms, byscore=True, offset=0, num=_PAGE),
                )
            if not tenants:
                break
            for tenant in tenants:
                freed += self._forget(epoch, tenant, leaves_by_ms=now_ms)
        return freed

    def _relieve(self, epoch: int, pressure: Pressure, until: float) -> int:
        """Those leave first that would leave first, but nobody whose caller may not have looked yet."""
        wanted = pressure.above(LEAVE_DOWN_TO) if pressure.above(LEAVE_ABOVE) else 0
        young = pressure.above(TAKES_LARGE_BELOW) > 0
        freed, passed = 0, 0
        while freed < wanted and time.monotonic() < until:
            with store_errors("looking for who leaves first"):
                first = cast(list[str], self._redis.zrange(self.keys.keepers, passed, passed))
            if not first:
                break
            left = self._forget(epoch, first[0], young=young)
            freed += left
            passed += not left  # all of it is too young, or gone: the next tenant's
        return freed

    def _relieve_tenants(self, epoch: int, limit_bytes: int, until: float) -> int:
        """What tenants keep that were refused for it."""
        freed = 0
        with store_errors("looking for tenants without room"):
            crowded = cast(list[str], self._redis.srandmember(self.keys.crowded, _PAGE))
        for tenant in crowded:
            wanted = self._too_much(tenant, limit_bytes)
            while wanted > 0 and time.monotonic() < until:
                left = self._forget(epoch, tenant, young=False)
                freed, wanted = freed + left, wanted - left
                if not left:
                    break
            if wanted <= 0:
                with store_errors("looking after a tenant"):
                    self._redis.srem(self.keys.crowded, tenant)
        return freed

    def _too_much(self, tenant: str, limit_bytes: int) -> int:
        with store_errors("reading what a tenant holds"):
            found = self._redis.hmget(self.keys.account(tenant), "held_bytes", "kept_bytes", "bytes_held")
        held, kept, own = (int(value or 0) for value in cast(list[str | None], found))
        share = limit_bytes * self._settings.tenant_percent // 100
        most = min(own or share, share or own)
        return min(kept, held + kept - most * TENANT_DOWN_TO // 100) if most else 0

    def _forget(self, epoch: int, tenant: str, *, leaves_by_ms: int = _ALL_MS, young: bool = True) -> int:
        """A page of this tenant's jobs leaves, those first that would leave first. Returns the bytes freed.

        Without ``young`` those stay that have ended less than ``result_least_s`` ago.
        """
        keys = self.keys
        with store_errors("looking for what a tenant keeps"):
            first = self._redis.zrange(
                keys.kept(tenant), "-inf", leaves_by_ms, byscore=True, offset=0, num=_PAGE
            )
            job_ids = cast(list[str], first)
            least_ms = 0 if young else 1000 * self._settings.result_least_s
            names = self._idempotency_names(job_ids, older_ms=least_ms)
        leaving = [job_id for job_id in job_ids if job_id in names]
        if not leaving and job_ids:
            return 0
        of_jobs = [
            key
            for job_id in leaving
            for key in (
                keys.job(job_id),
                keys.result(job_id),
                keys.spec(job_id),
                keys.attempts(job_id),
                keys.idempotency(tenant, names[job_id]),
            )
        ]
        word, *counted = self._scripts.run(
            "forget",
            [keys.upkeep, keys.kept(tenant), keys.keepers, keys.account(tenant), keys.dead, *of_jobs],
            [epoch, tenant, leaves_by_ms, *leaving],
        )
        return int(counted[1]) if word == "forgot" else 0

    def _idempotency_names(self, job_ids: Sequence[str], older_ms: int) -> dict[str, str]:
        """Of jobs that ended longer ago than this: the key each was accepted under, or nothing."""
        pipe = self._redis.pipeline(transaction=False)
        for job_id in job_ids:
            pipe.hmget(self.keys.job(job_id), "finished_ms", "idempotency")
        found = cast(list[list[str | None]], pipe.execute()) if job_ids else []
        before_ms = self._now_ms() - older_ms
        return {
            job_id: name or ""
            for job_id, (finished_ms, name) in zip(job_ids, found, strict=True)
            if finished_ms is None or int(finished_ms) <= before_ms
        }
