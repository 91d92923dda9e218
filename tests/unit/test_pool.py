"""What the pool hands out, and what it never does."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from cellblock_config import LauncherSettings
from cellblock_workers.launcher import pool as pool_module
from cellblock_workers.launcher.backend import BackendUnavailable, Profile
from cellblock_workers.launcher.pool import Pool
from parts import wait_until

PROFILE = Profile("standard", "python", 1 << 28, 1.0, 10)


class Stub:
    """A stand-in, because a real start cannot be held up; it knows under which isolation it began."""

    def __init__(self, isolation: str) -> None:
        self.id = self.isolation = isolation
        self.stream, self._guest = socket.socketpair()
        self.destroyed = threading.Event()

    def destroy(self) -> None:
        self.stream.close()
        self._guest.close()
        self.destroyed.set()


def test_what_was_being_started_when_the_pool_was_cleared_is_for_nobody() -> None:
    begun, go = threading.Event(), threading.Event()
    started: list[Stub] = []

    def start(profile: Profile) -> Stub:
        sandbox = Stub("old" if not go.is_set() else "new")
        started.append(sandbox)
        begun.set()
        go.wait(10)
        return sandbox

    pool = Pool(start, LauncherSettings(warm=1, warm_total=1, starters=1))  # type: ignore[arg-type]
    try:
        pool.warm(PROFILE)
        assert begun.wait(10)
        pool.clear()
        go.set()
        sandbox, _ = pool.acquire(PROFILE, 10)
        assert sandbox.isolation == "new"
        assert started[0].destroyed.wait(10)
        pool.discard(sandbox)
    finally:
        pool.close()


def test_a_pool_that_closes_destroys_what_nobody_gives_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_LENT_S", 0.2)
    lent: list[Stub] = []

    def start(profile: Profile) -> Stub:
        lent.append(Stub("lent"))
        return lent[-1]

    pool = Pool(start, LauncherSettings(warm=0, warm_total=0))  # type: ignore[arg-type]
    pool.acquire(PROFILE, 10)
    pool.close()
    wait_until(
        lambda: all(sandbox.destroyed.is_set() for sandbox in lent), what="the sandbox being destroyed"
    )


def test_what_cannot_be_started_is_tried_again_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_REST_S", 0.05)
    tries: list[Profile] = []

    def start(profile: Profile) -> Stub:
        tries.append(profile)
        raise BackendUnavailable("there is no runtime")

    pool = Pool(start, LauncherSettings(warm=1, warm_total=1, starters=1))  # type: ignore[arg-type]
    try:
        pool.warm(PROFILE)
        time.sleep(2)
        assert 3 <= len(tries) <= 12, "one each 0.05 s would be forty"
        with pytest.raises(BackendUnavailable, match="there is no runtime"):
            pool.acquire(PROFILE, 5)  # a job that waits is not left to rest
        pool._shelf(PROFILE).failed_in_row = 5000
        with pytest.raises(BackendUnavailable, match="there is no runtime"):
            pool.acquire(PROFILE, 5)
        with pytest.raises(BackendUnavailable, match="there is no runtime"):
            pool.acquire(PROFILE, 5)  # its starter lives on
    finally:
        pool.close()
