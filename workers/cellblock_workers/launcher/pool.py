"""Warm pools: sandboxes started ahead, used once, never reused.

Starter threads serve waiting jobs first, in turns by tenant (waiters.py). After that they top up the profiles
in recent use (shelves.py); with three starters or more, two always stay free for jobs.
"""

from __future__ import annotations

import select
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from cellblock_config import LauncherSettings
from cellblock_workers.launcher.backend import BackendUnavailable, Profile, Sandbox
from cellblock_workers.launcher.shelves import Shelf, Shelves, may_be_kept
from cellblock_workers.launcher.waiters import Waiter, Waiters
from cellblock_workers.log import get_logger

_log = get_logger(__name__)

#: The job that was just given a sandbox goes first: the place it left is filled this many seconds later,
#: unless no sandbox of its profile is ready.
_AFTER_S = 0.05
#: How long a closing pool waits for borrowers that do not give back what they have, in seconds.
_IN_USE_S = 5.0
#: With this many threads, sandboxes that take long to die do not keep others from dying.
_DESTROYERS = 3
#: A place is not waited for any longer if its sandbox does not die within this time: another makes room.
_DIES_S = 1.0
#: Nothing notifies the starters when a tenant has left the host to another, or when a sandbox dies slowly,
#: nor a job when it has left a ready sandbox to others for long enough: so they look again this often.
_LOOK_AGAIN_S = 1.0

Start = Callable[[Profile], Sandbox]


@dataclass(frozen=True, slots=True)
class PooledSandbox:
    """A sandbox out of the pool. ``to_order``: its start is on this job's bill, as too few jobs have asked
    for its profile to keep one ready."""

    sandbox: Sandbox
    warm: bool
    to_order: bool


class Pool:
    """Hands out sandboxes; each of them has to come back through :meth:`discard`."""

    def __init__(self, start: Start, settings: LauncherSettings) -> None:
        self._start = start
        self._settings = settings
        self._waiters = Waiters(settings.starters)
        self._in_use: dict[Sandbox, str] = {}  # the tenant whose job has it
        self._doomed: deque[Sandbox] = deque()
        self._dying: list[float] = []  # since when
        self._shelves = Shelves(settings, self._doomed)
        self._ahead = 0  # starts under way that no job waits for
        self._closed = False
        self._waits_until = 0.0
        self._epoch = 0  # raised by clear(): a start from an earlier epoch must not go to a job
        self._pause_until = 0.0
        self._changed = threading.Condition()
        names = [(self._fill, f"starter-{i}") for i in range(settings.starters)]
        names += [(self._destroy, f"destroyer-{i}") for i in range(_DESTROYERS)]
        self._threads = [threading.Thread(target=target, name=name, daemon=True) for target, name in names]
        for thread in self._threads:
            thread.start()

    def warm(self, profile: Profile) -> None:
        """Keeps sandboxes of this profile ready from now on."""
        with self._changed:
            self._shelves.keep(profile)
            self._changed.notify_all()

    def acquire(self, profile: Profile, timeout_s: float, tenant: str = "") -> PooledSandbox:
        """A fresh sandbox of this profile.

        Raises :class:`BackendUnavailable` when none can be started, or none within ``timeout_s`` seconds.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            shelf = self._shelves.used(profile)
            to_order = not (self._shelves.is_common(profile) and may_be_kept(profile))
            self._waiters.heard(tenant, None if to_order or not self._settings.warm else profile)
            if not shelf.asked:
                shelf.tenant = tenant
            shelf.asked += 1
            shelf.asked_at = time.monotonic()
            waits = shelf.waiting or (self._is_last(shelf) and self._waiters.leaves_last(tenant, profile))
            if not waits and (sandbox := self._take(shelf, tenant)) is not None:
                return PooledSandbox(sandbox, warm=True, to_order=False)
            waiter = self._waiters.add(tenant, profile)
            shelf.waiting += 1
            self._changed.notify_all()
            try:
                while True:
                    if self._waiters.is_first(waiter, last=self._is_last(shelf)):
                        if (sandbox := self._take(shelf, tenant)) is not None:
                            return PooledSandbox(sandbox, warm=False, to_order=to_order)
                        if shelf.failures:
                            raise shelf.failures.popleft()
                    left = deadline - time.monotonic()
                    if self._closed:
                        raise BackendUnavailable("this launcher ends")
                    if left <= 0:
                        raise BackendUnavailable(f"no sandbox became free within {timeout_s:g} s")
                    self._changed.wait(min(left, _LOOK_AGAIN_S))
            finally:
                self._waiters.remove(waiter)
                shelf.waiting -= 1
                if not shelf.waiting:
                    shelf.failures.clear()
                self._shelves.drop_context(profile)
                self._changed.notify_all()  # the next one's turn

    def discard(self, sandbox: Sandbox) -> None:
        """Destroys a sandbox that was handed out, on another thread."""
        with self._changed:
            if sandbox in self._in_use:  # close() may have stopped waiting for it
                self._waiters.gave_back(self._in_use.pop(sandbox))
                self._doomed.append(sandbox)
            self._changed.notify_all()

    def clear(self) -> None:
        """Drops everything idle: a sandbox that was started under another isolation must not be handed
        out."""
        with self._changed:
            self._epoch += 1
            self._shelves.clear()
            self._changed.notify_all()

    def counts(self) -> dict[str, int]:
        """How many sandboxes are idle, starting and in use."""
        with self._changed:
            idle, starting = self._shelves.counts()
            return {"idle": idle, "starting": starting, "in_use": len(self._in_use)}

    def close(self) -> None:
        """Destroys everything idle and doomed, after a while also what is still in use, and stops."""
        with self._changed:
            self._closed = True
            self._waits_until = time.monotonic() + _IN_USE_S
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=30)

    def _take(self, shelf: Shelf, tenant: str) -> Sandbox | None:
        while shelf.ready:
            sandbox = shelf.ready.popleft()
            self._changed.notify_all()  # a place to fill
            if _alive(sandbox):
                self._in_use[sandbox] = tenant
                self._waiters.served(tenant)
                self._pause_until = max(self._pause_until, time.monotonic() + _AFTER_S)
                return sandbox
            self._doomed.append(sandbox)
        return None

    def _fill(self) -> None:
        while True:
            with self._changed:
                while (following := self._next()) is None:
                    if self._closed:
                        return
                    self._changed.wait(self._rest_s())
                profile, waiter = following
                shelf = self._shelves[profile]
                shelf.starting += 1
                self._ahead += waiter is None
                epoch = self._epoch
            self._start_one(profile, shelf, epoch)
            with self._changed:
                if waiter is None:
                    self._ahead -= 1
                else:
                    self._waiters.ended(waiter)
                self._changed.notify_all()

    def _rest_s(self) -> float:
        """Seconds until there may be something to start of which nothing notifies the starters."""
        now = time.monotonic()
        rests = [self._pause_until, *self._shelves.rests()]
        return min([_LOOK_AGAIN_S, *(until - now for until in rests if until > now)])

    def _start_one(self, profile: Profile, shelf: Shelf, epoch: int) -> None:
        began = time.monotonic()
        try:
            sandbox = self._start(profile)
        except BackendUnavailable as error:
            _log.warning("sandbox_start_failed", error=str(error))
            self._failed(shelf, error)
            return
        except Exception as error:  # a defect may cost a job its sandbox, never the pool its starter
            _log.exception("sandbox_start_crashed")
            self._failed(shelf, BackendUnavailable(f"starting a sandbox crashed: {error}"))
            return
        with self._changed:
            shelf.starting -= 1
            self._shelves.started(profile, took_s=time.monotonic() - began)
            unwanted = self._closed or epoch != self._epoch
            (self._doomed if unwanted else shelf.ready).append(sandbox)
            self._shelves.drop_context(profile)
            self._changed.notify_all()

    def _failed(self, shelf: Shelf, error: BackendUnavailable) -> None:
        with self._changed:
            shelf.starting -= 1
            shelf.failed(error)
            self._changed.notify_all()

    def _next(self) -> tuple[Profile, Waiter | None] | None:
        """What to start next, and for which waiter: for a job that waits, else to top up (None), else
        nothing. Called with the lock held."""
        if self._closed:
            return None
        room = self._room()
        if (waiter := self._waiters.next(self._coming, self._leaves_a_starter)) is not None:
            if room > 0:
                self._waiters.begin(waiter)
                return waiter.profile, waiter
            if not self._place_comes() and self._shelves.evict(waiter.tenant):
                self._changed.notify_all()
            return None
        profile = self._to_top_up() if room > 0 else None
        return None if profile is None else (profile, None)

    def _room(self) -> int:
        """How many more sandboxes may be started."""
        alive = sum(self._shelves.counts()) + len(self._in_use) + len(self._doomed) + len(self._dying)
        return self._settings.sandboxes_max - alive

    def _is_last(self, shelf: Shelf) -> bool:
        """Whether exactly one is ready, and another can be started for a job that leaves it to another
        tenant."""
        return len(shelf.ready) == 1 and self._room() > 0

    def _place_comes(self) -> bool:
        """Whether a sandbox will soon be gone."""
        now = time.monotonic()
        return bool(self._doomed) or any(now - since < _DIES_S for since in self._dying)

    def _coming(self, profile: Profile) -> int:
        return self._shelves[profile].coming

    def _leaves_a_starter(self, profile: Profile) -> bool:
        return not self._shelves.would_take_all(profile.image)

    def _to_top_up(self) -> Profile | None:
        if self._ahead >= max(1, self._settings.starters - 2):
            return None
        before = len(self._doomed)
        empty_only = time.monotonic() < self._pause_until
        profile = self._shelves.to_fill(empty_only=empty_only, waiters=self._waiters)
        if len(self._doomed) > before:
            self._changed.notify_all()
        return profile

    def _destroy(self) -> None:
        while True:
            with self._changed:
                while not self._doomed:
                    if self._closed and self._all_dropped():
                        return
                    self._changed.wait(0.2 if self._closed else None)
                sandbox = self._doomed.popleft()
                self._dying.append(since := time.monotonic())
            try:
                sandbox.destroy()
            except BackendUnavailable as error:  # the sweep removes what is left
                _log.warning("sandbox_removal_failed", sandbox=sandbox.id, error=str(error))
            except Exception:  # a defect of ours must not end a destroyer
                _log.exception("sandbox_removal_crashed", sandbox=sandbox.id)
            with self._changed:
                self._dying.remove(since)
                self._changed.notify_all()

    def _all_dropped(self) -> bool:
        if time.monotonic() >= self._waits_until:
            self._doomed.extend(self._in_use)
            self._in_use.clear()
        self._shelves.clear()
        _, starting = self._shelves.counts()
        return not self._doomed and not starting and not self._in_use


def _alive(sandbox: Sandbox) -> bool:
    """Whether the guest's end of the stream is still open. Reads nothing."""
    poll = select.poll()
    poll.register(sandbox.stream, select.POLLIN | select.POLLRDHUP)
    return not any(state & (select.POLLHUP | select.POLLRDHUP | select.POLLERR) for _, state in poll.poll(0))
