"""Jobs while the archive, the blob store and Redis are killed in turn: each ends once, and is archived.

Run by tests/faults/test_store_chaos.py in a short form. By itself (``python -m faults.store_chaos 2000``) it
prints one JSON line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cellblock import CallerError, Client, JobSpec, OperatorError, Outcome
from cellblock_config import load_settings
from faults.gate import Gate
from faults.one_host import QUICK
from faults.postgres import Postgres
from faults.s3_server import S3Server
from parts import NAMESPACES, RedisServer, launcher_process, wait_until, worker_process

LONG = "z" * 60_000
DOWN_S, UP_S = 3.0, 5.0


class Stores:
    """The three servers, and each one's death."""

    def __init__(self, folder: Path) -> None:
        for name in ("redis", "postgres", "s3"):
            (folder / name).mkdir()
        self.redis = RedisServer(folder / "redis")
        self.postgres = Postgres(folder / "postgres")
        self.s3 = S3Server(folder / "s3")
        self.gate: Gate | None = None
        self.killed: list[str] = []

    def start(self) -> dict[str, str]:
        """Start them. Returns the variables that their users need."""
        self.redis.start()
        self.postgres.create()
        self.postgres.start()
        self.s3.start()
        self.gate = Gate(self.s3.port)
        self.gate.open()
        return {
            **self.s3.variables,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.gate.port}",
            "CELLBLOCK_BLOBS_TIMEOUT_S": "2",
            "CELLBLOCK_ARCHIVE_URL": self.postgres.url,
            "CELLBLOCK_REDIS_URL": self.redis.url,
        }

    def stop(self) -> None:
        """End them."""
        if self.gate is not None:
            self.gate.shut()
        for server in (self.redis, self.postgres, self.s3):
            server.stop()

    def kill_in_turn(self, until: threading.Event) -> None:
        """One after the other, each for a while. S3, whose blobs are in memory, is only cut off."""
        assert self.gate is not None, "started"
        deaths = {
            "archive": (self.postgres.stop, self.postgres.start),
            "blobs": (self.gate.shut, self.gate.open),
            "redis": (self.redis.stop, self.redis.start),
        }
        for name in cycle(deaths):
            if until.wait(UP_S):
                return
            kill, revive = deaths[name]
            self.killed.append(name)
            kill()
            until.wait(DOWN_S)
            revive()


def spec_of(number: int) -> JobSpec:
    """Every fourth has a long payload, and says as much."""
    long = number % 4 == 0
    code = "import sys; print(len(sys.stdin.read()))" + ("; result = 'r' * 60_000" if long else "")
    return JobSpec(code=code, stdin=LONG if long else "", idempotency_key=f"chaos-{number}")


def submit_all(client: Client, jobs: int) -> list[str]:
    """Ids of all; what is refused while a store is away is asked again by its key."""
    accepted = []
    for number in range(jobs):
        while True:
            try:
                accepted.append(client.submit(spec_of(number)).id)
                break
            except (OperatorError, CallerError):
                time.sleep(0.2)
    return accepted


@contextmanager
def fleet(folder: Path, variables: dict[str, str]) -> Iterator[None]:
    """A launcher, two workers and an archiver."""
    url = variables["CELLBLOCK_REDIS_URL"]
    with ExitStack() as stack:
        socket, _ = stack.enter_context(launcher_process(folder, **NAMESPACES))
        for name in ("one", "two"):
            (folder / name).mkdir()
            stack.enter_context(
                worker_process(folder / name, url, socket, **{**NAMESPACES, **QUICK, **variables})
            )
        stack.enter_context(archiver_process(folder, {**QUICK, **variables}))
        yield


@contextmanager
def archiver_process(folder: Path, variables: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """An archiver; its log is ``archiver.log`` in the folder."""
    with (folder / "archiver.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "cellblock_workers.archiver"],
            env={**os.environ, **variables},
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=30)


def run(folder: Path, jobs: int, least_s: float = 30) -> dict[str, Any]:
    """Push the jobs through while stores die. Raises AssertionError for a job that is lost, or ends twice."""
    stores, over = Stores(folder), threading.Event()
    began = time.monotonic()
    try:
        variables = stores.start()
        retried = {**variables, "CELLBLOCK_LEDGER_FAULT_RETRIES": "5"}
        with (
            patch.dict(os.environ, retried),  # taken back: whatever runs next in this process has none of it
            fleet(folder, retried),
            Client(settings=load_settings()) as client,
        ):
            killer = threading.Thread(target=stores.kill_in_turn, args=(over,))
            killer.start()
            try:
                accepted = submit_all(client, jobs)
                while time.monotonic() - began < least_s or not _all_ended(client, accepted):
                    time.sleep(0.5)
            finally:
                over.set()
                killer.join()
            return _judged(client, accepted, stores, time.monotonic() - began)
    finally:
        over.set()
        stores.stop()


def _all_ended(client: Client, accepted: list[str]) -> bool:
    with suppress(OperatorError):
        return len(client._ledger.reads.settled(accepted)) == len(accepted)
    return False


def _judged(client: Client, accepted: list[str], stores: Stores, took_s: float) -> dict[str, Any]:
    outcomes = Counter(client.result(job_id, timeout_s=60).outcome for job_id in accepted)
    ends: Counter[str] = Counter()
    after = "0"
    while events := client.events(after, limit=1000):
        ends.update(event.job_id for event in events if event.terminal)
        after = events[-1].id
    wait_until(lambda: _archived(client) == set(accepted), 90, "all of them in the archive")
    lost = [job_id for job_id in accepted if not ends[job_id]]
    twice = [job_id for job_id, count in ends.items() if count > 1]
    assert not lost, lost
    assert not twice, twice
    assert outcomes == {Outcome.OK: len(accepted)}, outcomes
    return {
        "jobs": len(accepted),
        "lost": 0,
        "twice": 0,
        "killed": dict(Counter(stores.killed)),
        "took_s": round(took_s, 1),
    }


def _archived(client: Client) -> set[str]:
    found: set[str] = set()
    cursor: str | None = None
    while True:
        try:
            page = client.jobs(limit=1000, cursor=cursor)
        except OperatorError:
            return set()
        found |= {job.job_id for job in page.jobs}
        cursor = page.cursor
        if cursor is None:
            return found


def main() -> None:
    """Run it in full: the number of jobs is the argument."""
    with tempfile.TemporaryDirectory(prefix="store-chaos-") as name:
        Path(name).chmod(0o755)
        print(json.dumps(run(Path(name), int(sys.argv[1]))))


if __name__ == "__main__":
    main()
