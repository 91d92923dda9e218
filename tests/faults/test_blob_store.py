"""Jobs with long payloads through a real S3 server, also while it is slow or gone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from redis import Redis

from cellblock import BlobsUnavailable, Client, JobSpec, Outcome
from faults.one_host import Host, one_host
from faults.s3_server import S3Server
from parts import NAMESPACES, wait_until, worker_process

pytestmark = [pytest.mark.timeout(150), pytest.mark.no_rerun]

LONG = "y" * 3_000_000
ECHO = JobSpec(
    code="import sys; text = sys.stdin.read(); print(len(text)); result = text[:200_000]", stdin=LONG
)


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    server = S3Server(tmp_path)
    server.start()
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    yield server
    server.stop()


@pytest.fixture
def host(tmp_path: Path, redis_url: str, s3: S3Server) -> Iterator[Host]:
    with one_host(tmp_path, redis_url) as opened:
        yield opened


def test_long_payloads_and_results_go_through_the_blob_store_alone(host: Host, s3: S3Server) -> None:
    with host.worker(), closing(Redis.from_url(host.url)) as redis:
        job = host.client.submit(ECHO)
        assert redis.strlen(host.client._ledger.keys.spec(job.id)) < 5000
        result = job.result(timeout_s=30)
        assert (result.outcome, result.stdout) == (Outcome.OK, "3000000\n")
        assert result.value == LONG[:200_000]
        assert redis.strlen(host.client._ledger.keys.result(job.id)) < 500
        kept = blobs_of(s3)
        assert len(kept) == 3, f"what the worker tried it with, the payload and the result: {kept}"


def test_what_jobs_had_there_is_gone_seconds_after_they_let_go_of_it(host: Host, s3: S3Server) -> None:
    """The payload of a job that ended and that of one that was cancelled; a result stays."""
    with host.worker(CELLBLOCK_WORKER_CONCURRENCY="1"):
        ended = host.client.submit(ECHO)
        assert ended.result(timeout_s=30).ok
        host.begun(JobSpec(code="import time; time.sleep(3)"))
        host.client.submit(ECHO).cancel()
        wait_until(lambda: len(blobs_of(s3)) == 2, 30, "the probe and the result being left")
        assert ended.result(timeout_s=5).value == LONG[:200_000]


def blobs_of(s3: S3Server) -> list[str]:
    """The names of all blobs."""
    return [name for name in s3.names() if len(name) > 60]


def test_a_store_that_is_gone_refuses_long_jobs_and_no_others(host: Host, s3: S3Server) -> None:
    with host.worker() as worker:
        before = host.client.submit(JobSpec(code="import time; time.sleep(3); result = 'z' * 200_000"))
        s3.stop()
        began = time.monotonic()
        with pytest.raises(BlobsUnavailable, match="CELLBLOCK_BLOBS_URL") as refused:
            host.client.submit(ECHO)
        assert time.monotonic() - began < 12
        assert "a-secret-of-tests" not in str(refused.value)
        assert host.client.submit(JobSpec(code="print(1)")).result(timeout_s=30).stdout == "1\n"
        assert before.result(timeout_s=60).value == "z" * 200_000, "its result stays in Redis"
        assert worker.poll() is None
        assert "a-secret-of-tests" not in host.log()


@pytest.mark.long("a store is slow, and waited for")
def test_a_slow_store_costs_a_job_time_and_nothing_else(host: Host, s3: S3Server) -> None:
    with host.worker(CELLBLOCK_WORKER_CONCURRENCY="2"):
        first = host.client.submit(ECHO)
        assert first.result(timeout_s=30).ok
        s3.freeze()
        slow = host.client.submit(JobSpec(code="result = 'w' * 100_000"))  # its result has to wait
        quick = host.client.submit(JobSpec(code="print(2)"))
        assert quick.result(timeout_s=30).stdout == "2\n"
        assert slow.result(timeout_s=60).value == "w" * 100_000
        s3.thaw()
        again = host.client.submit(ECHO)
        assert again.result(timeout_s=30).ok


@pytest.mark.long("a store is away, and waited for")
def test_a_job_waits_for_a_blob_store_that_is_away(host: Host, s3: S3Server) -> None:
    job = host.client.submit(ECHO)
    with host.worker(CELLBLOCK_WORKER_CONCURRENCY="1"):
        assert job.result(timeout_s=30).ok
        host.begun(JobSpec(code="import time; time.sleep(3)"))
        later = host.client.submit(ECHO)  # waits for the one slot, until the store is frozen
        s3.freeze()
        wait_until(lambda: "job_given_back" in host.log(), 30, "the job being given back")
        s3.thaw()
        result = later.result(timeout_s=60)
        assert result.ok
        assert later.status().losses == 0


def test_a_blob_that_is_lost_ends_its_job_by_name_and_nothing_runs(host: Host, s3: S3Server) -> None:
    job = host.client.submit(ECHO)
    s3.stop()
    s3.start()  # and what it held is gone
    with host.worker(CELLBLOCK_LEDGER_FAULT_RETRIES="0"):
        result = job.result(timeout_s=30)
        assert result.outcome is Outcome.SANDBOX_ERROR
        assert result.isolation is None
        assert result.error is not None
        manifest = host.client._ledger._store.redis.get(host.client._ledger.keys.spec(job.id))
        digest = result.error.message.partition("blob ")[2].partition(":")[0]
        assert len(digest) == 64
        assert digest in str(manifest)


def test_a_worker_that_cannot_use_the_store_says_which_setting(
    tmp_path: Path, redis_url: str, s3: S3Server
) -> None:
    with one_host(tmp_path, redis_url) as host:
        folder = tmp_path / "worker"
        folder.mkdir()
        with worker_process(
            folder, redis_url, host.socket, **NAMESPACES, CELLBLOCK_BLOBS_URL="s3://no-such-bucket"
        ):
            wait_until(lambda: "waiting_for_the_blob_store" in host.log(), 30, "the worker saying it")
        assert "CELLBLOCK_BLOBS_URL" in host.log()
        assert "a-secret-of-tests" not in host.log()


def test_a_fleet_with_a_wrong_address_is_told_at_once(redis_url: str, s3: S3Server) -> None:
    with Client(redis_url) as client:
        s3.stop()
        with pytest.raises(BlobsUnavailable):
            client.submit(ECHO)
