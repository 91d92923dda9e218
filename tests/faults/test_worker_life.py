"""A worker's life: asked to stop a job, told to end, frozen and thawed, deaf, before a strange store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.error import HTTPError

import pytest
from redis import Redis

from cellblock import JobSpec, JobState, Outcome
from cellblock.ledger import Keys
from faults.one_host import LONG, Host, one_host
from parts import NAMESPACES, free_port, wait_until, worker_process

pytestmark = pytest.mark.no_rerun


@pytest.fixture
def host(tmp_path: Path, redis_url: str) -> Iterator[Host]:
    with one_host(tmp_path, redis_url) as opened:
        yield opened


def test_a_cancelled_running_job_is_dead_within_two_seconds_and_shows_what_it_printed(host: Host) -> None:
    with host.worker(CELLBLOCK_LEDGER_BEAT_S="3", CELLBLOCK_LEDGER_LEASE_S="10"):
        for _ in range(3):
            job = host.begun()
            asked = time.monotonic()
            assert job.cancel() == "requested"
            assert job.cancel() in {"requested", "terminal"}
            result = job.result(timeout_s=10)
            took_s = time.monotonic() - asked
            assert (result.outcome, result.stdout) == (Outcome.CANCELLED, "begun\n")
            assert took_s < 2, "well before the next beat"
            wait_until(lambda: host.sandboxes() == 0, 2, "its sandbox being gone")


@pytest.mark.long("a worker waits for its jobs")
def test_term_lets_short_jobs_finish_and_gives_long_ones_back_uncounted(host: Host) -> None:
    with host.worker("first", CELLBLOCK_WORKER_DRAIN_S="3") as first:
        long = host.begun()
        short = host.begun(JobSpec(code="import time; time.sleep(1.5); print('done')"))
        first.terminate()
        began = time.monotonic()
        assert first.wait(timeout=20) == 0
        assert 2 < time.monotonic() - began < 10
    assert short.result(timeout_s=1).stdout == "done\n"
    assert short.status().attempt == 1
    status = long.status()
    assert (status.state, status.losses) == (JobState.QUEUED, 0)
    assert host.sandboxes() == 0
    with host.worker("second"):
        wait_until(lambda: long.status().state is JobState.RUNNING, 10, "the next worker taking it")
        long.cancel()
        assert long.result(timeout_s=10).attempt == 2


@pytest.mark.parametrize("signals", [[signal.SIGQUIT], [signal.SIGTERM, signal.SIGTERM]])
def test_quit_or_a_second_term_gives_everything_back_at_once(
    host: Host, signals: list[signal.Signals]
) -> None:
    with host.worker() as worker:
        jobs = [host.begun() for _ in range(2)]
        began = time.monotonic()
        for number in signals:
            worker.send_signal(number)
            time.sleep(0.3)
        assert worker.wait(timeout=10) == 0
        assert time.monotonic() - began < 5
    found = [(job.status().state, job.status().losses, job.status().attempt) for job in jobs]
    assert found == [(JobState.QUEUED, 0, 1)] * 2, "and does not claim again what it gives back"
    assert host.client._ledger.figures.workers() == {}, "it has signed off"
    assert host.sandboxes() == 0
    for job in jobs:
        assert job.cancel() == "cancelled"


@pytest.mark.long("waits for leases to run out")
def test_a_frozen_workers_job_runs_elsewhere_and_what_it_then_says_is_refused(host: Host) -> None:
    code = "import time\nprint('begun', flush=True)\ntime.sleep(4)\nprint('done')"
    with host.worker("first") as frozen:
        job = host.begun(JobSpec(code=code))
        frozen.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        try:
            wait_until(lambda: host.sandboxes() == 0, 10, "the stale sandbox being destroyed")
            print(f"its sandbox was gone {time.monotonic() - stopped:.1f} s after it froze")
            with host.worker("second"):
                result = job.result(timeout_s=20)
        finally:
            frozen.send_signal(signal.SIGCONT)
        assert (result.outcome, result.attempt) == (Outcome.OK, 2)
        # It finds its lease lost or its sandbox gone, whichever it looks at first.
        words = ("lease_lost", "finish_refused")
        wait_until(
            lambda: any(word in host.log("first") for word in words), 10, "the thawed worker giving up"
        )
        assert host.client.submit(JobSpec(code="print(1)")).result(timeout_s=20).stdout == "1\n", (
            "it serves on"
        )
    assert [
        event.type for event in host.client.events(limit=100) if event.terminal and event.job_id == job.id
    ] == ["agent.run.succeeded"]


def check(host: Host, *arguments: str) -> tuple[int, dict[str, object]]:
    """What ``cellblock worker --check`` answers."""
    done = subprocess.run(
        [Path(sys.executable).with_name("cellblock"), "worker", "--check", "--json", *arguments],
        env={**os.environ, "CELLBLOCK_REDIS_URL": host.url},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


def get(port: int, path: str = "/health") -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.long("a worker stays deaf for a while")
def test_health_is_consumption(host: Host) -> None:
    port = free_port()
    settings = {
        "CELLBLOCK_WORKER_HEALTH_PORT": str(port),
        "CELLBLOCK_WORKER_SILENT_S": "1",
        # Injected: it beats in one place and listens in another, so it never hears of a job.
        "CELLBLOCK_REDIS_BROKER_URL": host.url.removesuffix("/0") + "/1",
        "CELLBLOCK_LEDGER_REPUBLISH_AFTER_S": "3600",
    }
    assert check(host)[0] == 1, "no worker at all"
    with host.worker(**settings) as worker:
        assert get(port)[0] == 200
        assert get(port, "/")[0] == 404
        assert check(host, "--silent", "1")[0] == 0
        host.client.submit(LONG)
        wait_until(lambda: get(port)[0] == 503, 10, "the worker being found deaf")
        code, said = check(host, "--silent", "1")
        assert code == 1
        assert "nothing was claimed here for 1 s" in str(said["reason"])
        assert worker.poll() is None


def test_a_store_of_another_version_is_refused_by_name(host: Host) -> None:
    with closing(Redis.from_url(host.url)) as redis:
        redis.set(Keys("{cellblock}").schema, 99)
    with worker_process(host.folder, host.url, host.socket, **NAMESPACES) as worker:
        assert worker.wait(timeout=20) == 4
    log = (host.folder / "worker.log").read_text()
    assert "schema 99" in log
    assert "KEY_PREFIX" in log
