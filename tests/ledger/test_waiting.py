"""Waiting by notification: woken at once, healed when a notification is lost, one thread for all waits."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time

import pytest
from redis import Redis

from cellblock import (
    AsyncClient,
    Client,
    JobSpec,
    JobState,
    ResultTimeout,
    StoreUnavailable,
    UnknownJob,
    waiting,
)
from cellblock.ledger import Keys, Ledger, connect
from cellblock_config import Settings
from ledger.kit import claim, finish
from parts import free_port, wait_until

pytestmark = pytest.mark.no_rerun

SPEC = JobSpec(code="pass")


class NoChannel(Keys):
    """Injected: ends are published where nobody listens, as if every notification were lost."""

    def done(self, job_id: str) -> str:
        return "nobody"


def listeners(redis: Redis, ledger: Ledger, job_id: str) -> int:
    return int(redis.pubsub_numsub(ledger.keys.done(job_id))[0][1])


def waits(settings: Settings, ledger: Ledger, job_id: str) -> None:
    """Return once somebody is subscribed to the job's end."""
    with connect(settings) as redis:
        wait_until(lambda: listeners(redis, ledger, job_id), what="a subscription")


def test_an_end_wakes_the_wait_many_times_sooner_than_the_sweep(client: Client, ledger: Ledger) -> None:
    delays = []
    for _ in range(20):
        job = client.submit(SPEC)
        future = client.result_future(job.id)
        held = claim(ledger, job.id)
        finish(ledger, held)
        started = time.monotonic()
        assert future.result(timeout=10).ok
        delays.append(time.monotonic() - started)
    assert statistics.median(delays) < waiting._SWEEP_S / 10


def test_a_job_that_ended_before_anyone_waited_is_found(client: Client, ledger: Ledger) -> None:
    job = client.submit(SPEC)
    finish(ledger, claim(ledger, job.id))
    started = time.monotonic()
    assert job.result(timeout_s=10).ok
    assert job.result(timeout_s=10).ok, "and found again"
    assert time.monotonic() - started < waiting._SWEEP_S


def test_without_notifications_the_sweep_finds_every_end(
    client: Client, ledger: Ledger, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_SWEEP_S", 0.4)
    jobs = [client.submit(SPEC) for _ in range(5)]
    futures = [client.result_future(job.id) for job in jobs]
    for job in jobs:
        waits(settings, ledger, job.id)
    ledger.keys = NoChannel(ledger.keys.prefix)
    for job in jobs:
        finish(ledger, claim(ledger, job.id))
    assert all(future.result(timeout=5).ok for future in futures)


def test_a_killed_subscription_loses_no_end(client: Client, ledger: Ledger, settings: Settings) -> None:
    with connect(settings) as redis:
        for _ in range(3):
            job = client.submit(SPEC)
            future = client.result_future(job.id)
            waits(settings, ledger, job.id)
            held = claim(ledger, job.id)
            assert redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub") >= 1
            finish(ledger, held)
            assert future.result(timeout=10).ok


def test_a_wait_gives_up_in_time_and_the_job_goes_on(client: Client, ledger: Ledger) -> None:
    job = client.submit(SPEC)
    started = time.monotonic()
    with pytest.raises(ResultTimeout, match=f"job {job.id} has not ended after 0.2 s"):
        job.result(timeout_s=0.2)
    assert time.monotonic() - started < 2
    assert job.status().state is JobState.QUEUED
    finish(ledger, claim(ledger, job.id))
    assert job.result(timeout_s=10).ok


def test_a_result_timeout_is_a_timeout_error(client: Client) -> None:
    with pytest.raises(TimeoutError):
        client.submit(SPEC).result(timeout_s=0)


@pytest.mark.parametrize("call", ["result", "status", "cancel"])
def test_an_unknown_job_is_told_at_once(client: Client, call: str) -> None:
    with pytest.raises(UnknownJob):
        getattr(client.job("nobody"), call)()


def test_a_cancelled_job_wakes_its_waiters(client: Client) -> None:
    job = client.submit(SPEC)
    future = client.result_future(job.id)
    assert job.cancel() == "cancelled"
    assert future.result(timeout=1).outcome == "cancelled"


def test_all_waits_of_a_client_share_one_thread_and_one_subscription(
    client: Client, ledger: Ledger, settings: Settings
) -> None:
    before = threading.active_count()
    jobs = [client.submit(SPEC) for _ in range(30)]
    futures = [client.result_future(job.id) for job in jobs]
    assert client.result_future(jobs[0].id) is futures[0]
    assert threading.active_count() == before + 1
    waits(settings, ledger, jobs[-1].id)
    with connect(settings) as redis:
        assert len(redis.client_list(_type="pubsub")) == 1
        for job in jobs:
            finish(ledger, claim(ledger, job.id))
        assert all(future.result(timeout=5).ok for future in futures)
        wait_until(lambda: not redis.pubsub_channels(), what="the subscriptions being given back")


def test_closing_the_client_ends_its_waits(settings: Settings) -> None:
    client = Client(settings=settings)
    job = client.submit(SPEC)
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            job.result(timeout_s=30)
        except ResultTimeout as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(
        lambda: "cellblock-results" in [thread.name for thread in threading.enumerate()], what="the wait"
    )
    client.close()
    thread.join(timeout=5)
    assert "closed while waiting" in str(errors)


def test_closed_client_names_the_remedy_at_once(settings: Settings) -> None:
    with Client(settings=settings) as client:
        job = client.submit(SPEC)
    before = time.monotonic()
    with pytest.raises(ResultTimeout, match="use a client inside its with block"):
        job.result(timeout_s=30)
    assert time.monotonic() - before < 5


def test_ctrl_c_before_the_listener_starts_breaks_neither_closing_nor_later_waits(
    settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: KeyboardInterrupt comes as the thread is about to start."""

    def interrupted(thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    with Client(settings=settings) as first, Client(settings=settings) as second:
        job = second.submit(SPEC)
        with monkeypatch.context() as injected:
            injected.setattr(threading.Thread, "start", interrupted)
            for client in (first, second):
                with pytest.raises(KeyboardInterrupt):
                    client.result(job.id, timeout_s=5)
        first.close()
        finish(ledger, claim(ledger, job.id))
        assert second.result(job.id, timeout_s=10).ok


def test_two_hundred_async_waits_at_once(settings: Settings, ledger: Ledger) -> None:
    async def run() -> list[bool]:
        async with AsyncClient(settings=settings) as client:
            jobs = [await client.submit(SPEC) for _ in range(200)]
            before = threading.active_count()
            waits = [asyncio.create_task(job.result(timeout_s=30)) for job in jobs]
            with connect(settings) as redis:
                while len(redis.pubsub_channels()) < 200:
                    await asyncio.sleep(0.01)
            assert threading.active_count() - before < 40, "no thread per wait"
            for job in jobs:
                finish(ledger, claim(ledger, job.id))
            return [(await wait).ok for wait in waits]

    assert asyncio.run(run()) == [True] * 200


def test_the_async_client_raises_the_same_errors(settings: Settings) -> None:
    async def run() -> None:
        async with AsyncClient(settings=settings) as client:
            job = await client.submit(SPEC)
            with pytest.raises(ResultTimeout, match=r"0\.1 s"):
                await job.result(timeout_s=0.1)
            assert (await job.status()).state is JobState.QUEUED
            assert await job.cancel() == "cancelled"
            assert (await job.result(timeout_s=5)).outcome == "cancelled"
            with pytest.raises(UnknownJob):
                await client.job("nobody").result(timeout_s=5)
            assert [event.terminal for event in await client.events()] == [False, True]
        async with AsyncClient(f"redis://127.0.0.1:{free_port()}/0") as client:
            with pytest.raises(StoreUnavailable):
                await client.submit(SPEC)

    asyncio.run(run())
