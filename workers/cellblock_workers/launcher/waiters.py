"""Whose sandbox is started next: jobs that wait for one, in turns by tenant."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from cellblock_workers.launcher.backend import Profile

#: A tenant that asked for a sandbox within this time shares the host, whether it waits for one now or not.
_SHARES_S = 10.0


@dataclass(frozen=True, slots=True, eq=False)
class Waiter:
    """A job that waits for a sandbox. ``since``: from when on, by the monotonic clock."""

    tenant: str
    profile: Profile
    since: float


class Waiters:
    """The jobs that wait, oldest first. Its owner holds a lock around every call.

    A tenant that has the host to itself may use all starters. Where others share it, it may use half of
    them: a start under gVisor takes more than one processor, and all others feel it. And of the sandboxes
    that stand ready it leaves one to a tenant with fewer in use: who asks for many at once must not make
    the others wait for a start.
    """

    def __init__(self, starters: int) -> None:
        self._most_under_way = max(1, starters // 2)
        self._all: list[Waiter] = []
        # A start counts for its tenant until it ends, whoever takes its sandbox.
        self._under_way: Counter[tuple[str, Profile]] = Counter()
        # By tenant, of those that share the host: when it last asked, was started for, was given one.
        self._asked_at: dict[str, float] = {}
        self._begun_at: dict[str, float] = {}
        self._served_at: dict[str, float] = {}
        self._in_use: Counter[str] = Counter()
        self._asked_for: defaultdict[Profile, dict[str, float]] = defaultdict(dict)  # which tenants, and when

    def __len__(self) -> int:
        return len(self._all)

    def heard(self, tenant: str, kept_ready: Profile | None = None) -> None:
        """This tenant asks for a sandbox. ``kept_ready``: its profile, if it stands ready for all."""
        now = time.monotonic()
        self._asked_at[tenant] = now
        if kept_ready is not None:
            self._asked_for[kept_ready][tenant] = now
        waiting = {waiter.tenant for waiter in self._all}
        gone = {one for one, at in self._asked_at.items() if now - at >= _SHARES_S} - waiting
        for times in (self._asked_at, self._begun_at, self._served_at):
            for one in gone:
                times.pop(one, None)
        for profile, asked in list(self._asked_for.items()):
            recent = {one: at for one, at in asked.items() if now - at < _SHARES_S}
            self._asked_for[profile] = recent
            if not recent:
                del self._asked_for[profile]

    def add(self, tenant: str, profile: Profile) -> Waiter:
        """One more, behind all others."""
        waiter = Waiter(tenant, profile, time.monotonic())
        self._all.append(waiter)
        return waiter

    def remove(self, waiter: Waiter) -> None:
        """It has a sandbox, or has waited long enough."""
        self._all.remove(waiter)

    def served(self, tenant: str) -> None:
        """A job of this tenant was given a sandbox; :meth:`gave_back` is called when it needs it no more."""
        self._served_at[tenant] = time.monotonic()
        self._in_use[tenant] += 1

    def gave_back(self, tenant: str) -> None:
        """A job of this tenant needs its sandbox no more."""
        self._in_use[tenant] -= 1
        if not self._in_use[tenant]:
            del self._in_use[tenant]

    def may_take(self, tenant: str, profile: Profile, ready: int) -> bool:
        """Whether this tenant may take one of so many: not the last, if another that asked for this profile
        lately has fewer in use."""
        return ready != 1 or not self._leaves_last(tenant, profile)

    def is_first(self, waiter: Waiter, ready: int) -> bool:
        """Whether the next sandbox of its profile is this job's: among those that may take it the oldest of
        the tenant that was given one longest ago, not the one that wakes first. A tenant that was given none
        has waited since it came: a new name is no way past those that wait."""
        able = [
            one
            for one in self._all
            if one.profile == waiter.profile and self.may_take(one.tenant, one.profile, ready)
        ]
        return waiter is min(able, key=lambda one: self._served_at.get(one.tenant, one.since), default=None)

    def next(self, coming: Callable[[Profile], int], may_start: Callable[[Profile], bool]) -> Waiter | None:
        """The job to start a sandbox for: the oldest of the tenant with the fewest starts under way, and
        among equals of the one whose last start is longest ago. A tenant has no more starts of a profile
        under way than jobs that wait for it, and where others share the host no more than half the starters.

        ``coming``: how many of a profile are started or being started, and not yet taken.
        """
        waiting = Counter(waiter.profile for waiter in self._all)
        waiting.update({one.profile for one in self._all if self._leaves_last(one.tenant, one.profile)})
        of_tenant = Counter((waiter.tenant, waiter.profile) for waiter in self._all)
        able = [
            one
            for one in self._all
            if waiting[one.profile] > coming(one.profile)
            and of_tenant[one.tenant, one.profile] > self._under_way[one.tenant, one.profile]
            and self._starts(one.tenant) < self._most(one.tenant)
            and may_start(one.profile)
        ]
        return min(able, key=self._turn, default=None)

    def begin(self, waiter: Waiter) -> None:
        """A start for this job begins; :meth:`ended` is called when it has ended, well or badly."""
        self._under_way[waiter.tenant, waiter.profile] += 1
        self._begun_at[waiter.tenant] = time.monotonic()

    def ended(self, waiter: Waiter) -> None:
        """A start that was begun for this job has ended, whether the job still waits or not."""
        key = waiter.tenant, waiter.profile
        self._under_way[key] -= 1
        if not self._under_way[key]:
            del self._under_way[key]

    def _leaves_last(self, tenant: str, profile: Profile) -> bool:
        others = self._asked_for.get(profile, {})
        return self._in_use[tenant] > min((self._in_use[one] for one in others), default=self._in_use[tenant])

    def _starts(self, tenant: str) -> int:
        return sum(count for (one, _), count in self._under_way.items() if one == tenant)

    def _turn(self, waiter: Waiter) -> tuple[int, float]:
        return self._starts(waiter.tenant), self._begun_at.get(waiter.tenant, waiter.since)

    def _most(self, tenant: str) -> int:
        now = time.monotonic()
        others = {one for one, at in self._asked_at.items() if now - at < _SHARES_S}
        others |= {waiter.tenant for waiter in self._all}
        shared = bool(others - {tenant})
        return self._most_under_way if shared else len(self._all)
