"""What a Redis does to a fleet: dies and comes back, pauses, hangs up."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from redis import Redis

from cellblock import Job, JobSpec, JobState, Outcome, StoreFull, StoreUnavailable
from faults.one_host import Host, one_host
from parts import RedisServer, wait_until

pytestmark = [pytest.mark.timeout(150), pytest.mark.no_rerun]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    (tmp_path / "redis").mkdir()
    own = RedisServer(tmp_path / "redis")
    own.start()
    yield own
    own.stop()


@pytest.fixture
def host(tmp_path: Path, server: RedisServer) -> Iterator[Host]:
    with one_host(tmp_path, server.url) as opened:
        yield opened


def ends(host: Host) -> dict[str, str]:
    """Which event ended which job."""
    return {event.job_id: event.type for event in host.client.events(limit=10_000) if event.terminal}


def end_once(host: Host, jobs: list[Job]) -> None:
    """All of them, well, with one terminal event each, and nothing left in the indices."""
    assert {job.result(timeout_s=60).outcome for job in jobs} == {Outcome.OK}
    ended = Counter(event.job_id for event in host.client.events(limit=10_000) if event.terminal)
    assert ended == Counter({job.id: 1 for job in jobs})
    assert (host.client._ledger.figures.depth(), host.client._ledger.figures.running()) == (0, 0)


LEASES = pytest.mark.long("waits for leases to run out")


def ended(host: Host, jobs: list[Job]) -> int:
    return len(host.client._ledger.reads.settled([job.id for job in jobs]))


@LEASES
def test_a_killed_store_that_comes_back_costs_no_job_and_the_workers_go_on(
    host: Host, server: RedisServer
) -> None:
    with host.worker(CELLBLOCK_WORKER_CONCURRENCY="4"):
        jobs = [host.client.submit(JobSpec(code="import time; time.sleep(0.5)")) for _ in range(40)]
        wait_until(lambda: ended(host, jobs) > 4, 30, "some ending")
        server.stop()
        with pytest.raises(StoreUnavailable):
            host.client.submit(JobSpec(code="1"))
        time.sleep(2)
        server.start()
        back = time.monotonic()
        before = len(host.client._ledger.reads.settled([job.id for job in jobs]))
        wait_until(
            lambda: len(host.client._ledger.reads.settled([job.id for job in jobs])) > before + 4, 30, "more"
        )
        print(f"they consume again {time.monotonic() - back:.1f} s after the store came back")
        end_once(host, jobs)


@pytest.mark.parametrize(("pause_s", "attempts"), [(1.5, {1}), pytest.param(6.0, {1, 2}, marks=LEASES)])
def test_a_store_that_pauses_costs_nothing_below_a_lease_and_one_attempt_above(
    host: Host, server: RedisServer, pause_s: float, attempts: set[int]
) -> None:
    with host.worker(CELLBLOCK_WORKER_CONCURRENCY="4"):
        jobs = [host.client.submit(JobSpec(code="import time; time.sleep(4)")) for _ in range(4)]
        wait_until(lambda: host.client._ledger.figures.running() == 4, 20, "all of them running")
        with closing(Redis.from_url(server.url)) as redis:
            redis.client_pause(round(pause_s * 1000))
        time.sleep(pause_s)
        end_once(host, jobs)
        found = {job.result(timeout_s=1).attempt for job in jobs}
        assert found <= attempts
        assert {job.status().losses for job in jobs} == {0}, "what they stopped themselves they gave back"


@pytest.mark.long("connections are cut a dozen times")
def test_connections_that_are_cut_again_and_again_cost_nothing(host: Host, server: RedisServer) -> None:
    with host.worker(CELLBLOCK_WORKER_CONCURRENCY="4"):
        jobs = []
        with closing(Redis.from_url(server.url)) as redis:
            for _ in range(12):
                jobs += [host.client.submit(JobSpec(code="import time; time.sleep(0.3)")) for _ in range(2)]
                for kind in ("normal", "pubsub"):
                    redis.client_kill_filter(_type=kind, skipme=True)
                time.sleep(0.4)
        end_once(host, jobs)


def test_a_running_job_is_cancelled_in_time_although_the_control_channel_was_cut(
    host: Host, server: RedisServer
) -> None:
    with host.worker():
        job = host.begun()
        with closing(Redis.from_url(server.url)) as redis:
            redis.client_kill_filter(_type="pubsub", skipme=True)
        assert job.cancel() == "requested"
        wait_until(lambda: job.status().state is JobState.CANCELLED, 5, "the next beat bringing the word")


def test_a_worker_starts_in_a_store_that_is_full_and_its_jobs_end(host: Host, server: RedisServer) -> None:
    """Whatever Celery's transport asks for then is answered: no transaction, no table, no acknowledgement."""
    jobs = [host.client.submit(JobSpec(code=f"print({number})")) for number in range(5)]
    with closing(Redis.from_url(server.url)) as redis:
        redis.config_set("maxmemory", "800kb")  # less than it uses with nothing in it
        with pytest.raises(StoreFull):
            host.client.submit(JobSpec(code="1"))
        with host.worker():  # results leave such a store as soon as they are there: events say how jobs ended
            wait_until(lambda: len(ends(host)) == len(jobs), 30, "all of them ending")
        assert ends(host) == {job.id: "agent.run.succeeded" for job in jobs}
        assert "OutOfMemory" not in host.log()
