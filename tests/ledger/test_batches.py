"""Client.map: batches of any size, at most a window in flight, in order or as they end.

A fake worker thread ends the jobs through the ledger; no sandbox and no broker consumer take part.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterable, Iterator
from contextlib import aclosing, suppress

import pytest

from cellblock import (
    AsyncClient,
    BudgetExceeded,
    CellblockError,
    Client,
    InvalidJob,
    JobResult,
    JobSpec,
    JobState,
    StoreUnavailable,
)
from cellblock.ledger import Ledger
from cellblock_config import Settings
from ledger.kit import FakeWorker, claim, finish
from parts import free_port, wait_until

pytestmark = pytest.mark.no_rerun


class Specs:
    """An endless supply that counts what was taken from it."""

    def __init__(self) -> None:
        self.taken = 0

    def __iter__(self) -> Iterator[JobSpec]:
        for number in itertools.count():
            self.taken += 1
            yield JobSpec(code=str(number))


def numbered(count: int) -> list[JobSpec]:
    return [JobSpec(code=str(number)) for number in range(count)]


def ended(results: Iterable[JobResult | CellblockError]) -> Iterator[JobResult]:
    """The results, all of which have to be of jobs that were accepted."""
    for result in results:
        assert isinstance(result, JobResult), result
        yield result


def hold_back_first(waiting: list[str]) -> list[str]:
    """End the newest waiting jobs; the oldest only when it is alone."""
    return waiting[1:] if len(waiting) > 1 else []


@pytest.mark.parametrize("ordered", [True, False])
def test_every_job_of_a_batch_has_one_result(settings: Settings, ordered: bool) -> None:
    with FakeWorker(settings), Client(settings=settings) as client:
        results = list(ended(client.map(numbered(60), ordered=ordered, window=16)))
    outputs = [int(result.stdout) for result in results]
    assert (outputs if ordered else sorted(outputs)) == list(range(60))
    assert len({result.job_id for result in results}) == 60


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("window", [1, 5])
def test_an_endless_batch_is_read_no_further_than_the_window(
    settings: Settings, ordered: bool, window: int
) -> None:
    specs = Specs()
    with FakeWorker(settings) as worker, Client(settings=settings) as client:
        results = client.map(specs, ordered=ordered, window=window)
        assert specs.taken == 0, "nothing is read before the first result is asked for"
        for yielded, _ in enumerate(itertools.islice(results, 20)):
            assert specs.taken - yielded <= window
    assert 1 <= worker.most_waiting <= window


def test_ordered_results_wait_for_the_slow_first(settings: Settings) -> None:
    """The fake worker ends the first job last."""

    def first_last(waiting: list[str]) -> list[str]:
        later.extend(waiting[1:])
        return waiting[1:] if len(later) < 3 or len(waiting) > 1 else waiting

    later: list[str] = []
    with FakeWorker(settings, first_last), Client(settings=settings) as client:
        results = [result.stdout for result in ended(client.map(numbered(4), window=4))]
    assert len(later) >= 3
    assert results == ["0", "1", "2", "3"]


def test_unordered_results_do_not_wait_for_the_slow_first(settings: Settings) -> None:
    with FakeWorker(settings, hold_back_first), Client(settings=settings) as client:
        results = ended(client.map(numbered(4), ordered=False, window=4))
        early = {next(results).stdout for _ in range(3)}
        assert early == {"1", "2", "3"}
        client.cancel(_only_waiting(client))
        assert next(results).outcome == "cancelled"
        assert list(results) == []


def _only_waiting(client: Client) -> str:
    (queued,) = {e.job_id for e in client.events()} - {e.job_id for e in client.events() if e.terminal}
    return queued


@pytest.mark.parametrize("ordered", [True, False])
def test_progress_counts_every_result(settings: Settings, ordered: bool) -> None:
    seen: list[tuple[int, object]] = []

    def progress(done: int, result: JobResult | CellblockError) -> None:
        seen.append((done, result))

    with FakeWorker(settings), Client(settings=settings) as client:
        results = list(client.map(numbered(10), ordered=ordered, window=3, progress=progress))
    assert seen == list(enumerate(results, start=1))


@pytest.mark.parametrize("ordered", [True, False])
def test_an_empty_batch_asks_nothing_of_the_store(ordered: bool) -> None:
    with Client(f"redis://127.0.0.1:{free_port()}/0") as client:
        assert list(client.map([], ordered=ordered)) == []


def test_a_window_below_one_is_refused(settings: Settings) -> None:
    with Client(settings=settings) as client, pytest.raises(ValueError, match=r"window .* \(got 0\)"):
        list(client.map(numbered(1), window=0))


def test_a_batch_does_not_sleep_until_tomorrow(settings: Settings) -> None:
    """The day's money is spent: the caller hears of it at once."""
    specs = [JobSpec(code=str(number), plan="freemium", max_cost_micros=300) for number in range(3)]
    with Client(settings=settings) as client:
        account = client._ledger.keys.account("default")
        day = int(client._redis.time()[0]) // 86400
        for one in (day, day + 1):  # midnight may come meanwhile
            client._redis.hset(account, f"{one}.spent", 49_900)
        with pytest.raises(BudgetExceeded, match="cost_per_day"):
            list(client.map(specs))
        assert client._redis.hget(account, f"{day}.runs") is None


@pytest.mark.parametrize("ordered", [True, False])
def test_bad_spec_is_the_error_of_its_place_and_no_accepted_job_is_lost(
    settings: Settings, ordered: bool
) -> None:
    specs = numbered(20)
    specs[11] = JobSpec(code="pass", image="windows")
    with FakeWorker(settings), Client(settings=settings) as client:
        results = list(client.map(specs, ordered=ordered, window=8))
    errors = [(at, result) for at, result in enumerate(results) if not isinstance(result, JobResult)]
    assert [type(error) for _, error in errors] == [InvalidJob]
    assert "windows" in str(errors[0][1])
    assert errors[0][0] == 11 or not ordered
    outputs = {result.stdout for result in results if isinstance(result, JobResult)}
    assert outputs == {str(number) for number in range(20) if number != 11}


@pytest.mark.parametrize("ordered", [True, False])
def test_error_of_the_iterable_comes_after_the_results_of_accepted_jobs(
    settings: Settings, ordered: bool
) -> None:
    def specs() -> Iterator[JobSpec]:
        yield from numbered(5)
        raise OSError("the file of specs ended early")

    seen: list[str] = []
    with FakeWorker(settings), Client(settings=settings) as client, pytest.raises(OSError, match="early"):
        for result in ended(client.map(specs(), ordered=ordered)):
            seen.append(result.stdout)
    assert sorted(seen) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("ordered", [True, False])
def test_budget_that_ends_a_batch_comes_after_the_results_of_accepted_jobs(
    settings: Settings, ordered: bool
) -> None:
    seen: list[JobResult | CellblockError] = []
    with FakeWorker(settings), Client(settings=settings) as client:

        def spends_all() -> Iterator[JobSpec]:
            yield from numbered(3)
            account = client._ledger.keys.account("default")
            day = int(client._redis.time()[0]) // 86400
            for each in (day, day + 1):  # midnight may come meanwhile
                client._redis.hset(account, f"{each}.spent", 49_900)
            yield JobSpec(code="1", plan="freemium", max_cost_micros=300)

        with pytest.raises(BudgetExceeded):
            for result in client.map(spends_all(), ordered=ordered):
                seen.append(result)
    assert len(list(ended(seen))) == 3


def waiting(client: Client) -> set[str]:
    """The ids of jobs that have not ended."""
    events = client.events(limit=10_000)
    return {event.job_id for event in events} - {event.job_id for event in events if event.terminal}


@pytest.mark.parametrize("ordered", [True, False])
def test_leaving_the_loop_cancels_the_jobs_that_have_not_started(
    settings: Settings, ledger: Ledger, ordered: bool
) -> None:
    with Client(settings=settings) as client:
        for result in client.map(first_ends(client, ledger, numbered(500)), ordered=ordered, window=50):
            assert isinstance(result, JobResult)
            break
        (running,) = waiting(client)
        assert client.status(running).state is JobState.RUNNING, "it ends by itself"


def first_ends(client: Client, ledger: Ledger, specs: list[JobSpec]) -> Iterator[JobSpec]:
    """The specs. Once ten jobs wait, the first ends, and the second runs."""
    for number, spec in enumerate(specs):
        yield spec
        if number == 9:
            first, second, *_ = redis_order(client)
            finish(ledger, claim(ledger, first))
            claim(ledger, second)


def redis_order(client: Client) -> list[str]:
    """The ids of queued jobs, oldest first."""
    return [event.job_id for event in client.events(limit=1000) if event.type == "agent.run.queued"]


def test_leaving_the_loop_leaves_the_jobs_going_where_the_caller_says_so(settings: Settings) -> None:
    with (
        FakeWorker(settings, lambda ids: ids[:1] if len(ids) > 5 else []),
        Client(settings=settings) as client,
    ):
        results = client.map(numbered(20), window=10, cancel_waiting=False)
        next(results)
        results.close()
        assert not any(event.outcome == "cancelled" for event in client.events(limit=1000))


def test_leaving_the_loop_cancels_no_job_that_others_may_wait_for(settings: Settings) -> None:
    specs = [JobSpec(code="1"), JobSpec(code="2", idempotency_key="order-7"), JobSpec(code="3")]
    with Client(settings=settings) as client:
        theirs = client.submit(specs[1])
        batch = client.batch(window=5)
        results = batch.run(specs, ordered=True)
        thread = threading.Thread(target=lambda: list(results))
        thread.start()
        wait_until(lambda: len(waiting(client)) == 3, what="all three being submitted")
        batch.stop()
        thread.join(10)
        assert not thread.is_alive()
        assert waiting(client) == {theirs.id}


def test_cancelled_task_of_an_async_batch_cancels_the_jobs_that_have_not_started(settings: Settings) -> None:
    async def run() -> set[str]:
        async with AsyncClient(settings=settings) as client:

            async def take() -> None:
                async with aclosing(client.map(numbered(30), window=10)) as results:
                    async for _ in results:
                        pass

            task = asyncio.create_task(take())
            while len(await client.events(limit=1000)) < 10:
                await asyncio.sleep(0.01)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            return {event.type for event in await client.events(limit=1000) if event.terminal}

    assert asyncio.run(run()) == {"agent.run.cancelled"}
    with Client(settings=settings) as client:
        assert waiting(client) == set()


@pytest.mark.parametrize("ordered", [True, False])
def test_lost_store_ends_the_batch_with_its_error(ordered: bool) -> None:
    with (
        Client(f"redis://127.0.0.1:{free_port()}/0") as client,
        pytest.raises(StoreUnavailable),
    ):
        list(client.map(numbered(2), ordered=ordered))


@pytest.mark.parametrize("ordered", [True, False])
def test_the_async_client_maps_the_same(settings: Settings, ordered: bool) -> None:
    async def run() -> list[int]:
        async with AsyncClient(settings=settings) as client:
            results = [r async for r in client.map(numbered(20), ordered=ordered, window=4)]
            return [int(result.stdout) for result in ended(results)]

    with FakeWorker(settings):
        outputs = asyncio.run(run())
    assert (outputs if ordered else sorted(outputs)) == list(range(20))
