"""Which job's sandbox is started next: the jobs that wait for one, in turns by tenant."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from cellblock_workers.launcher.backend import Profile

#: A tenant that asked for a sandbox within this many seconds shares the host, whether it waits for one or
#: not.
_SHARES_S = 10.0
#: A tenant leaves the last ready one to another that has this many fewer in use. A difference of one is not
#: enough: an evaluation holds its judge's sandbox while it asks for that of a trial.
_FEWER = 2
#: No job leaves a ready one to another tenant for more seconds than this.
_LEAVES_S = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Waiter:
    """A job that waits for a sandbox. ``since``: the start of its wait, on the monotonic clock."""

    tenant: str
    profile: Profile
    since: float


class Waiters:
    """The jobs that wait, oldest first. The owner holds a lock around every call.

    A tenant alone on the host may use all starters. If others share the host, it may use half of them: a
    start under gVisor takes more than one processor, and all others feel it.

    A tenant with many in use leaves the last ready one of a profile to another that asked for it lately and
    has few: a tenant that asks for many at once must not make the others wait for a start. The sandbox is
    left until a start for the tenant's own jobs has ended, for ``_LEAVES_S`` at most.
    """

    def __init__(self, starters: int) -> None:
        self._most_under_way = max(1, starters // 2)
        self._all: list[Waiter] = []
        # A start counts for its tenant until it ends, whichever job takes its sandbox.
        self._under_way: Counter[tuple[str, Profile]] = Counter()
        # By tenant, for those that share the host: when it last asked, was started for, was given one.
        self._asked_at: dict[str, float] = {}
        self._begun_at: dict[str, float] = {}
        self._served_at: dict[str, float] = {}
        self._in_use: Counter[str] = Counter()
        # By profile that is kept ready: when each tenant last asked for it.
        self._asked_for: dict[Profile, dict[str, float]] = {}
        # Ended starts for jobs that wait, whose sandboxes none of these jobs has taken.
        self._made: Counter[tuple[str, Profile]] = Counter()

    def __len__(self) -> int:
        return len(self._all)

    def heard(self, tenant: str, kept_ready: Profile | None = None) -> None:
        """Notes that this tenant asks for a sandbox. ``kept_ready``: its profile, if some are kept ready for
        all."""
        now = time.monotonic()
        self._asked_at[tenant] = now
        if kept_ready is not None:
            self._asked_for.setdefault(kept_ready, {})[tenant] = now
        waiting = {waiter.tenant for waiter in self._all}
        gone = {one for one, at in self._asked_at.items() if now - at >= _SHARES_S} - waiting
        for times in (self._asked_at, self._begun_at, self._served_at):
            for one in gone:
                times.pop(one, None)
        for profile in list(self._asked_for):
            self._asked_for[profile] = {
                one: at
                for one, at in self._asked_for[profile].items()
                if now - at < _SHARES_S or one in waiting
            }
            if not self._asked_for[profile]:
                del self._asked_for[profile]

    def add(self, tenant: str, profile: Profile) -> Waiter:
        """Adds a job behind all others."""
        waiter = Waiter(tenant, profile, time.monotonic())
        self._all.append(waiter)
        return waiter

    def remove(self, waiter: Waiter) -> None:
        """Removes a job that has a sandbox, or has waited long enough."""
        self._all.remove(waiter)
        key = waiter.tenant, waiter.profile
        waits = any((one.tenant, one.profile) == key for one in self._all)
        self._made[key] = max(0, self._made[key] - 1) if waits else 0
        if not self._made[key]:
            del self._made[key]

    def served(self, tenant: str) -> None:
        """Notes that a job of this tenant was given a sandbox. Call :meth:`gave_back` when it is done with
        it."""
        self._served_at[tenant] = time.monotonic()
        self._in_use[tenant] += 1

    def gave_back(self, tenant: str) -> None:
        """Notes that a job of this tenant is done with its sandbox."""
        self._in_use[tenant] -= 1
        if not self._in_use[tenant]:
            del self._in_use[tenant]

    def leaves_last(self, tenant: str, profile: Profile) -> bool:
        """Whether a job of this tenant that comes now leaves the last ready one to another tenant."""
        return self._in_use[tenant] >= self._many(profile)

    def is_first(self, waiter: Waiter, *, last: bool) -> bool:
        """Whether this job gets the next sandbox of its profile. The turn goes to the tenant that was given
        one longest ago, and there to its oldest job, not to the one that wakes first. A tenant that was never
        given one counts from its arrival: with a new name it cannot pass those that wait.

        ``last``: one is ready, and there is room to start another. Then jobs that leave it to another tenant
        do not count.
        """
        same = [one for one in self._all if one.profile == waiter.profile]
        if last:
            leaving = self._leaving(waiter.profile)
            same = [one for one in same if one not in leaving]
        return waiter is min(same, key=lambda one: self._served_at.get(one.tenant, one.since), default=None)

    def leave_one(self, profile: Profile) -> bool:
        """Whether all jobs that wait for this profile would leave one to a tenant that does not wait."""
        many = self._many(profile)
        return all(self._in_use[one.tenant] >= many for one in self._all if one.profile == profile)

    def starts_of(self, profile: Profile) -> int:
        """How many starts of this profile are under way for jobs that wait."""
        return sum(count for (_, one), count in self._under_way.items() if one == profile)

    def next(self, coming: Callable[[Profile], int], may_start: Callable[[Profile], bool]) -> Waiter | None:
        """The job to start a sandbox for: the oldest of the tenant with the fewest starts under way, among
        equals of the one whose last start is longest ago. A tenant never has more starts of a profile under
        way than jobs that wait for it, nor, if others share the host, more than half the starters.

        ``coming``: how many of a profile are started or being started, and not yet taken.
        """
        wanted = Counter(waiter.profile for waiter in self._all)
        # If jobs leave the ready one to another tenant, another one has to be started for them.
        wanted.update(profile for profile in list(wanted) if self._leaving(profile))
        of_tenant = Counter((waiter.tenant, waiter.profile) for waiter in self._all)
        able = [
            one
            for one in self._all
            if wanted[one.profile] > coming(one.profile)
            and of_tenant[one.tenant, one.profile] > self._under_way[one.tenant, one.profile]
            and self._starts(one.tenant) < self._most(one.tenant)
            and may_start(one.profile)
        ]
        return min(able, key=self._turn, default=None)

    def begin(self, waiter: Waiter) -> None:
        """Notes that a start for this job begins. Call :meth:`ended` when it has ended, well or badly."""
        self._under_way[waiter.tenant, waiter.profile] += 1
        self._begun_at[waiter.tenant] = time.monotonic()

    def ended(self, waiter: Waiter) -> None:
        """Notes that a start for this job has ended, whether the job still waits or not."""
        key = waiter.tenant, waiter.profile
        self._under_way[key] -= 1
        if not self._under_way[key]:
            del self._under_way[key]
        if any((one.tenant, one.profile) == key for one in self._all):
            self._made[key] += 1

    def _many(self, profile: Profile) -> float:
        """The number in use from which a tenant leaves the last one of this profile; inf if there is no
        tenant to leave it to."""
        now, waiting = time.monotonic(), {waiter.tenant for waiter in self._all}
        asked = self._asked_for.get(profile, {})
        here = (one for one, at in asked.items() if now - at < _SHARES_S or one in waiting)
        return min((self._in_use[one] for one in here), default=math.inf) + _FEWER

    def _leaving(self, profile: Profile) -> set[Waiter]:
        """The jobs that wait and leave the last ready one of this profile to another tenant."""
        now, many = time.monotonic(), self._many(profile)
        return {
            one
            for one in self._all
            if one.profile == profile
            and self._in_use[one.tenant] >= many
            and not self._made[one.tenant, profile]
            and now - one.since < _LEAVES_S
        }

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
