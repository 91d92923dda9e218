"""Very many jobs at default retention through a small Redis into the archive; injected: the work itself.

``python -m faults.archive_soak 1000000 64mb postgresql`` (or ``sqlite``) prints a line every ten seconds
(seconds, jobs ended, MiB used) and one at the end. Scripts, upkeep and archiver are the fleet's own; there is
no sandbox and no Celery.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from redis import Redis
from sqlalchemy import func, select

from cellblock import RateLimited, StoreFull
from cellblock.archive import open_archive
from cellblock.archive.tables import JOBS
from cellblock.contract.job_ids import new_job_id
from cellblock.ledger import Admission, Candidate, Claim, Ledger, connect
from cellblock.queue import Publisher
from cellblock_config import Settings, load_settings
from cellblock_workers.worker.reaper import Reaper
from faults.postgres import Postgres
from faults.store_chaos import archiver_process
from ledger.kit import manifest, operation, result_of
from parts import RedisServer, wait_until

PROCESSES = 2
LOOK_S = 10.0
#: In front of the claims, so that some jobs always wait.
AHEAD = 50
#: Jobs claimed in one call.
TOGETHER = 8
#: Four tenants: none may hold more than half of the store.
TENANTS = 4


def drive(settings: Settings, jobs: int, number: int, done: Any) -> None:
    """Admit, claim and end ``jobs`` jobs; refused ones again. ``done``: a shared count."""
    tenant = f"tenant{number % TENANTS}"
    work = manifest(code="pass", tenant=tenant)
    with closing(connect(settings)) as redis:
        ledger = Ledger(redis, settings)
        admitted = ended = 0
        while ended < jobs:
            wanted = min(jobs, ended + AHEAD) - admitted
            answers = ledger.admissions.admit_many(
                [Candidate(new_job_id(tenant), work) for _ in range(wanted)]
            )
            for answer in answers:
                if isinstance(answer, Admission):
                    admitted += 1
                elif not isinstance(answer, StoreFull | RateLimited):
                    raise answer
            if wanted and not isinstance(answers[-1], Admission):
                time.sleep(0.05)
            for held in ledger.claims.claim_next_many(
                messages=["-"] * min(TOGETHER, jobs - ended), worker=f"driver{number}", operation=operation()
            ):
                if isinstance(held, Claim):
                    ledger.finish(held, result_of(held), operation())
                    ended += 1
                    done.value += 1


def run(folder: Path, jobs: int, memory: str, kind: str) -> dict[str, Any]:
    """Push the jobs through; the curve of memory, and what the archive has in the end."""
    server = RedisServer(folder, fsync="everysec", memory=memory)
    server.start()
    postgres = Postgres(folder / "postgres") if kind == "postgresql" else None
    if postgres is not None:
        (folder / "postgres").mkdir()
        postgres.create()
        postgres.start()
    url = postgres.url if postgres is not None else f"sqlite:///{folder}/jobs.db"
    settings = load_settings(redis={"url": server.url}, archive={"url": url})
    variables = {"CELLBLOCK_REDIS_URL": server.url, "CELLBLOCK_ARCHIVE_URL": url}
    counts = [multiprocessing.Value("q", 0) for _ in range(PROCESSES)]
    try:
        with archiver_process(folder, variables), closing(connect(settings)) as redis:
            ledger, publisher = Ledger(redis, settings), Publisher(redis, settings)
            reaper = Reaper(ledger, publisher, redis, settings, worker="soak")
            reaper.start()
            drivers = [
                multiprocessing.Process(target=drive, args=(settings, jobs // PROCESSES, number, count))
                for number, count in enumerate(counts)
            ]
            began = time.monotonic()
            for driver in drivers:
                driver.start()
            curve = _watch(drivers, counts, redis, began)
            took_s = time.monotonic() - began
            found = _archived(settings, jobs)
            reaper.stop()
    finally:
        server.stop()
        if postgres is not None:
            postgres.stop()
    most_mb = max(mb for _, _, mb in curve)
    rate = round(jobs / took_s)
    return {"jobs": jobs, "archive": kind, "jobs_per_s": rate, "most_mb": most_mb, "found": found}


def _watch(drivers: list[Any], counts: list[Any], redis: Redis, began: float) -> list[tuple[int, int, float]]:
    curve: list[tuple[int, int, float]] = []
    while True:
        alive = any(driver.is_alive() for driver in drivers)
        used_mb = round(int(redis.info("memory")["used_memory"]) / 2**20, 1)
        curve.append((round(time.monotonic() - began), sum(count.value for count in counts), used_mb))
        print(json.dumps(curve[-1]), flush=True)
        if not alive:
            return curve
        for driver in drivers:
            driver.join(timeout=LOOK_S / len(drivers))


def _archived(settings: Settings, jobs: int) -> int:
    """How many the archive has, when it has them all."""
    archive = open_archive(settings.archive)
    assert archive is not None
    with closing(archive):

        def count() -> int:
            with archive.engine.connect() as connection:
                return int(connection.execute(select(func.count()).select_from(JOBS)).scalar_one())

        wait_until(lambda: count() >= jobs // PROCESSES * PROCESSES, 600, "all jobs in the archive")
        return count()


def main() -> None:
    """Arguments: jobs, memory of Redis, sqlite or postgresql."""
    with tempfile.TemporaryDirectory(prefix="archive-soak-") as name:
        Path(name).chmod(0o755)
        print(json.dumps(run(Path(name), int(sys.argv[1]), sys.argv[2], sys.argv[3])))


if __name__ == "__main__":
    main()
