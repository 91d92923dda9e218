"""What a person who waits for a job is told about what the job waits for."""

from __future__ import annotations

from contextlib import closing

import pytest
from redis import Redis

from cellblock import Client, JobSpec
from parts import cellblock


@pytest.mark.parametrize("seconds", ["1", "6"], ids=["before the first words", "after them"])
def test_result_of_a_job_that_no_worker_takes_says_so(redis_url: str, seconds: str) -> None:
    with Client(redis_url) as client:
        job = client.submit(JobSpec(code="print(1)"))
    done = cellblock("result", job.id, "--timeout", seconds, CELLBLOCK_REDIS_URL=redis_url)
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.splitlines() == [
        f"cellblock: job {job.id} still waits for a worker; is one running? (cellblock worker)",
        f"cellblock: job {job.id} has not ended after {seconds} s; it goes on",
    ]


def test_result_of_a_job_that_was_tried_says_that_it_waits_for_another_try(redis_url: str) -> None:
    """Injected: the record of a job whose first attempt was given back."""
    with Client(redis_url) as client, closing(Redis.from_url(redis_url)) as redis:
        job = client.submit(JobSpec(code="print(1)"))
        redis.hset(f"{{cellblock}}:job:{job.id}", "attempt", 1)
    done = cellblock("result", job.id, "--timeout", "1", CELLBLOCK_REDIS_URL=redis_url)
    first = done.stderr.splitlines()[0]
    assert f"job {job.id} waits to be tried again: attempt 1 did not end well" in first
    assert "no worker is running" in first
    assert "still waits for a worker" not in done.stderr


def test_number_of_a_database_that_redis_does_not_have_is_named_with_the_remedy(redis_url: str) -> None:
    done = cellblock("status", CELLBLOCK_REDIS_URL=f"{redis_url.rpartition('/')[0]}/99")
    assert done.returncode == 4
    assert "the number at the end of CELLBLOCK_REDIS_URL names no database of it" in done.stderr
