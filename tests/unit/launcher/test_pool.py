"""What the pool hands out, and what it never does."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from cellblock_config import LauncherSettings, load_settings
from cellblock_workers.launcher import pool as pool_module
from cellblock_workers.launcher import shelves
from cellblock_workers.launcher.acquisition import Acquirer
from cellblock_workers.launcher.backend import BackendUnavailable, Profile
from cellblock_workers.launcher.pool import Pool, Start
from parts import wait_until

PROFILE = Profile(level="standard", image="python", memory_bytes=1 << 28, cpus=1.0, pids=10)


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
        sandbox = pool.acquire(PROFILE, 10).sandbox
        assert sandbox.isolation == "new"
        assert started[0].destroyed.wait(10)
        pool.discard(sandbox)
    finally:
        pool.close()


def test_a_pool_that_closes_destroys_what_nobody_gives_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_IN_USE_S", 0.2)
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
    monkeypatch.setattr(shelves, "_REST_S", 0.05)
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
        pool._shelves[PROFILE].failed_in_row = 5000
        with pytest.raises(BackendUnavailable, match="there is no runtime"):
            pool.acquire(PROFILE, 5)
        with pytest.raises(BackendUnavailable, match="there is no runtime"):
            pool.acquire(PROFILE, 5)  # its starter lives on
    finally:
        pool.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that closes does not wait for what these tests keep."""
    monkeypatch.setattr(pool_module, "_IN_USE_S", 0.0)


class Starts:
    """Starts that take as long as the test wants: it lets go of one after the other."""

    def __init__(self) -> None:
        self.begun: list[Profile] = []
        self._go = threading.Semaphore(0)

    def __call__(self, profile: Profile) -> Stub:
        self.begun.append(profile)
        assert self._go.acquire(timeout=10)
        return Stub("one")

    def let(self, count: int) -> None:
        self._go.release(count)


def asks(pool: Pool, tenant: str, profiles: list[Profile]) -> list[threading.Thread]:
    """Jobs of a tenant, one after the other, each waiting for a sandbox in its own thread."""
    threads = [threading.Thread(target=pool.acquire, args=(one, 10, tenant)) for one in profiles]
    for thread in threads:
        waiting = len(pool._waiters)
        thread.start()
        wait_until(lambda before=waiting: len(pool._waiters) > before, what="the job waiting")  # type: ignore[misc]
    return threads


def sized(*sizes: int, image: str = "python") -> list[Profile]:
    return [replace(PROFILE, memory_bytes=size, image=image) for size in sizes]


@pytest.mark.usefixtures("impatient")
def test_starts_are_shared_out_among_tenants() -> None:
    start = Starts()
    pool = Pool(start, LauncherSettings(warm=0, warm_total=0, starters=1))  # type: ignore[arg-type]
    try:
        greedy, other = sized(1, 2, 3, 4), sized(10, 11)
        threads = asks(pool, "greedy", greedy) + asks(pool, "other", other)
        start.let(6)
        for thread in threads:
            thread.join(10)
        assert start.begun[0] == greedy[0]
        # Which of two threads the kernel wakes first moves a start by one place; unfair would be 4 and 5.
        assert max(map(start.begun.index, other)) <= 4, "not behind all that came before"
    finally:
        pool.close()


@pytest.mark.usefixtures("impatient")
def test_what_was_started_is_handed_out_in_turns_by_tenant() -> None:
    start = Starts()
    pool = Pool(start, LauncherSettings(warm=0, warm_total=0, starters=1))  # type: ignore[arg-type]
    served: list[str] = []

    def take(tenant: str) -> None:
        pool.acquire(PROFILE, 10, tenant)
        served.append(tenant)

    try:
        threads = []
        for number, tenant in enumerate(["greedy", "greedy", "greedy", "other"]):
            threads.append(threading.Thread(target=take, args=(tenant,)))
            threads[-1].start()
            wait_until(lambda waiting=number: len(pool._waiters) > waiting, what="the job waiting")  # type: ignore[misc]
        for number in range(4):
            start.let(1)
            wait_until(lambda before=number: len(served) > before, what="the next sandbox")  # type: ignore[misc]
        assert served == ["greedy", "other", "greedy", "greedy"]
    finally:
        start.let(4)
        pool.close()


@pytest.mark.usefixtures("impatient")
def test_images_that_start_slowly_never_take_all_starters() -> None:
    start = Starts()
    pool = Pool(start, LauncherSettings(warm=0, warm_total=0, starters=2))  # type: ignore[arg-type]
    pool._shelves._took_s = {"python": 0.1, "datascience": 5.0}
    try:
        slow, quick = sized(1, 2, 3, image="datascience"), sized(10)
        threads = asks(pool, "one", slow)
        wait_until(lambda: len(start.begun) == 1, what="the first start")
        threads += asks(pool, "two", quick)
        wait_until(lambda: len(start.begun) == 2, what="the second")
        assert start.begun == [slow[0], quick[0]]
        start.let(4)
        for thread in threads:
            thread.join(10)
        assert len(start.begun) == 4
    finally:
        pool.close()


@pytest.mark.usefixtures("impatient")
def test_only_what_is_asked_for_again_and_again_is_kept_ready() -> None:
    started: list[Profile] = []

    def start(profile: Profile) -> Stub:
        started.append(profile)
        return Stub("one")

    pool = Pool(start, LauncherSettings(warm=1, warm_total=4))  # type: ignore[arg-type]
    try:
        often, *whims = sized(*range(1, 40))
        for _ in range(3):
            pool.acquire(often, 10)
        wait_until(lambda: pool.counts()["idle"] == 1, what="one kept ready")
        for whim in whims:
            pool.acquire(whim, 10)
        time.sleep(0.2)
        assert pool.counts()["idle"] == 1
        assert pool.acquire(often, 10).warm, "the whims of one tenant drive out nothing of the others"
        assert {started.count(whim) for whim in whims} == {1}
    finally:
        pool.close()


@pytest.mark.usefixtures("impatient")
def test_limits_in_rotation_pay_for_their_starts_and_drive_out_nothing_that_is_kept() -> None:
    started: list[Profile] = []

    def start(profile: Profile) -> Stub:
        started.append(profile)
        return Stub("one")

    pool = Pool(start, LauncherSettings(warm=2, warm_total=8))  # type: ignore[arg-type]
    try:
        pool.warm(PROFILE)
        taken = []
        for _ in range(8):
            for profile in sized(*range(1, 13)):
                taken.append(pool.acquire(profile, 10))
                pool.discard(taken[-1].sandbox)
                time.sleep(0.01)
        paid = sum(one.to_order for one in taken)
        unpaid = sum(profile != PROFILE for profile in started) - paid
        assert unpaid < paid, f"{paid} paid, {unpaid} started for nobody, for {len(taken)} jobs"
        ours = [pool.acquire(PROFILE, 10) for _ in range(3)]
        assert not any(one.to_order for one in ours), "the host keeps it, whatever others ask for"
    finally:
        pool.close()


@pytest.mark.usefixtures("impatient")
def test_a_tenant_with_many_limits_makes_room_by_its_own() -> None:
    pool = Pool(lambda _: Stub("one"), LauncherSettings(warm=2, warm_total=8))  # type: ignore[arg-type,return-value]
    try:
        [ours], theirs = sized(1), sized(*range(10, 15))
        for _ in range(3):
            pool.discard(pool.acquire(ours, 10, "quiet").sandbox)
        for _ in range(5):
            for profile in theirs:
                for _ in range(2):
                    pool.discard(pool.acquire(profile, 10, "nasty").sandbox)
                time.sleep(0.05)
        taken = pool.acquire(ours, 10, "quiet")
        assert taken.warm, "what others ask for drives out nothing of it"
        assert not taken.to_order
    finally:
        pool.close()


@pytest.mark.usefixtures("impatient")
def test_a_flood_of_quick_images_does_not_keep_a_slow_one_waiting() -> None:
    start = Starts()
    pool = Pool(start, LauncherSettings(warm=0, warm_total=0, starters=2))  # type: ignore[arg-type]
    pool._shelves._took_s = {"python": 0.1, "datascience": 5.0}
    try:
        quick, slow = sized(*range(1, 7)), sized(10, image="datascience")
        threads = asks(pool, "one", quick)
        threads += asks(pool, "two", slow)
        start.let(1)
        wait_until(lambda: slow[0] in start.begun, what="the slow one's start, beside a quick one's")
        start.let(6)
        for thread in threads:
            thread.join(10)
    finally:
        pool.close()


def test_only_where_none_is_left_is_the_job_that_took_it_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    monkeypatch.setattr(pool_module, "_AFTER_S", 60.0)
    pool = Pool(lambda _: Stub("ready"), LauncherSettings(warm=2, warm_total=2))  # type: ignore[arg-type,return-value]
    try:
        pool.warm(PROFILE)
        wait_until(lambda: pool.counts()["idle"] == 2, what="two that are ready")
        pool.acquire(PROFILE, 10)
        time.sleep(0.3)
        assert pool.counts()["idle"] == 1
        pool.acquire(PROFILE, 10)
        wait_until(lambda: pool.counts()["idle"] == 1, what="one that is ready again")
    finally:
        pool.close()


@pytest.mark.usefixtures("impatient")
def test_topping_up_leaves_starters_to_jobs() -> None:
    start = Starts()
    pool = Pool(start, LauncherSettings(warm=3, warm_total=9, starters=3))  # type: ignore[arg-type]
    try:
        kept = sized(1, 2, 3)
        for profile in kept:
            pool.warm(profile)
        wait_until(lambda: len(start.begun) == 1, what="the first to be kept ready")
        wanted = sized(10, 11)
        threads = asks(pool, "one", wanted)
        wait_until(lambda: len(start.begun) == 3, what="both jobs' starts beside it")
        assert set(start.begun[1:]) == set(wanted)
        start.let(12)
        for thread in threads:
            thread.join(10)
        wait_until(lambda: pool.counts()["idle"] == 9, what="all kept ready in the end")
    finally:
        start.let(12)
        pool.close()


@pytest.mark.usefixtures("impatient")
def test_topping_up_is_no_second_start_for_a_tenant_whose_jobs_wait() -> None:
    start = Starts()
    pool = Pool(start, LauncherSettings(warm=2, warm_total=8, starters=3))  # type: ignore[arg-type]
    try:
        pool._waiters.heard("other")
        pool._shelves.used(PROFILE).asked = shelves.ASKED_OFTEN
        threads = asks(pool, "greedy", [PROFILE] * 3)
        time.sleep(0.3)
        assert len(start.begun) == 1, "half of three starters, while another tenant shares the host"
        start.let(12)
        for thread in threads:
            thread.join(10)
    finally:
        start.let(12)
        pool.close()


@pytest.mark.usefixtures("impatient")
def test_a_start_is_to_order_where_no_other_job_has_use_for_it() -> None:
    pool = Pool(lambda profile: Stub("one"), LauncherSettings(warm=0, warm_total=0))  # type: ignore[arg-type,return-value]
    try:
        [seldom] = sized(1)
        series = replace(PROFILE, series=4)
        assert [pool.acquire(seldom, 10).to_order for _ in range(5)] == [True, True, True, False, False]
        assert [pool.acquire(series, 10).to_order for _ in range(5)] == [True] * 5
        pool.warm(PROFILE)
        assert not pool.acquire(PROFILE, 10).to_order, "what every host keeps ready is nobody's order"
    finally:
        pool.close()


def pool_of(start: Callable[[Profile], Stub], **bounds: int) -> Pool:
    """A pool of stand-ins within these bounds."""
    return Pool(cast(Start, start), LauncherSettings.model_validate(bounds))


class Slow(Stub):
    """One that dies when the test lets it."""

    def __init__(self) -> None:
        super().__init__("slow")
        self.go = threading.Event()

    def destroy(self) -> None:
        self.go.wait(20)
        super().destroy()


def test_two_that_are_long_in_dying_do_not_keep_a_third_from_it(impatient: None) -> None:
    started: list[Stub] = [Slow(), Slow(), Stub("quick")]
    rest = iter(started)
    pool = pool_of(lambda profile: next(rest), warm=0, warm_total=0)
    try:
        for sandbox in [pool.acquire(PROFILE, 10).sandbox for _ in started]:
            pool.discard(sandbox)
        assert started[2].destroyed.wait(10)
    finally:
        for one in started[:2]:
            assert isinstance(one, Slow)
            one.go.set()
        pool.close()


def test_where_one_is_long_in_dying_another_that_is_ready_makes_room(
    impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "_DIES_S", 0.2)
    other = replace(PROFILE, pids=11)
    slow = Slow()
    made: dict[Profile, list[Stub]] = {PROFILE: [], other: [slow, Stub("second")]}

    def start(profile: Profile) -> Stub:
        if profile == PROFILE:
            made[PROFILE].append(Stub("ready"))
            return made[PROFILE][-1]
        return made[other].pop(0)

    pool = pool_of(start, warm=1, warm_total=1, sandboxes_max=2)
    try:
        pool.warm(PROFILE)
        wait_until(lambda: pool.counts()["idle"] == 1, what="one that is ready")
        pool.discard(pool.acquire(other, 10).sandbox)
        assert pool.acquire(other, 10).sandbox.isolation == "second"
        assert made[PROFILE][0].destroyed.is_set() or made[PROFILE][0].destroyed.wait(5)
        assert not slow.destroyed.is_set()
    finally:
        slow.go.set()
        pool.close()


class Unlendable(Stub):
    """One whose limits cannot be read when it is lent."""

    def hand_over(self) -> int:
        raise OSError("no such counter")


def test_what_cannot_be_lent_is_destroyed_whatever_the_reason(impatient: None) -> None:
    started: list[Unlendable] = []

    def start(profile: Profile) -> Stub:
        started.append(Unlendable("odd"))
        return started[-1]

    pool = pool_of(start, warm=0, warm_total=0)
    acquirer = Acquirer(pool, None, load_settings(), on_change=lambda: None)  # type: ignore[arg-type]
    try:
        with pytest.raises(OSError, match="no such counter"):
            acquirer.acquire(PROFILE, "acme")
        assert started[0].destroyed.wait(10)
        assert pool.counts()["in_use"] == 0
    finally:
        pool.close()


def test_asking_for_anothers_limits_does_not_make_them_ones_own(impatient: None) -> None:
    """The flood asks once for what another keeps ready: it still makes room by its own."""
    pool = pool_of(lambda profile: Stub("any"), warm=1, warm_total=4)
    try:
        for _ in range(3):
            pool.discard(pool.acquire(PROFILE, 10, "neighbour").sandbox)
        pool.discard(pool.acquire(PROFILE, 10, "flood").sandbox)
        assert pool._shelves[PROFILE].tenant == "neighbour"
    finally:
        pool.close()


def test_topping_up_for_a_tenant_with_many_limits_takes_none_from_one_with_few(impatient: None) -> None:
    pool = pool_of(lambda _: Stub("one"), warm=1, warm_total=1)
    try:
        ours, *theirs = sized(*range(1, 5))
        for _ in range(3):
            pool.discard(pool.acquire(ours, 10, "quiet").sandbox)
        wait_until(lambda: pool.counts()["idle"] == 1, what="one kept ready")
        for profile in (*theirs, theirs[0], theirs[0]):
            pool.discard(pool.acquire(profile, 10, "nasty").sandbox)
        time.sleep(0.2)
        taken = pool.acquire(ours, 10, "quiet")
        assert taken.warm
        assert not taken.to_order
    finally:
        pool.close()


def test_room_for_a_job_that_waits_is_made_by_the_tenant_with_most_limits(impatient: None) -> None:
    pool = pool_of(lambda _: Stub("one"), warm=1, warm_total=3, sandboxes_max=3)
    try:
        ours, *theirs, third = sized(*range(1, 5))
        for profile, tenant in ((ours, "quiet"), *((one, "nasty") for one in theirs)):
            for _ in range(3):
                pool.discard(pool.acquire(profile, 10, tenant).sandbox)
        wait_until(lambda: pool.counts()["idle"] == 3, what="one ready of each")
        pool.acquire(third, 10, "third")
        assert pool.acquire(ours, 10, "quiet").warm
    finally:
        pool.close()


def test_what_another_had_dropped_is_no_job_of_its_own(impatient: None) -> None:
    """Room was made for a job that waits, of what was asked for often: who did that is not billed for it."""
    pool = pool_of(lambda _: Stub("one"), warm=1, warm_total=1, sandboxes_max=2)
    try:
        [ours, theirs] = sized(1, 2)
        for _ in range(3):
            pool.discard(pool.acquire(ours, 10, "quiet").sandbox)
        wait_until(lambda: pool.counts()["idle"] == 1, what="one kept ready")
        held = [pool.acquire(theirs, 10, "nasty").sandbox for _ in range(2)]
        assert pool.counts()["idle"] == 0
        for sandbox in held:
            pool.discard(sandbox)
        assert not pool.acquire(ours, 10, "quiet").to_order
    finally:
        pool.close()


def crowded(start: Callable[[Profile], Stub], **settings: int) -> Pool:
    """A pool with one sandbox ready; "greedy" uses two, and "other" has asked and uses none."""
    limits = LauncherSettings(**{"warm": 1, "warm_total": 3, **settings})
    pool = Pool(cast(Start, start), limits)
    pool.warm(PROFILE)
    wait_until(lambda: pool.counts()["idle"] == 1, what="one being ready")
    pool.discard(pool.acquire(PROFILE, 10, "other").sandbox)
    for _ in range(2):
        pool.acquire(PROFILE, 10, "greedy")
    wait_until(lambda: pool.counts() == {"idle": 1, "starting": 0, "in_use": 2}, what="one being ready again")
    return pool


class Held:
    """Starts that are held up from :attr:`go` being cleared until it is set, and fail while ``broken``."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.broken = False

    def __call__(self, profile: Profile) -> Stub:
        self.go.wait(10)
        if self.broken:
            raise BackendUnavailable("there is no runtime")
        return Stub("one")


@pytest.mark.usefixtures("impatient")
def test_who_asks_for_many_leaves_a_ready_one_to_another_tenant() -> None:
    start = Held()
    pool = crowded(start)
    try:
        start.go.clear()
        [waits] = asks(pool, "greedy", [PROFILE])
        wait_until(lambda: pool.counts()["starting"] == 1, what="a start for the job that waits")
        assert pool.counts()["idle"] == 1
        pool.acquire(PROFILE, 0.2, "other")
        start.go.set()
        waits.join(10)
        assert not waits.is_alive()
        wait_until(lambda: pool.counts()["idle"] == 1, what="the next one to leave")
    finally:
        start.go.set()
        pool.close()


@pytest.mark.usefixtures("impatient")
def test_one_is_kept_ready_for_another_tenant_while_jobs_wait() -> None:
    start = Held()
    pool = crowded(start, starters=3)
    try:
        start.go.clear()
        threads = asks(pool, "greedy", [PROFILE, PROFILE])
        wait_until(lambda: pool.counts()["starting"] == 1, what="a start for the jobs that wait")
        pool.discard(pool.acquire(PROFILE, 0.8, "other").sandbox)
        wait_until(lambda: pool.counts()["starting"] == 2, what="one for the jobs and one to leave")
        start.go.set()
        for thread in threads:
            thread.join(10)
        # Where this host stood still for a second, a job took the one that was left, and another came on top.
        wait_until(lambda: pool.counts()["idle"] >= 1, what="the one to leave")
    finally:
        start.go.set()
        pool.close()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("dead", [False, True])
def test_where_there_is_no_room_to_start_another_the_last_one_is_anybodys(dead: bool) -> None:
    pool = crowded(lambda _: Stub("one"), sandboxes_max=3)
    try:
        if dead:
            cast(Stub, pool._shelves[PROFILE].ready[0])._guest.close()
        pool.acquire(PROFILE, 0.8, "greedy")
    finally:
        pool.close()


@pytest.mark.usefixtures("impatient")
def test_a_job_takes_the_ready_one_rather_than_hear_that_none_can_be_started() -> None:
    start = Held()
    pool = crowded(start)
    try:
        start.broken = True
        pool.acquire(PROFILE, 0.8, "greedy")
        with pytest.raises(BackendUnavailable, match="there is no runtime"):
            pool.acquire(PROFILE, 5, "greedy")
    finally:
        pool.close()


@pytest.mark.usefixtures("impatient")
def test_a_tenant_with_many_in_use_is_served_beside_one_that_never_stops_asking() -> None:
    def start(_: Profile) -> Stub:
        time.sleep(0.05)
        return Stub("one")

    pool = crowded(start)
    over = threading.Event()
    served: list[str] = []

    def ask_on() -> None:
        while not over.is_set():
            pool.discard(pool.acquire(PROFILE, 10, "other").sandbox)
            served.append("other")

    others = [threading.Thread(target=ask_on) for _ in range(4)]
    try:
        for thread in others:
            thread.start()
        wait_until(lambda: len(served) > len(others), what="a steady stream")
        for _ in range(3):
            pool.acquire(PROFILE, 5, "greedy")
    finally:
        over.set()
        for thread in others:
            thread.join(10)
        pool.close()
