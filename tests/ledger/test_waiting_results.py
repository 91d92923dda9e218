"""Long results that wait for room in a full store: they hold threads of their worker, and not all of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
from redis import Redis

from cellblock import JobResult
from cellblock.ledger import Claim, Ledger, connect
from cellblock.ledger.pressure import TAKES_LARGE_BELOW
from cellblock_config import load_settings
from cellblock_workers.launcher.client import LauncherClient
from cellblock_workers.lease import Heart, Lease
from cellblock_workers.worker.reaper import Reaper
from cellblock_workers.worker.runner import JobRunner
from ledger.kit import admit, lead, result_of
from ledger.test_full_store import fill_to, here
from parts import wait_until

pytestmark = pytest.mark.no_rerun

THREADS = 8
LONG = "x" * 100_000


class Worker:
    """A worker's threads and its runner; in place of its sandboxes, programs that say a lot, or nothing."""

    def __init__(self, redis_url: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
        settings = load_settings(
            redis={"url": redis_url}, worker={"concurrency": THREADS}, ledger={"lease_s": 600}
        )
        self.redis: Redis = connect(settings)
        self.ledger = Ledger(self.redis, settings)
        self.launcher = LauncherClient(folder / "nowhere.sock", timeout_s=1)
        heart = Heart(self.ledger, "worker", settings.ledger, lambda: {"state": "ready"})
        self.runner = JobRunner(
            self.ledger,
            self.launcher,
            heart,
            settings,
            worker="worker",
            on_wake=lambda wakes: None,
            on_unavailable=lambda reason: None,
        )
        patch.setattr(self.runner, "_run", self._run)
        self.threads = ThreadPoolExecutor(THREADS)

    @staticmethod
    def _run(claim: Claim, _: Lease) -> JobResult:
        return result_of(claim, stdout="" if claim.manifest.code == "pass" else LONG)

    def admit(self, tenant: str, count: int, code: str = "print('x' * 100_000)") -> list[str]:
        """Jobs of this tenant that wait."""
        return [admit(self.ledger, f"{tenant}{number}", tenant=tenant, code=code) for number in range(count)]

    def work(self, *names: str) -> None:
        """A message for each; a thread claims whichever job is next."""
        for name in names:
            self.threads.submit(self.runner.run, name)

    def ended(self, names: list[str]) -> list[str]:
        """Those that have ended, with whole results or without."""
        return [name for name in names if self.ledger.reads.status(name).state.terminal]

    def whole(self, names: list[str]) -> list[str]:
        """Those whose whole output is kept."""
        results = {name: self.ledger.reads.result(name) for name in names}
        return [name for name, result in results.items() if result is not None and result.stdout == LONG]


def make_room(worker: Worker) -> None:
    """Injected: the store has no limit any more."""
    worker.ledger._store.settings = worker.ledger._store.settings.model_copy(update={"memory_bytes": 0})
    worker.redis.delete(worker.ledger.keys.pressure)


@pytest.fixture
def worker(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    started = Worker(redis_url, tmp_path, monkeypatch)
    yield started
    make_room(started)
    started.threads.shutdown()
    started.launcher.close()
    started.redis.close()


def test_long_results_of_one_tenant_hold_a_quarter_of_the_threads(worker: Worker) -> None:
    """Another tenant's jobs, claimed in turn with them, end at once."""
    greedy, modest = worker.admit("greedy", 16), worker.admit("modest", 40, code="pass")
    fill_to(worker.ledger, worker.redis, TAKES_LARGE_BELOW + 2)
    worker.work(*greedy, *modest)
    wait_until(lambda: worker.ended(modest) == modest, 20, "the other tenant's jobs")
    wait_until(lambda: len(worker.ended(greedy)) == 14, 10, "the others of the greedy tenant")
    assert worker.whole(greedy) == []
    waiting = sorted(set(greedy) - set(worker.ended(greedy)))
    make_room(worker)
    wait_until(lambda: len(worker.ended(greedy)) == 16, 5, "the results that waited")
    assert worker.whole(greedy) == [name for name in greedy if name in waiting]


def test_long_results_of_all_tenants_hold_half_of_the_threads(worker: Worker) -> None:
    tenants = {tenant: worker.admit(tenant, 3) for tenant in ("a", "b", "c", "d", "e", "f")}
    modest = worker.admit("modest", 20, code="pass")
    every = [name for names in tenants.values() for name in names]
    fill_to(worker.ledger, worker.redis, TAKES_LARGE_BELOW + 2)
    worker.work(*every, *modest)
    wait_until(lambda: worker.ended(modest) == modest, 20, "the modest tenant's jobs")
    wait_until(lambda: len(worker.ended(every)) == 14, 10, "all but four of the others")
    assert all(len(worker.ended(names)) >= 1 for names in tenants.values())


def test_result_that_may_not_wait_says_so(worker: Worker) -> None:
    greedy = worker.admit("greedy", 4)
    fill_to(worker.ledger, worker.redis, TAKES_LARGE_BELOW + 2)
    worker.work(*greedy)
    wait_until(lambda: len(worker.ended(greedy)) == 2, 10, "those beyond the bound")
    result = worker.ledger.reads.result(worker.ended(greedy)[0])
    assert result is not None
    assert result.stdout == LONG[:1024]
    assert "wait for room already" in str(result.evidence["cut_short"])


def test_results_beyond_their_tenants_own_limit_come_whole_as_older_ones_leave(worker: Worker) -> None:
    """Eight at once, beside a leader of the upkeep. Injected: a publisher that sends nothing."""
    ledger = worker.ledger
    before = worker.admit("full", 12)
    worker.work(*before)
    wait_until(lambda: worker.ended(before) == before, 10, "what it keeps already")
    names = [admit(ledger, f"next{number}", tenant="full", code="print()") for number in range(THREADS)]
    fill_to(ledger, worker.redis, 40)
    holds = worker.redis.hmget(ledger.keys.account("full"), "held_bytes", "kept_bytes")
    limit_bytes = ledger._store.settings.memory_bytes
    percent = math.ceil(100 * sum(int(value or 0) for value in holds) / limit_bytes)
    ledger._store.settings = ledger._store.settings.model_copy(update={"tenant_percent": percent})
    leader = Reaper(ledger, Mock(), worker.redis, load_settings(), worker="leader")
    leader.start()
    try:
        worker.work(*names)
        wait_until(lambda: worker.ended(names) == names, 20, "the next results")
    finally:
        leader.stop()
    assert worker.whole(names) == names
    assert len(here(ledger, before)) < len(before)


def test_result_longer_than_its_tenant_may_hold_does_not_wait(worker: Worker) -> None:
    names = worker.admit("narrow", 1)
    fill_to(worker.ledger, worker.redis, 50)
    limits = worker.ledger._store.settings.model_copy(update={"tenant_percent": 1})
    worker.ledger._store.settings = limits
    lead(worker.ledger)
    assert worker.ledger._store.settings.memory_bytes < 100 * len(LONG)
    worker.runner.run(names[0])
    result = worker.ledger.reads.result(names[0])
    assert result is not None
    assert result.stdout == LONG[:1024]
    assert "CELLBLOCK_LEDGER_TENANT_PERCENT" in str(result.evidence["cut_short"])
