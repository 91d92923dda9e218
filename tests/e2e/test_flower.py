"""Flower shows jobs: 200 of all outcomes, beside what the archive says of them.

Forty run for real. The others are injected: a stand-in claims and finishes them through the ledger, so that
every outcome is there.
"""

from __future__ import annotations

import base64
import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from browser import chromium
from cellblock import Client, JobError, JobSpec, JobState, JobStatus, Limits, Outcome
from cellblock_config import load_settings
from ledger.kit import operation, result_of
from parts import (
    CELLBLOCK,
    NAMESPACES,
    RedisServer,
    cellblock,
    free_port,
    launcher_process,
    wait_until,
    worker_process,
)
from suite.warm import WarmPopen

pytestmark = pytest.mark.way("namespaces")

SHOWN = {
    JobState.SUCCEEDED: "SUCCESS",
    JobState.FAILED: "FAILURE",
    JobState.CANCELLED: "REVOKED",
    JobState.REJECTED: "REJECTED",
}
#: What a page would show of a job whose error is taken for HTML.
HOSTILE = JobError(type="ValueError", message="<img src=x onerror=\"document.title='owned'\">")
STAND_INS = 160


@dataclass(frozen=True)
class Board:
    """A fleet that has run its jobs; ``ended``: what `cellblock jobs list` says of them."""

    port: int
    ended: dict[str, JobStatus] = field(default_factory=dict)
    worker: str = ""  #: the name of the real worker
    while_running: dict[str, Any] = field(default_factory=dict)  #: what it showed while these jobs ran

    def text(self, path: str) -> str:
        """An answer of Flower's."""
        login = base64.b64encode(b"cellblock:observing").decode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}")
        request.add_header("Authorization", f"Basic {login}")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(answer.read().decode())

    def tasks(self, **query: object) -> dict[str, dict[str, Any]]:
        """The tasks of its API."""
        found: dict[str, dict[str, Any]] = json.loads(
            self.text(f"/api/tasks?{urllib.parse.urlencode(query)}")
        )
        return found

    def page(self, folder: Path, path: str, *options: str) -> str:
        """The page as a browser has it when its scripts have run."""
        address = f"http://cellblock:observing@127.0.0.1:{self.port}{path}"
        return chromium(folder, "--virtual-time-budget=8000", *options, "--dump-dom", address).stdout


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    folder = tmp_path_factory.mktemp("flower")
    server = RedisServer(folder, fsync="no")
    archive = f"sqlite:///{folder}/jobs.db"
    with ExitStack() as stack:
        stack.callback(server.stop)
        server.start()
        port = free_port()
        variables = {
            "CELLBLOCK_REDIS_URL": server.url,
            "CELLBLOCK_ARCHIVE_URL": archive,
            "CELLBLOCK_MONITOR_PASSWORD": "observing",
            "CELLBLOCK_MONITOR_PORT": str(port),
        }
        settings = load_settings(
            redis={"url": server.url}, archive={"url": archive}, ledger={"fault_retries": 0}
        )
        client = stack.enter_context(Client(settings=settings))
        stand_in(client)  # before Flower starts: it shows what was before
        for command in ("archiver", "monitor"):
            log = stack.enter_context((folder / f"{command}.log").open("wb"))
            process = WarmPopen([CELLBLOCK, command], env={**os.environ, **variables}, stdout=log, stderr=log)
            stack.callback(process.wait, timeout=30)
            stack.callback(process.terminate)
        (folder / "launcher").mkdir()
        socket, _ = stack.enter_context(launcher_process(folder / "launcher", **NAMESPACES))
        with worker_process(folder, server.url, socket, CELLBLOCK_WORKER_CONCURRENCY="4"):
            board = Board(port)
            while_running = run(client, board)
            ended = wait_until(lambda: listed(variables), 60, "200 jobs in the archive")
            board = replace(board, ended=ended, worker=real_worker(ended), while_running=while_running)
            wait_until(lambda: len(board.tasks(limit=1000)) == len(ended), 30, "Flower showing them all")
            wait_until(lambda: heard_of(board), 30, "a heartbeat of the worker")
            yield board


def stand_in(client: Client) -> None:
    outcomes = list(Outcome)
    for number in range(STAND_INS):
        client.submit(JobSpec(code="pass", tenant=f"tenant{number % 3}"))
        held = client._ledger.claims.claim_next(
            message="", worker=f"stand-in-{number % 2}", operation=operation()
        )
        outcome = outcomes[number % len(outcomes)]
        result = result_of(held, outcome, error=None if outcome is Outcome.OK else HOSTILE)  # type: ignore[arg-type]
        assert client._ledger.finish(held, result, operation()).word == "finished"  # type: ignore[arg-type]


def run(client: Client, board: Board) -> dict[str, Any]:
    """Runs forty jobs. Returns what Flower shows while some of them run."""
    late = [client.submit(JobSpec(code="pass", expires_s=0.05)) for _ in range(2)]
    jobs = [client.submit(JobSpec(code="print(6*7)")) for _ in range(20)]
    jobs += [client.submit(JobSpec(code="1/0")) for _ in range(8)]
    jobs += [client.submit(JobSpec(code="exit(3)")) for _ in range(4)]
    jobs += [client.submit(JobSpec(code="while True: pass", limits=Limits(timeout_s=0.5))) for _ in range(2)]
    for job in [*late, *jobs]:
        job.result(timeout_s=60)
    slow = [client.submit(JobSpec(code="import time; time.sleep(60)")) for _ in range(4)]
    wait_until(lambda: all(job.status().state is JobState.RUNNING for job in slow), 60, "jobs that run")
    tasks = wait_until(lambda: running(board, 4), 30, "Flower showing them")
    worker = slow[0].status().worker
    page = wait_until(lambda: worker_page(board, f"/worker/cellblock@{worker}"), 30, "the worker's page")
    for job in slow:
        job.cancel()
        assert job.result(timeout_s=30).outcome is Outcome.CANCELLED
    return {"jobs": {job.id for job in slow}, "tasks": set(tasks), "page": page}


def running(board: Board, count: int) -> dict[str, dict[str, Any]]:
    try:
        tasks = board.tasks(state="STARTED")
    except OSError:  # it starts
        return {}
    return tasks if len(tasks) == count else {}


def worker_page(board: Board, path: str) -> str:
    try:
        return board.text(path)
    except urllib.error.HTTPError as error:  # the worker has not answered yet
        error.close()
        return ""


def listed(variables: dict[str, str]) -> dict[str, JobStatus]:
    lines = cellblock("jobs", "list", "--all", "--json", **variables).stdout.splitlines()
    found = [JobStatus.model_validate_json(line) for line in lines]
    return {job.job_id: job for job in found} if len(found) == 200 else {}


def real_worker(ended: dict[str, JobStatus]) -> str:
    (name,) = {job.worker for job in ended.values() if job.worker and not job.worker.startswith("stand-in")}
    return str(name)


def heard_of(board: Board) -> bool:
    return f"cellblock@{board.worker}" in board.text("/workers?json=1")


def test_flower_shows_each_job_in_the_state_that_the_archive_has(board: Board) -> None:
    tasks = board.tasks(limit=1000)
    assert tasks.keys() == board.ended.keys()
    for job_id, job in board.ended.items():
        task = tasks[job_id]
        assert (task["state"], task["result"]) == (SHOWN[job.state], job.outcome), job
        assert f"'tenant': '{job.tenant}'" in task["kwargs"]
        assert "'image': 'python'" in task["kwargs"]
        assert task.get("worker") == (f"cellblock@{job.worker}" if job.worker else None)
    assert set(Outcome) == {job.outcome for job in board.ended.values()}


def test_flower_shows_outcome_and_filtered_message_of_a_failure(board: Board) -> None:
    exceptions = Counter(
        task["exception"]
        for task in board.tasks(limit=1000).values()
        if board.worker in str(task.get("worker"))
    )
    assert exceptions["exit: ZeroDivisionError: division by zero"] == 8
    assert exceptions[None] == 20 + 4, "what ended well, and what was cancelled"
    (late,) = {task["exception"] for task in board.tasks(state="REJECTED").values() if not task.get("worker")}
    assert late.startswith("rejected: Expired: Not started in time")


def test_flower_filters_agree_with_the_archive(board: Board) -> None:
    for state, shown in SHOWN.items():
        expected = {job_id for job_id, job in board.ended.items() if job.state is state}
        assert board.tasks(state=shown, limit=1000).keys() == expected, shown
    for outcome in set(Outcome) - {Outcome.OK}:  # a text to look for has three characters or more
        expected = {job_id for job_id, job in board.ended.items() if job.outcome is outcome}
        assert board.tasks(search=f"result:{outcome}", limit=1000).keys() >= expected, outcome
    tenant = {job_id for job_id, job in board.ended.items() if job.tenant == "tenant1"}
    assert board.tasks(search="kwargs:tenant=tenant1", limit=1000).keys() == tenant
    mine = {job_id for job_id, job in board.ended.items() if job.worker == board.worker}
    assert board.tasks(workername=f"cellblock@{board.worker}", limit=1000).keys() == mine


def test_flower_finds_every_job_by_its_id(board: Board) -> None:
    for job_id, job in board.ended.items():
        assert json.loads(board.text(f"/api/task/info/{job_id}"))["state"] == SHOWN[job.state]
        assert list(board.tasks(search=job_id)) == [job_id]


def test_flower_counts_the_jobs_of_a_worker_and_shows_no_other_worker(board: Board) -> None:
    (counts,) = json.loads(board.text("/workers?json=1"))["data"]
    mine = Counter(job.state for job in board.ended.values() if job.worker == board.worker)
    assert counts["hostname"] == f"cellblock@{board.worker}", "a stand-in never sent a heartbeat"
    assert (counts["task-succeeded"], counts["task-failed"]) == (
        mine[JobState.SUCCEEDED],
        mine[JobState.FAILED],
    )
    assert (counts["task-received"], counts["active"]) == (sum(mine.values()), 0)
    (stats,) = [told["stats"] for told in json.loads(board.text("/api/workers?refresh=1")).values()]
    assert stats["total"] == {"cellblock.run": sum(mine.values())}


def test_flower_pages_show_jobs_and_run_nothing_of_theirs(board: Board, tmp_path: Path) -> None:
    listed = board.page(tmp_path, "/tasks")
    assert "of 200 tasks" in listed
    failed = sum(job.state is JobState.FAILED for job in board.ended.values())
    assert f"of {failed} tasks" in board.page(tmp_path, "/tasks?state=FAILURE")
    hostile = next(job_id for job_id, job in board.ended.items() if job.outcome is Outcome.DISK)
    task = board.page(tmp_path, f"/task/{hostile}")
    assert "disk: ValueError: &lt;img src=x" in task
    assert re.search(r"badge[^>]*>\s*FAILURE", task)
    workers = board.page(tmp_path, "/")
    assert f"cellblock@{board.worker}" in workers
    assert "<title>owned" not in listed + task + workers


def test_flower_shows_running_jobs_as_active_on_their_worker(board: Board) -> None:
    assert board.while_running["tasks"] == board.while_running["jobs"]
    page = board.while_running["page"]
    assert set(re.findall(r"/task/([0-9a-f]{32})", page)) == board.while_running["jobs"]
    assert board.tasks(state="STARTED") == {}, "they were cancelled"
