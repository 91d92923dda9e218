"""Whose sandbox is started next: jobs that wait for one, in turns by tenant."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from cellblock_workers.launcher.backend import Profile

#: A tenant that asked for a sandbox within this time shares the host, whether it waits for one now or not.
_SHARES_S = 10.0


@dataclass(slots=True, eq=False)
class Waiter:
    """Somebody's job. ``begun``: a start was begun for it."""

    tenant: str
    profile: Profile
    begun: bool = False


class Waiters:
    """The jobs that wait, oldest first. Its owner holds a lock around every call.

    A tenant that has the host to itself may use all starters. Where others share it, it may use half of
    them: a start under gVisor takes more than one processor, and all others feel it.
    """

    def __init__(self, starters: int) -> None:
        self._most_begun = max(1, starters // 2)
        self._all: list[Waiter] = []
        self._asked_at: dict[str, float] = {}  # by tenant, of those that share the host
        self._under_way: Counter[str] = Counter()  # starts by tenant, whoever takes what they make
        self._begun_at: dict[str, float] = {}  # by tenant, when the last one began

    def __len__(self) -> int:
        return len(self._all)

    def heard(self, tenant: str) -> None:
        """This tenant asks for a sandbox."""
        now = time.monotonic()
        self._asked_at = {one: at for one, at in self._asked_at.items() if now - at < _SHARES_S}
        self._asked_at[tenant] = now
        self._begun_at = {one: at for one, at in self._begun_at.items() if one in self._asked_at}

    def add(self, tenant: str, profile: Profile) -> Waiter:
        """One more, behind all others."""
        waiter = Waiter(tenant, profile)
        self._all.append(waiter)
        return waiter

    def remove(self, waiter: Waiter) -> None:
        """It has a sandbox, or has waited long enough."""
        self._all.remove(waiter)

    def is_first(self, waiter: Waiter) -> bool:
        """Whether the next sandbox of its profile is this job's: not the one's that wakes first."""
        same = [one for one in self._all if one.profile == waiter.profile]
        return waiter is min(same, key=lambda one: not one.begun)

    def next(self, coming: Callable[[Profile], int], may_start: Callable[[Profile], bool]) -> Waiter | None:
        """The job to start a sandbox for: the oldest of the tenant with the fewest starts under way, and
        among equals of the one whose last start is longest ago.

        ``coming``: how many of a profile are started or being started, and not yet taken.
        """
        self._forget_lost(coming)
        waiting = Counter(waiter.profile for waiter in self._all)
        able = [
            one
            for one in self._all
            if not one.begun
            and self._under_way[one.tenant] < self._most(one.tenant)
            and waiting[one.profile] > coming(one.profile)
            and may_start(one.profile)
        ]
        return min(able, key=self._turn, default=None)

    def begin(self, waiter: Waiter) -> None:
        """A start for this job begins; :meth:`ended` is called when it has ended, well or badly."""
        waiter.begun = True
        self._under_way[waiter.tenant] += 1
        self._begun_at[waiter.tenant] = time.monotonic()

    def ended(self, tenant: str) -> None:
        """A start that was begun for a job of this tenant has ended."""
        self._under_way[tenant] -= 1
        if not self._under_way[tenant]:
            del self._under_way[tenant]

    def _forget_lost(self, coming: Callable[[Profile], int]) -> None:
        """A start may come to nothing: then nothing was begun for the job that waits."""
        begun = [waiter for waiter in self._all if waiter.begun]
        for profile, count in Counter(waiter.profile for waiter in begun).items():
            lost = max(0, count - coming(profile))
            for waiter in [one for one in begun if one.profile == profile][:lost]:
                waiter.begun = False

    def _turn(self, waiter: Waiter) -> tuple[int, float]:
        return self._under_way[waiter.tenant], self._begun_at.get(waiter.tenant, 0.0)

    def _most(self, tenant: str) -> int:
        now = time.monotonic()
        shared = any(now - at < _SHARES_S for one, at in self._asked_at.items() if one != tenant)
        return self._most_begun if shared else len(self._all)
