"""Warm pools: sandboxes started ahead, used once, never reused.

Starter threads serve waiting jobs first: those of the tenant with the fewest starts under way. After that
they top up the profiles in recent use. Images that start slowly never take all starters. The numbers alive
and idle are bounded by ``launcher.sandboxes_max`` and ``launcher.warm_total``.
"""

from __future__ import annotations

import select
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from cellblock_config import LauncherSettings
from cellblock_workers.launcher.backend import BackendUnavailable, Profile, Sandbox

_log = structlog.get_logger(__name__)

_PROFILES_KEPT = 16
#: A profile is kept ready once so many jobs have asked for it: any combination of limits makes one.
_ASKED_OFTEN = 3
#: An image is slow if its last start took longer than this, and so many times as long as the fastest image's.
_SLOW_S, _SLOW_TIMES = 1.0, 3.0
#: The job that was just given a sandbox goes first: the place it left is filled this much later.
_AFTER_S = 0.05
#: How long topping up rests after a first failure, and at most after many.
_REST_S = 1.0
_REST_MOST_S = 60.0
#: How long a pool that closes waits for those who hang up on what they were lent.
_LENT_S = 5.0

Start = Callable[[Profile], Sandbox]


@dataclass(slots=True)
class _Shelf:
    """The sandboxes of one profile."""

    ready: deque[Sandbox] = field(default_factory=deque)
    asked: int = 0
    starting: int = 0
    waiting: int = 0
    failures: deque[BackendUnavailable] = field(default_factory=deque)
    failed_in_row: int = 0
    rest_until: float = 0.0


@dataclass(slots=True, eq=False)
class _Waiter:
    """Somebody's job. ``begun``: a start was begun for it."""

    tenant: str
    profile: Profile
    begun: bool = False


class Pool:
    """Hands out sandboxes; every one handed out has to come back through :meth:`discard`."""

    def __init__(self, start: Start, settings: LauncherSettings) -> None:
        self._start = start
        self._settings = settings
        self._shelves: OrderedDict[Profile, _Shelf] = OrderedDict()  # most recently used last
        self._waiters: list[_Waiter] = []  # who came first, first
        self._took_s: dict[str, float] = {}  # the last start of each image
        self._lent: list[Sandbox] = []
        self._doomed: deque[Sandbox] = deque()
        self._closed = False
        self._lent_until = 0.0
        self._epoch = 0  # raised by clear(): what was begun before it is not for any job
        self._pause_until = 0.0
        self._changed = threading.Condition()
        names = [(self._fill, f"starter-{i}") for i in range(settings.starters)] + [
            (self._destroy, "destroyer")
        ]
        self._threads = [threading.Thread(target=target, name=name, daemon=True) for target, name in names]
        for thread in self._threads:
            thread.start()

    def warm(self, profile: Profile) -> None:
        """Keep sandboxes of this profile ready from now on."""
        with self._changed:
            self._shelf(profile).asked = _ASKED_OFTEN
            self._changed.notify_all()

    def acquire(self, profile: Profile, timeout_s: float, tenant: str = "") -> tuple[Sandbox, bool]:
        """A fresh sandbox, and whether it was warm.

        Raises :class:`BackendUnavailable` when it cannot be started, or not within ``timeout_s``.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            shelf = self._shelf(profile)
            shelf.asked += 1
            if (sandbox := self._take(shelf)) is not None:
                return sandbox, True
            waiter = _Waiter(tenant, profile)
            self._waiters.append(waiter)
            shelf.waiting += 1
            self._changed.notify_all()
            try:
                while True:
                    if (sandbox := self._take(shelf)) is not None:
                        return sandbox, False
                    if shelf.failures:
                        raise shelf.failures.popleft()
                    left = deadline - time.monotonic()
                    if left <= 0 or self._closed:
                        raise BackendUnavailable(f"no sandbox became free within {timeout_s:g} s")
                    self._changed.wait(left)
            finally:
                self._waiters.remove(waiter)
                shelf.waiting -= 1
                if not shelf.waiting:
                    shelf.failures.clear()
                self._drop_context(profile, shelf)

    def discard(self, sandbox: Sandbox) -> None:
        """Destroy a sandbox that was handed out, off the caller's path."""
        with self._changed:
            if sandbox in self._lent:  # close() may have had enough of waiting for it
                self._lent.remove(sandbox)
                self._doomed.append(sandbox)
            self._changed.notify_all()

    def clear(self) -> None:
        """Drop everything idle: what was started under another isolation may not be handed out."""
        with self._changed:
            self._epoch += 1
            for shelf in self._shelves.values():
                self._doomed.extend(shelf.ready)
                shelf.ready.clear()
                shelf.failed_in_row, shelf.rest_until = 0, 0.0
            self._changed.notify_all()

    def counts(self) -> dict[str, int]:
        """How many sandboxes are idle, starting and in use."""
        with self._changed:
            idle = sum(len(shelf.ready) for shelf in self._shelves.values())
            starting = sum(shelf.starting for shelf in self._shelves.values())
            return {"idle": idle, "starting": starting, "in_use": len(self._lent)}

    def close(self) -> None:
        """Destroy everything idle and doomed, what is still lent after a while, and stop."""
        with self._changed:
            self._closed = True
            self._lent_until = time.monotonic() + _LENT_S
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=30)

    def _shelf(self, profile: Profile) -> _Shelf:
        shelf = self._shelves.setdefault(profile, _Shelf())
        self._shelves.move_to_end(profile)
        # Profiles nobody asked for lately are forgotten, those seldom asked for first: jobs with ever new
        # limits must neither fill the memory nor drive out what others have ready.
        unused = [
            (one.asked >= _ASKED_OFTEN, old)
            for old, one in self._shelves.items()
            if not one.waiting and not one.starting and old != profile
        ]
        unused.sort(key=lambda one: one[0])
        for _, old in unused[: max(0, len(self._shelves) - _PROFILES_KEPT)]:
            self._doomed.extend(self._shelves.pop(old).ready)
        return shelf

    def _drop_context(self, profile: Profile, shelf: _Shelf) -> None:
        """A sandbox with somebody's file in it is for a job that waits, and never kept ready for another."""
        if profile.context is None or shelf.waiting:
            return
        self._doomed.extend(shelf.ready)
        shelf.ready.clear()
        if not shelf.starting:
            self._shelves.pop(profile, None)
        self._changed.notify_all()

    def _take(self, shelf: _Shelf) -> Sandbox | None:
        while shelf.ready:
            sandbox = shelf.ready.popleft()
            self._changed.notify_all()  # a place to fill
            if _alive(sandbox):
                self._lent.append(sandbox)
                self._pause_until = max(self._pause_until, time.monotonic() + _AFTER_S)
                return sandbox
            self._doomed.append(sandbox)
        return None

    def _fill(self) -> None:
        while True:
            with self._changed:
                while (profile := self._next_profile()) is None:
                    if self._closed:
                        return
                    self._changed.wait(self._rest_s())
                shelf = self._shelves[profile]
                shelf.starting += 1
                epoch = self._epoch
            self._start_one(profile, shelf, epoch)

    def _rest_s(self) -> float:
        """How long to wait until there may be something to start that nobody tells of."""
        now = time.monotonic()
        rests = [self._pause_until, *(shelf.rest_until for shelf in self._shelves.values())]
        return min([until - now for until in rests if until > now], default=1.0)

    def _start_one(self, profile: Profile, shelf: _Shelf, epoch: int) -> None:
        began = time.monotonic()
        try:
            sandbox = self._start(profile)
        except BackendUnavailable as error:
            _log.warning("sandbox_start_failed", error=str(error))
            self._failed(shelf, error)
            return
        except Exception as error:  # a defect of ours may cost a job its sandbox, never the pool its starter
            _log.exception("sandbox_start_crashed")
            self._failed(shelf, BackendUnavailable(f"starting a sandbox crashed: {error}"))
            return
        with self._changed:
            shelf.starting -= 1
            self._took_s[profile.image] = time.monotonic() - began
            shelf.failed_in_row, shelf.rest_until = 0, 0.0
            unwanted = self._closed or epoch != self._epoch
            (self._doomed if unwanted else shelf.ready).append(sandbox)
            self._drop_context(profile, shelf)
            self._changed.notify_all()

    def _failed(self, shelf: _Shelf, error: BackendUnavailable) -> None:
        with self._changed:
            shelf.starting -= 1
            # One waiter hears why. Topping up rests, the longer the more often in a row it has failed.
            if shelf.waiting > len(shelf.failures):
                shelf.failures.append(error)
            shelf.rest_until = time.monotonic() + min(
                _REST_S * 2 ** min(shelf.failed_in_row, 10), _REST_MOST_S
            )
            shelf.failed_in_row += 1
            self._changed.notify_all()

    def _next_profile(self) -> Profile | None:
        """What to start next: for a waiting job, else to top up, else nothing. Called with the lock held."""
        if self._closed:
            return None
        idle = sum(len(shelf.ready) + shelf.starting for shelf in self._shelves.values())
        room = self._settings.sandboxes_max - idle - len(self._lent) - len(self._doomed)
        if (waiter := self._next_waiter()) is not None:
            if room > 0:
                waiter.begun = True
                return waiter.profile
            if not self._doomed:
                self._evict()
            return None
        return self._to_top_up(idle) if room > 0 else None

    def _next_waiter(self) -> _Waiter | None:
        """The next job to start a sandbox for: the oldest of the tenant with the fewest starts under way."""
        begun = Counter(waiter.tenant for waiter in self._waiters if waiter.begun)
        missing = [waiter for waiter in self._waiters if self._is_missing(waiter.profile)]
        return min(missing, key=lambda waiter: begun[waiter.tenant], default=None)

    def _is_missing(self, profile: Profile) -> bool:
        shelf = self._shelves[profile]
        wanted = shelf.waiting > shelf.starting + len(shelf.ready) + len(shelf.failures)
        return wanted and not self._would_take_all(profile.image)

    def _would_take_all(self, image: str) -> bool:
        """Whether one start more of a slow image leaves no starter for the others."""
        if not self._is_slow(image):
            return False
        slow = sum(one.starting for profile, one in self._shelves.items() if self._is_slow(profile.image))
        return slow >= self._settings.starters - 1 > 0

    def _is_slow(self, image: str) -> bool:
        took_s = self._took_s.get(image, 0.0)
        return took_s > _SLOW_S and took_s > _SLOW_TIMES * min(self._took_s.values())

    def _to_top_up(self, idle: int) -> Profile | None:
        now = time.monotonic()
        if now < self._pause_until:
            return None
        for profile, shelf in reversed(self._shelves.items()):
            if now < shelf.rest_until or profile.context is not None or profile.series:
                continue
            if shelf.asked < _ASKED_OFTEN or self._would_take_all(profile.image):
                continue
            if len(shelf.ready) + shelf.starting < self._settings.warm:
                if idle < self._settings.warm_total or self._evict(keep=profile):
                    return profile
                return None
        return None

    def _evict(self, keep: Profile | None = None) -> bool:
        """Make room by dropping an idle sandbox of a profile used less recently than ``keep``.

        Never of one used more recently: two profiles would evict each other for ever.
        """
        for profile, shelf in self._shelves.items():
            if profile == keep:
                return False
            if shelf.ready and not shelf.waiting:
                self._doomed.append(shelf.ready.popleft())
                self._changed.notify_all()
                return True
        return False

    def _destroy(self) -> None:
        while True:
            with self._changed:
                while not self._doomed:
                    if self._closed and self._all_dropped():
                        return
                    self._changed.wait(0.2 if self._closed else None)
                sandbox = self._doomed[0]
            try:
                sandbox.destroy()
            except BackendUnavailable as error:  # what is left is the sweep's now
                _log.warning("sandbox_removal_failed", sandbox=sandbox.id, error=str(error))
            except Exception:  # a defect of ours may not end the only destroyer
                _log.exception("sandbox_removal_crashed", sandbox=sandbox.id)
            with self._changed:
                self._doomed.popleft()
                self._changed.notify_all()

    def _all_dropped(self) -> bool:
        if time.monotonic() >= self._lent_until:
            self._doomed.extend(self._lent)
            self._lent.clear()
        for shelf in self._shelves.values():
            self._doomed.extend(shelf.ready)
            shelf.ready.clear()
        starting = sum(shelf.starting for shelf in self._shelves.values())
        return not self._doomed and not starting and not self._lent


def _alive(sandbox: Sandbox) -> bool:
    """Whether the guest's end of the stream is still open. Looks, and reads nothing."""
    poll = select.poll()
    poll.register(sandbox.stream, select.POLLIN | select.POLLRDHUP)
    return not any(state & (select.POLLHUP | select.POLLRDHUP | select.POLLERR) for _, state in poll.poll(0))
