"""The sandboxes that stand ready, by profile: which to keep, which to drop for room, which to start next."""

from __future__ import annotations

import itertools
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from cellblock_config import LauncherSettings
from cellblock_workers.launcher.backend import BackendUnavailable, Profile, Sandbox
from cellblock_workers.launcher.waiters import Waiters

_PROFILES_KEPT = 16
#: A profile is kept ready once this many jobs have asked for it: every combination of limits makes a profile.
ASKED_OFTEN = 3
#: An image is slow if its last start took more than ``_SLOW_S``, and ``_SLOW_TIMES`` as long as the
#: fastest's.
_SLOW_S, _SLOW_TIMES = 1.0, 3.0
#: Seconds after its last request in which a tenant's profile does not make room for more of another tenant's.
_LATELY_S = 60.0
#: Seconds that topping up rests after a first failure, and at most after many.
_REST_S = 1.0
_REST_MOST_S = 60.0


@dataclass(slots=True)
class Shelf:
    """The sandboxes of one profile."""

    ready: deque[Sandbox] = field(default_factory=deque)
    asked: int = 0
    asked_at: float = 0.0  # the last time, on the monotonic clock
    tenant: str = ""  # whose job asked first: no other tenant takes the profile over by asking too
    kept: bool = False  # the host's own choice, whatever jobs ask for
    starting: int = 0
    waiting: int = 0
    failures: deque[BackendUnavailable] = field(default_factory=deque)
    failed_in_row: int = 0
    rest_until: float = 0.0

    @property
    def coming(self) -> int:
        """The number of started, starting or failed sandboxes, for comparison with the jobs that wait."""
        return self.starting + len(self.ready) + len(self.failures)

    def failed(self, error: BackendUnavailable) -> None:
        """Notes a failure, for one waiting job. Topping up rests, longer with each failure in a row."""
        if self.waiting > len(self.failures):
            self.failures.append(error)
        self.rest_until = time.monotonic() + min(_REST_S * 2 ** min(self.failed_in_row, 10), _REST_MOST_S)
        self.failed_in_row += 1

    def started(self) -> None:
        """Notes that the profile can be started: no rest is due."""
        self.failed_in_row, self.rest_until = 0, 0.0


class Shelves:
    """A shelf for each profile in use. The owner holds a lock around every call.

    ``doomed``: takes the sandboxes that no job is to get; the owner destroys them.
    """

    def __init__(self, settings: LauncherSettings, doomed: deque[Sandbox]) -> None:
        self._settings = settings
        self._doomed = doomed
        self._all: OrderedDict[Profile, Shelf] = OrderedDict()  # most recently used last
        self._took_s: dict[str, float] = {}  # the last start of each image

    def __getitem__(self, profile: Profile) -> Shelf:
        return self._all[profile]

    def used(self, profile: Profile) -> Shelf:
        """The profile's shelf, which becomes the most recently used.

        Profiles that no job asked for lately are forgotten: first those seldom asked for, then those of the
        tenant that has most. Jobs with ever new limits must neither fill the memory nor drive out what other
        tenants have ready.
        """
        shelf = self._all.setdefault(profile, Shelf())
        self._all.move_to_end(profile)
        held = self._profiles_by_tenant()
        unused = [
            (self.is_common(old), -held[one.tenant], old)
            for old, one in self._all.items()
            if not one.kept and not one.waiting and not one.starting and old != profile
        ]
        unused.sort(key=lambda one: one[:2])
        for *_, old in unused[: max(0, len(self._all) - _PROFILES_KEPT)]:
            self._doomed.extend(self._all.pop(old).ready)
        return shelf

    def keep(self, profile: Profile) -> None:
        """Keeps this profile ready, whatever jobs ask for."""
        self.used(profile).kept = True

    def clear(self) -> None:
        """Drops everything that is ready, and ends every rest."""
        for shelf in self._all.values():
            self._drop(shelf)
            shelf.started()

    def counts(self) -> tuple[int, int]:
        """The number of sandboxes that are ready, and of those being started."""
        shelves = self._all.values()
        return sum(len(shelf.ready) for shelf in shelves), sum(shelf.starting for shelf in shelves)

    def started(self, profile: Profile, took_s: float) -> None:
        """Notes that a sandbox of this profile was started, in ``took_s`` seconds."""
        self._took_s[profile.image] = took_s
        self._all[profile].started()

    def drop_context(self, profile: Profile) -> None:
        """Drops ready sandboxes with a tenant's file, unless a job waits for one: no other job may have
        them."""
        shelf = self._all.get(profile)
        if shelf is None or profile.context is None or shelf.waiting:
            return
        self._drop(shelf)
        if not shelf.starting:
            del self._all[profile]

    def evict(self, tenant: str, keep: Profile | None = None) -> bool:
        """Makes room for this tenant by dropping a ready sandbox, of a profile used less recently than
        ``keep``. It takes the tenant whose jobs asked first for most of them, and of its profiles the one
        used least recently. Returns whether it dropped one.

        It never takes a profile used more recently: two profiles would evict each other for ever. If no job
        waits for the room, it also spares a tenant that has fewer profiles and asked lately. A profile that a
        tenant has dropped for itself has to be asked for often anew: jobs that rotate among limits must not
        have unused sandboxes started, and are the first to make room.
        """
        held = self._profiles_by_tenant()
        now = time.monotonic()
        older = [self._all[one] for one in itertools.takewhile(lambda one: one != keep, self._all)]
        able = [one for one in older if one.ready and not one.waiting]
        if keep is not None:
            able = [one for one in able if held[one.tenant] >= held[tenant] or now - one.asked_at > _LATELY_S]
        if not able:
            return False
        shelf = min(able, key=lambda one: (one.kept, -held[one.tenant]))
        self._doomed.append(shelf.ready.popleft())
        if shelf.tenant == tenant:
            shelf.asked = 0
        return True

    def _profiles_by_tenant(self) -> Counter[str]:
        return Counter(shelf.tenant for shelf in self._all.values() if not shelf.kept)

    def to_fill(self, *, empty_only: bool, waiters: Waiters) -> Profile | None:
        """The most recently used profile with fewer ready than there should be. May evict one for it.

        ``empty_only``: only profiles that have none ready. If jobs wait for a profile, it gets at most the
        one that all of them leave to another tenant: their own sandboxes are started in turns by tenant, and
        another one for the shelf would be one more for the tenant that waits.
        """
        now = time.monotonic()
        for profile, shelf in reversed(self._all.items()):
            if now < shelf.rest_until or not may_be_kept(profile) or not self.is_common(profile):
                continue
            if self.would_take_all(profile.image) or (shelf.waiting and not waiters.leave_one(profile)):
                continue
            least = min(1, self._settings.warm) if empty_only or shelf.waiting else self._settings.warm
            if len(shelf.ready) + shelf.starting - waiters.starts_of(profile) < least:
                has_room = sum(self.counts()) < self._settings.warm_total
                return profile if has_room or self.evict(shelf.tenant, keep=profile) else None
        return None

    def is_common(self, profile: Profile) -> bool:
        """Whether jobs ask for it often, or the host keeps it anyway."""
        shelf = self._all[profile]
        return shelf.kept or shelf.asked >= ASKED_OFTEN

    def rests(self) -> Iterable[float]:
        """The ends of all rests, on the monotonic clock."""
        return (shelf.rest_until for shelf in self._all.values())

    def would_take_all(self, image: str) -> bool:
        """Whether another start of a slow image would leave no starter for the others."""
        if not self._is_slow(image):
            return False
        slow = sum(shelf.starting for profile, shelf in self._all.items() if self._is_slow(profile.image))
        return slow >= self._settings.starters - 1 > 0

    def _is_slow(self, image: str) -> bool:
        took_s = self._took_s.get(image, 0.0)
        return took_s > _SLOW_S and took_s > _SLOW_TIMES * min(self._took_s.values())

    def _drop(self, shelf: Shelf) -> None:
        self._doomed.extend(shelf.ready)
        shelf.ready.clear()


def may_be_kept(profile: Profile) -> bool:
    """Whether it may stand ready for any job: not with a tenant's file in it, and not as a series."""
    return profile.context is None and not profile.series
