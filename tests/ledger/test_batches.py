"""Client.map: batches of any size, at most a window in flight, in order or as they end.

A fake worker thread ends the jobs through the ledger; no sandbox and no broker consumer take part.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest

from cellblock import AsyncClient, BudgetExceeded, Client, InvalidJob, JobResult, JobSpec, StoreUnavailable
from cellblock_config import Settings
from ledger.kit import FakeWorker
from parts import free_port

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


def hold_back_first(waiting: list[str]) -> list[str]:
    """End the newest waiting jobs; the oldest only when it is alone."""
    return waiting[1:] if len(waiting) > 1 else []


@pytest.mark.parametrize("ordered", [True, False])
def test_every_job_of_a_batch_has_one_result(settings: Settings, ordered: bool) -> None:
    with FakeWorker(settings), Client(settings=settings) as client:
        results = list(client.map(numbered(60), ordered=ordered, window=16))
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
        ended.extend(waiting[1:])
        return waiting[1:] if len(ended) < 3 or len(waiting) > 1 else waiting

    ended: list[str] = []
    with FakeWorker(settings, first_last), Client(settings=settings) as client:
        results = [result.stdout for result in client.map(numbered(4), window=4)]
    assert len(ended) >= 3
    assert results == ["0", "1", "2", "3"]


def test_unordered_results_do_not_wait_for_the_slow_first(settings: Settings) -> None:
    with FakeWorker(settings, hold_back_first), Client(settings=settings) as client:
        results = client.map(numbered(4), ordered=False, window=4)
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
    seen: list[tuple[int, str]] = []

    def progress(done: int, result: JobResult) -> None:
        seen.append((done, result.stdout))

    with FakeWorker(settings), Client(settings=settings) as client:
        results = list(client.map(numbered(10), ordered=ordered, window=3, progress=progress))
    assert seen == [(number, result.stdout) for number, result in enumerate(results, start=1)]


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
def test_a_wrong_job_or_a_lost_store_ends_the_batch_with_its_error(settings: Settings, ordered: bool) -> None:
    with Client(settings=settings) as client, pytest.raises(InvalidJob, match="windows"):
        list(client.map([JobSpec(code="pass", image="windows")], ordered=ordered))
    with (
        Client(f"redis://127.0.0.1:{free_port()}/0") as client,
        pytest.raises(StoreUnavailable),
    ):
        list(client.map(numbered(2), ordered=ordered))


@pytest.mark.parametrize("ordered", [True, False])
def test_the_async_client_maps_the_same(settings: Settings, ordered: bool) -> None:
    async def run() -> list[int]:
        async with AsyncClient(settings=settings) as client:
            return [int(r.stdout) async for r in client.map(numbered(20), ordered=ordered, window=4)]

    with FakeWorker(settings):
        outputs = asyncio.run(run())
    assert (outputs if ordered else sorted(outputs)) == list(range(20))
