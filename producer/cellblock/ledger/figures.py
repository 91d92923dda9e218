"""How much there is of everything: questions to the ledger about all jobs, not about one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import cast

from cellblock.contract.job_status import Counts, DayUsage
from cellblock.errors import ArchiveUnavailable, SchemaMismatch
from cellblock.ledger.archiving import Archiving
from cellblock.ledger.connection import store_errors
from cellblock.ledger.keys import JobOwner, literal
from cellblock.ledger.pressure import Pressure
from cellblock.ledger.store import Store

#: The days of accounts that scripts/admit.lua keeps; both count days in UTC, from 1970 on.
_DAYS_KEPT, _DAY_MS = 40, 86_400_000
_EPOCH = date(1970, 1, 1)


class Figures:
    """Counts of jobs, workers, bytes and money. Every method raises :class:`StoreUnavailable`."""

    def __init__(self, store: Store, archiving: Archiving) -> None:
        self._store = store
        self._redis, self._keys = store.redis, store.keys
        self._archiving = archiving

    def counts(self) -> Counts:
        """The numbers of jobs by state, and of workers."""
        waiting, parked = self._waiting()
        with store_errors("counting jobs"):
            pipe = self._redis.pipeline(transaction=False)
            for index in (self._keys.delayed, self._keys.leases, self._keys.dead):
                pipe.zcard(index)
            delayed, running, dead = pipe.execute()
        pressure = self.pressure()
        archiver = self._archiving.state()
        return Counts(
            waiting=waiting,
            delayed=delayed,
            parked=parked,
            running=running,
            dead=dead,
            workers=len(self.workers()),
            store_percent=round(pressure.percent, 1) if pressure.limit_bytes else None,
            archive_behind_s=archiver.late_s if archiver is not None else None,
            archive_problem=self._archiving.problem() or self._archive_problem(),
        )

    def _archive_problem(self) -> str | None:
        """Why this process would not find in the archive what the archiver writes; None if it would."""
        if self._store.archive is None:
            return None
        try:
            self._store.archive.check()
        except (ArchiveUnavailable, SchemaMismatch) as error:
            return str(error)
        return None

    def running(self) -> int:
        """The number of jobs that hold a lease."""
        with store_errors("counting running jobs"):
            return self._redis.zcard(self._keys.leases)

    def depth(self) -> int:
        """The number of jobs that wait for a worker; parked and delayed jobs do not count."""
        return self._waiting()[0]

    def _waiting(self) -> tuple[int, dict[str, int]]:
        """The number of jobs that wait for a worker; and by tenant, of those that wait for a slot."""
        keys = self._keys
        with store_errors("counting waiting jobs"):
            lanes = sorted(cast(set[str], self._redis.smembers(keys.parked)))
            pipe = self._redis.pipeline(transaction=False)
            for index in (keys.deadlines, keys.delayed, *map(keys.ready, lanes)):
                pipe.zcard(index)
            not_running, delayed, *counts = cast(list[int], pipe.execute())
        parked: Counter[str] = Counter()
        for lane, count in zip(lanes, counts, strict=True):
            parked[JobOwner.of_lane(lane).tenant] += count
        return max(0, not_running - delayed - parked.total()), dict(parked)

    def oldest_wait_s(self) -> float:
        """How long the oldest job waits for a worker, in seconds, among a hundred lanes; 0 without one."""
        with store_errors("looking for the oldest waiting job"):
            heads = self.heads(cast(list[str], self._redis.zrange(self._keys.lane_turns, 0, 99)))
            since = [queued_ms for queued_ms in heads.values() if queued_ms is not None]
            return max(0.0, (self._store.now_ms() - min(since)) / 1000) if since else 0.0

    def heads(self, lanes: Sequence[str]) -> dict[str, int | None]:
        """By lane, since when its first job waits (ms); None for a job whose record has expired."""
        if not lanes:
            return {}
        heads = cast(list[str | None], self._redis.hmget(self._keys.lane_heads, list(lanes)))
        pipe = self._redis.pipeline(transaction=False)
        for head in heads:
            pipe.hget(self._keys.job(head or "-"), "queued_ms")
        queued = cast(list[str | None], pipe.execute())
        return {lane: None if at is None else int(at) for lane, at in zip(lanes, queued, strict=True)}

    def pressure(self) -> Pressure:
        """How full the store is: the last measurement, plus the bytes admitted since."""
        with store_errors("asking how full the store is"):
            found = self._redis.hmget(self._keys.pressure, "used_bytes", "taken_bytes", "limit_bytes")
        used, taken, limit = (int(value or 0) for value in cast(list[str | None], found))
        return Pressure(used + taken, limit)

    def usage(self, tenant: str | None = None, day: date | None = None) -> list[DayUsage]:
        """The use of tenants with a plan, by day: of one tenant or all, on one day or all that are kept."""
        with store_errors("reading accounts"):
            names = [tenant] if tenant is not None else self._accounts()
            pipe = self._redis.pipeline(transaction=False)
            for name in names:
                pipe.hgetall(self._keys.account(name))
            accounts = cast(list[dict[str, str]], pipe.execute())
            since = self.first_day_kept()
        found = [used for name, account in zip(names, accounts, strict=True) for used in _days(name, account)]
        return sorted(
            (one for one in found if one.day >= since and day in {None, one.day}),
            key=lambda one: (one.day, one.tenant),
        )

    def first_day_kept(self) -> date:
        """The first day (UTC) whose accounts the store still has."""
        with store_errors("looking at the clock"):
            return _EPOCH + timedelta(days=self._store.now_ms() // _DAY_MS - _DAYS_KEPT + 1)

    def _accounts(self) -> list[str]:
        start = self._keys.account("")
        return [
            str(key)[len(start) :] for key in self._redis.scan_iter(match=f"{literal(start)}*", count=1000)
        ]

    def workers(self) -> dict[str, dict[str, object]]:
        """The last status report of every live worker, by its name."""
        with store_errors("listing workers"):
            now = self._store.now_ms()
            self._redis.zremrangebyscore(self._keys.workers, "-inf", now)
            names = cast(list[str], self._redis.zrange(self._keys.workers, 0, -1))
            values = cast(
                list[str | None],
                self._redis.mget([self._keys.worker(name) for name in names]) if names else [],
            )
        return {name: json.loads(value) for name, value in zip(names, values, strict=True) if value}


def _days(tenant: str, account: Mapping[str, str]) -> Iterator[DayUsage]:
    numbers = {int(name.split(".")[0]) for name in account if "." in name}
    for number in sorted(numbers):
        runs, spent, held = (
            int(account.get(f"{number}.{kind}", 0)) for kind in ("runs", "spent", "reserved")
        )
        day = _EPOCH + timedelta(days=number)
        yield DayUsage(tenant=tenant, day=day, runs=runs, spent_micros=spent, reserved_micros=held)
