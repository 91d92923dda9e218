"""Whose start comes next while several tenants share a host, and whose sandbox it is then."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from cellblock_workers.launcher.backend import Profile
from cellblock_workers.launcher.waiters import Waiter, Waiters

PROFILE = Profile(level="standard", image="python", memory_bytes=1 << 28, cpus=1.0, pids=10)


class Host:
    """Waiters, and a count of what is started or being started of each profile."""

    def __init__(self, starters: int) -> None:
        self.waiters = Waiters(starters)
        self.coming: dict[Profile, int] = {}

    def asks(self, tenant: str, *sizes: int) -> list[Waiter]:
        """A job of the tenant waits for a sandbox of each size."""
        self.waiters.heard(tenant)
        return [self.waiters.add(tenant, replace(PROFILE, memory_bytes=size)) for size in sizes]

    def begin(self) -> Waiter | None:
        """The next start begins."""
        waiter = self.waiters.next(lambda profile: self.coming.get(profile, 0), lambda profile: True)
        if waiter is not None:
            self.waiters.begin(waiter)
            self.coming[waiter.profile] = self.coming.get(waiter.profile, 0) + 1
        return waiter

    def ended(self, waiter: Waiter) -> None:
        """The start for this job has ended; what it made is taken, or it made nothing."""
        self.waiters.ended(waiter)
        self.coming[waiter.profile] -= 1

    def begin_all(self) -> list[Waiter]:
        """All starts that may begin now."""
        return [waiter for waiter in iter(self.begin, None) if waiter is not None]


def test_a_tenant_that_is_alone_may_use_all_starters() -> None:
    host = Host(starters=4)
    jobs = host.asks("one", 1, 2, 3, 4)
    assert host.begin_all() == jobs


def test_a_tenant_may_use_half_the_starters_of_a_host_that_it_shares() -> None:
    host = Host(starters=4)
    host.waiters.heard("two")
    jobs = host.asks("one", 1, 2, 3, 4)
    assert host.begin_all() == jobs[:2]
    late = host.asks("two", 5, 6, 7)
    assert host.begin_all() == late[:2]


def test_a_tenant_that_has_not_asked_for_a_while_leaves_the_host_to_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr("cellblock_workers.launcher.waiters.time.monotonic", lambda: now)
    host = Host(starters=4)
    host.waiters.heard("two")
    now += 11.0
    jobs = host.asks("one", 1, 2, 3)
    assert host.begin_all() == jobs


def test_a_start_counts_until_it_ends_even_if_its_job_took_another_sandbox() -> None:
    host = Host(starters=2)
    host.waiters.heard("two")
    first, second = host.asks("one", 1, 1)
    assert host.begin() is first
    host.waiters.remove(first)  # it has one that was started ahead; its own is still on its way
    host.waiters.add("one", second.profile)
    assert host.begin() is None
    host.ended(first)
    assert host.begin() is second


def test_a_tenant_that_waits_for_long_still_shares_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("cellblock_workers.launcher.waiters.time.monotonic", lambda: now)
    host = Host(starters=4)
    [theirs] = host.asks("two", 1)
    host.waiters.served("two")
    now += 11.0
    host.asks("one", 2, 3, 4, 5)
    assert [waiter.tenant for waiter in host.begin_all()] == ["two", "one", "one"]
    [ours] = host.asks("one", 1)
    assert host.waiters.is_first(theirs, last=False)
    assert not host.waiters.is_first(ours, last=False)


def test_ever_new_names_do_not_go_before_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(1000.0)
    monkeypatch.setattr("cellblock_workers.launcher.waiters.time.monotonic", lambda: next(clock))
    host = Host(starters=1)
    jobs = host.asks("honest", 1, 1, 1)
    order = []
    for number in range(4):
        begun = host.begin()
        assert begun is not None
        host.ended(begun)
        [first] = [one for one in jobs if one not in order and host.waiters.is_first(one, last=False)]
        order.append(first)
        host.waiters.served(first.tenant)
        host.waiters.remove(first)
        jobs += host.asks(f"new-{number}", 1)
    assert [waiter.tenant for waiter in order] == ["honest", "honest", "new-0", "honest"]


def test_the_tenant_with_the_fewest_starts_under_way_is_next() -> None:
    host = Host(starters=6)
    first = host.asks("one", 1, 2, 3)
    other = host.asks("two", 4)
    assert host.begin() is first[0]
    assert host.begin() is other[0]
    assert host.begin() is first[1]


def test_with_a_single_starter_tenants_take_turns() -> None:
    host = Host(starters=1)
    first = host.asks("one", 1, 2, 3)
    other = host.asks("two", 4, 5)
    order = []
    while (waiter := host.begin()) is not None:
        order.append(waiter)
        host.ended(waiter)
        host.waiters.remove(waiter)
    assert order == [first[0], other[0], first[1], other[1], first[2]]


def test_sandboxes_are_handed_out_in_turns_by_tenant_and_to_the_oldest_job() -> None:
    host = Host(starters=4)
    jobs = host.asks("two", 1, 1) + host.asks("one", 1, 1)
    order = []
    for _ in range(4):
        [first] = [job for job in jobs if job not in order and host.waiters.is_first(job, last=False)]
        order.append(first)
        host.waiters.served(first.tenant)
        host.waiters.remove(first)
    assert order == [jobs[0], jobs[2], jobs[1], jobs[3]]


def test_a_sandbox_of_another_profile_is_no_turn_lost() -> None:
    host = Host(starters=4)
    [theirs] = host.asks("two", 1)
    [other] = host.asks("one", 2)
    assert host.waiters.is_first(theirs, last=False)
    assert host.waiters.is_first(other, last=False)


def test_no_tenant_is_started_for_more_often_than_it_has_jobs_that_wait() -> None:
    host = Host(starters=8)
    host.asks("one", 1)
    host.asks("two", 1, 1, 1)
    assert [waiter.tenant for waiter in host.begin_all()] == ["one", "two", "two", "two"]


def test_a_start_that_came_to_nothing_is_begun_again() -> None:
    host = Host(starters=2)
    host.waiters.heard("two")
    [job] = host.asks("one", 1)
    assert host.begin() is job
    assert host.begin() is None
    host.ended(job)  # it failed, and somebody else heard why
    assert host.begin() is job


def test_no_more_is_started_than_there_are_jobs() -> None:
    host = Host(starters=4)
    host.asks("one", 1)
    host.coming[replace(PROFILE, memory_bytes=1)] = 1  # one is on its way, started ahead
    assert host.begin() is None


def shared(in_use: dict[str, int]) -> Host:
    """A host on which each tenant has asked for the profile and uses this many sandboxes."""
    host = Host(starters=4)
    for tenant, count in in_use.items():
        host.waiters.heard(tenant, PROFILE)
        for _ in range(count):
            host.waiters.served(tenant)
    return host


def test_the_last_that_is_ready_is_left_to_a_tenant_with_two_fewer_in_use() -> None:
    host = shared({"greedy": 3, "other": 1})
    assert host.waiters.leaves_last("greedy", PROFILE)
    assert not host.waiters.leaves_last("other", PROFILE)
    host.waiters.gave_back("greedy")
    assert not host.waiters.leaves_last("greedy", PROFILE), "one beside the next is not many"


def test_a_tenant_that_is_alone_leaves_nothing() -> None:
    host = shared({"greedy": 9})
    assert not host.waiters.leaves_last("greedy", PROFILE)
    assert not host.waiters.leaves_last("greedy", replace(PROFILE, memory_bytes=1)), "nobody asked for it"


def test_nothing_is_left_to_a_tenant_that_asks_for_another_profile_or_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr("cellblock_workers.launcher.waiters.time.monotonic", lambda: now)
    host = shared({"greedy": 3, "other": 0, "waiting": 0})
    other_profile = replace(PROFILE, memory_bytes=1)
    host.waiters.heard("greedy", other_profile)
    assert not host.waiters.leaves_last("greedy", other_profile)
    job = host.waiters.add("waiting", PROFILE)
    now += 11.0
    assert host.waiters.leaves_last("greedy", PROFILE), "one still waits"
    host.waiters.remove(job)
    assert not host.waiters.leaves_last("greedy", PROFILE)


def test_a_job_that_leaves_the_last_one_holds_up_nobody() -> None:
    host = shared({"other": 0, "greedy": 2})
    first = host.waiters.add("greedy", PROFILE)
    second = host.waiters.add("other", PROFILE)
    host.waiters.served("other")
    host.waiters.gave_back("other")  # served since: by turns alone it comes last
    assert host.waiters.is_first(second, last=True)
    assert not host.waiters.is_first(first, last=True)
    assert host.waiters.is_first(first, last=False)


def test_a_job_leaves_the_last_one_until_a_start_for_it_has_ended() -> None:
    host = shared({"greedy": 2, "other": 0})
    host.coming[PROFILE] = 1  # the one that is ready
    job, later = host.waiters.add("greedy", PROFILE), host.waiters.add("greedy", PROFILE)
    assert not host.waiters.is_first(job, last=True)
    begun = host.begin()
    assert begun is not None
    host.ended(begun)
    assert host.waiters.is_first(job, last=True), "whatever became of it"
    host.waiters.remove(job)
    assert not host.waiters.is_first(later, last=True), "that start was for one job"


def test_a_job_leaves_the_last_one_for_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("cellblock_workers.launcher.waiters.time.monotonic", lambda: now)
    host = shared({"greedy": 2, "other": 0})
    job = host.waiters.add("greedy", PROFILE)
    assert not host.waiters.is_first(job, last=True)
    now += 1.0
    assert host.waiters.is_first(job, last=True)


def test_one_is_started_for_a_job_that_leaves_the_one_that_is_ready() -> None:
    host = shared({"greedy": 2, "other": 0})
    host.coming[PROFILE] = 1
    job = host.waiters.add("greedy", PROFILE)
    assert host.begin_all() == [job]


def test_what_is_left_to_another_is_no_second_start_for_each_job() -> None:
    host = shared({"greedy": 2, "other": 0})
    host.waiters.add("greedy", PROFILE)
    host.waiters.add("greedy", PROFILE)
    host.waiters.add("other", PROFILE)
    assert sorted(one.tenant for one in host.begin_all()) == ["greedy", "greedy", "other"]


def test_one_is_kept_ready_beside_jobs_that_wait_if_they_would_leave_it() -> None:
    host = shared({"greedy": 2, "other": 0})
    host.waiters.add("greedy", PROFILE)
    assert host.waiters.leave_one(PROFILE)
    assert host.waiters.starts_of(PROFILE) == 0
    host.begin()
    assert host.waiters.starts_of(PROFILE) == 1
    host.waiters.add("other", PROFILE)
    assert not host.waiters.leave_one(PROFILE), "it waits itself: its start comes in its turn"
