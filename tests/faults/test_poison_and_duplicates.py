"""A job that kills its worker, a message that comes twice, and a fleet that stops under load."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from redis import Redis

from cellblock import Job, JobSpec, JobState, Outcome
from cellblock.queue import Publisher, queue_key
from cellblock_config import load_settings
from faults.one_host import Host, one_host
from parts import wait_until

pytestmark = [pytest.mark.timeout(120), pytest.mark.no_rerun]


@pytest.fixture
def host(tmp_path: Path, redis_url: str) -> Iterator[Host]:
    with one_host(tmp_path, redis_url) as opened:
        yield opened


def _runs(job: Job, attempt: int) -> bool:
    status = job.status()
    return (status.state, status.attempt) == (JobState.RUNNING, attempt)


@pytest.mark.long("waits for leases to run out, three times")
def test_a_job_that_kills_its_worker_each_time_ends_and_the_fleet_goes_on(host: Host) -> None:
    """Injected: whenever that job runs, its worker is killed, as a defect of ours would do it."""
    settings = {"CELLBLOCK_LEDGER_LOSS_BACKOFF_S": "[0]"}
    poison = host.client.submit(JobSpec(code="import time; time.sleep(30)"))
    for number in range(3):
        with host.worker(f"victim{number}", **settings) as worker:
            wait_until(lambda number=number: _runs(poison, number + 1), 20, "the poison running")  # type: ignore[misc]
            worker.send_signal(signal.SIGKILL)
            worker.wait()
            if number == 0:
                honest = host.client.submit(JobSpec(code="print('fine')"))
    with host.worker("last", **settings):
        result = poison.result(timeout_s=30)
        assert honest.result(timeout_s=30).stdout == "fine\n"
        assert (result.outcome, result.evidence) == (Outcome.WORKER_LOST, {"losses": 3})
        (letter,) = host.client.dead()
        assert [past.why for past in letter.attempts] == ["lost", "lost", "worker_lost"]
        assert host.client.submit(JobSpec(code="print(1)")).result(timeout_s=20).stdout == "1\n"


def test_a_message_that_comes_again_and_again_starts_its_job_once(host: Host) -> None:
    with host.worker(), closing(Redis.from_url(host.url)) as redis:
        settings = load_settings(redis={"url": host.url})
        job = host.client.submit(JobSpec(code="import time; time.sleep(1.5); print('once')"))
        for _ in range(10):  # before, while and after it runs
            Publisher(redis, settings).publish([job.id])
            time.sleep(0.25)
        assert job.result(timeout_s=20).stdout == "once\n"
        wait_until(lambda: redis.llen(queue_key(settings)) == 0, 10, "every copy being taken")
    kinds = Counter(event.type for event in host.client.events(limit=100))
    assert kinds == {"agent.run.queued": 1, "agent.run.started": 1, "agent.run.succeeded": 1}


@pytest.mark.parametrize(
    "how",
    [
        [signal.SIGTERM],
        *(
            pytest.param(signals, marks=pytest.mark.long("a worker stops in each way"))
            for signals in ([signal.SIGTERM, signal.SIGTERM], [signal.SIGQUIT])
        ),
    ],
)
def test_a_worker_that_stops_under_load_counts_no_loss(host: Host, how: list[signal.Signals]) -> None:
    jobs = [
        host.client.submit(JobSpec(code="import time; time.sleep(0.4); print('done')")) for _ in range(40)
    ]
    with host.worker("first", CELLBLOCK_WORKER_DRAIN_S="1") as first:
        wait_until(
            lambda: host.client._ledger.reads.settled([job.id for job in jobs]), 20, "the first one ending"
        )
        for number in how:
            first.send_signal(number)
            time.sleep(0.3)
        assert first.wait(timeout=20) == 0
    assert host.client._ledger.figures.running() == 0
    assert host.sandboxes() == 0
    with host.worker("second"):
        assert {job.result(timeout_s=60).stdout for job in jobs} == {"done\n"}
    assert {job.status().losses for job in jobs} == {0}
    ended = Counter(event.job_id for event in host.client.events(limit=1000) if event.terminal)
    assert set(ended.values()) == {1}
    assert len(ended) == 40
