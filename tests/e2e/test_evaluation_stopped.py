"""``cellblock eval`` that is stopped at any moment: no job goes on, and no sample that ended runs again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from cellblock import Client, JobSpec
from cellblock.contract.evaluations import TrialVerdict
from e2e.test_ctrl_c import SlowAnswers
from e2e.test_evaluate_cli import PROBLEM, results, write
from parts import CELLBLOCK, NAMESPACES, RedisServer, cellblock, launcher_process, wait_until, worker_process

NUMBERS = [signal.SIGTERM, signal.SIGINT]
SAMPLES = 120
STOPS = 20


@pytest.fixture
def fleet(tmp_path: Path, own_redis: RedisServer) -> Iterator[Client]:
    """A client of a fleet whose store has no other jobs."""
    with (
        launcher_process(tmp_path, **NAMESPACES) as (socket, _),
        worker_process(tmp_path, own_redis.url, socket),
        Client(own_redis.url) as client,
    ):
        yield client


def command(folder: Path, seconds: float = 0.05) -> list[str]:
    """An evaluation of samples that are all different."""
    body = f"    time.sleep({seconds})\n    return 2 * x"
    rows = [{"task_id": "f", "completion": f"{body} + {n} - {n}\n"} for n in range(SAMPLES)]
    samples = write(folder / "samples.jsonl", rows)
    problems = write(folder / "problems.jsonl", [PROBLEM])
    return ["eval", samples, "--problems", problems, "--out", str(folder / "out"), "--batch", "3", "--json"]


def job_ids(client: Client) -> set[str]:
    """Every job that was ever accepted."""
    return {event.job_id for event in client.events(limit=10_000) if event.job_id}


def judged(client: Client) -> int:
    """How many samples have ended, and cost money, in all jobs that there were."""
    found = (client.result(job_id, timeout_s=30) for job_id in job_ids(client))
    return sum(trial.verdict is not TrialVerdict.UNJUDGED for one in found for trial in one.trials)


def _has_begun(client: Client, known: set[str], process: subprocess.Popen[str]) -> bool:
    return job_ids(client) != known or process.poll() is not None


@pytest.mark.long("twenty commands, one after the other")
@pytest.mark.timeout(400)
def test_evaluation_stopped_at_many_moments_runs_each_sample_once(fleet: Client, tmp_path: Path) -> None:
    line, environment = command(tmp_path), {**os.environ, "CELLBLOCK_REDIS_URL": own_url(fleet)}
    for number in range(STOPS):
        known = job_ids(fleet)
        with subprocess.Popen(
            [CELLBLOCK, *line], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            wait_until(partial(_has_begun, fleet, known, process), 30, "a first job")
            time.sleep(0.017 * number)
            process.send_signal(NUMBERS[number % 2])
            _, said = process.communicate(timeout=60)
        if process.returncode == 0:
            break
        assert process.returncode == 128 + NUMBERS[number % 2], said
        counts = fleet.counts()
        assert counts.waiting + counts.running + counts.delayed == 0, f"stop {number}: a job goes on: {said}"
        assert judged(fleet) == len(results(tmp_path / "out")), f"stop {number}: {said}"
        assert "judged and kept" in said
    done = cellblock(*line, CELLBLOCK_REDIS_URL=own_url(fleet))
    assert json.loads(done.stdout)["verdicts"] == {"passed": SAMPLES}, done.stderr
    assert judged(fleet) == SAMPLES, "some ran twice"


def own_url(client: Client) -> str:
    """The address of a client's Redis."""
    url = client._settings.redis.url
    assert url is not None
    return url.get_secret_value()


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("mark", ["return 2 * x", "cellblock.run", "SUBSCRIBE"])
def test_evaluation_stopped_while_a_job_is_submitted_leaves_none_going(
    own_redis: RedisServer, tmp_path: Path, mark: str, number: signal.Signals
) -> None:
    """Stopped while the answer to the admission is on its way, and that to the wake-up."""
    with (
        closing(SlowAnswers(own_redis, mark.encode())) as slow,
        Client(own_redis.url) as client,
        subprocess.Popen(
            [CELLBLOCK, *command(tmp_path), "--level", "permissive"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "CELLBLOCK_REDIS_URL": slow.url},
        ) as process,
    ):
        wait_until(slow.asked.is_set, 40, "the job being submitted")
        process.send_signal(number)
        _, printed = process.communicate(timeout=30)
        assert process.returncode == 128 + number, printed
        assert {client.status(job_id).state for job_id in job_ids(client)} == {"cancelled"}
    assert f"0 of {SAMPLES} samples are judged and kept" in printed


@pytest.mark.parametrize("number", NUMBERS)
def test_evaluation_that_waits_for_room_is_stopped_at_once(
    own_redis: RedisServer, tmp_path: Path, number: signal.Signals
) -> None:
    """Injected: a store in which nothing finds room."""
    full = {"CELLBLOCK_REDIS_URL": own_redis.url, "CELLBLOCK_LEDGER_QUEUE_DEPTH": "1"}
    with Client(own_redis.url) as client:
        client.submit(JobSpec(code="1"))
        with subprocess.Popen(
            [CELLBLOCK, *command(tmp_path)], env={**os.environ, **full}, stderr=subprocess.PIPE, text=True
        ) as process:
            wait_until(lambda: (tmp_path / "out" / "results.jsonl").exists(), 40, "its beginning")
            time.sleep(1.5)
            process.send_signal(number)
            try:
                _, printed = process.communicate(timeout=10)
            finally:
                process.kill()
        assert process.returncode == 128 + number, printed
        assert len(job_ids(client)) == 1
