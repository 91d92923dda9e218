"""Many tiny jobs through a real client, Redis and Celery worker; injected: a sandbox that answers at once.

Run by tests/faults/test_chaos.py in a short form, by `make test-faults` in full. Prints one JSON line.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from redis import Redis

from cellblock import Client, JobResult, JobSpec
from cellblock_config import load_settings
from parts import NAMESPACES, RedisServer, launcher_process, wait_until, worker_process

#: The shortest there is: what stays of a job for a while is gone when the run ends.
RETENTION = {"result_ttl_s": 10, "events_kept": 1000}
#: The fleet's own: indices, the stream, what workers and Celery say of themselves.
KEYS_LEFT = 50
#: A worker whose jobs need no sandbox. A job's first argument says how many bytes it prints.
STUB_WORKER = (
    "import sys; sys.path.insert(0, sys.argv[1])\n"
    "from cellblock_workers.worker import main, runner\n"
    "from ledger.kit import result_of\n"
    "def said(claim): return 'x' * int((*claim.manifest.args, '0')[0])\n"
    "runner.execute = lambda lease, **_: result_of(lease.claim, stdout=said(lease.claim))\n"
    "main.main()\n"
)


@contextmanager
def instant_fleet(folder: Path, url: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """A launcher and such a worker, on this Redis."""
    with (
        launcher_process(folder, **NAMESPACES) as (socket, _),
        worker_process(
            folder,
            url,
            socket,
            program=("-c", STUB_WORKER, str(Path(__file__).parent.parent)),
            **NAMESPACES,
            **variables,
        ) as worker,
    ):
        yield worker


def run(folder: Path, jobs: int, samples: int = 5) -> dict[str, Any]:
    """Push the jobs through; keys, Redis' memory and the worker's, on the way and at the end.

    Raises AssertionError where any of them has grown.
    """
    server = RedisServer(folder)
    server.start()
    settings = load_settings(redis={"url": server.url}, ledger=RETENTION)
    variables = {f"CELLBLOCK_LEDGER_{name.upper()}": str(value) for name, value in RETENTION.items()}
    seen: list[dict[str, float]] = []
    try:
        with (
            instant_fleet(folder, server.url, **variables) as worker,
            closing(Redis.from_url(server.url)) as redis,
            Client(settings=settings) as client,
        ):
            started = time.monotonic()
            specs = (JobSpec(code="pass") for _ in range(jobs))
            for done, result in enumerate(client.map(specs, ordered=False, window=64), start=1):
                assert isinstance(result, JobResult) and result.ok, result
                if done % (jobs // samples) == 0:
                    seen.append(measure(redis, worker))
            took_s = time.monotonic() - started
            wait_until(lambda: int(redis.dbsize()) < KEYS_LEFT, 60, "the last results being forgotten")
            seen.append(measure(redis, worker))
    finally:
        server.stop()
    first, *_, last = seen
    assert last["keys"] < KEYS_LEFT, seen
    assert last["redis_mb"] < first["redis_mb"] + 2, seen
    assert last["worker_mb"] < first["worker_mb"] + 20, seen
    return {"jobs": jobs, "jobs_per_s": round(jobs / took_s), "seen": seen}


def measure(redis: Redis, worker: subprocess.Popen[bytes]) -> dict[str, float]:
    """Keys, and resident megabytes of the server's data and of the worker."""
    status = Path(f"/proc/{worker.pid}/status").read_text()
    rss_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return {
        "keys": int(redis.dbsize()),
        "redis_mb": round(int(redis.info("memory")["used_memory"]) / 1e6, 1),
        "worker_mb": round(rss_kb / 1024, 1),
    }


def main() -> None:
    """Run it in full: the number of jobs is the argument."""
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        print(json.dumps(run(Path(name), int(sys.argv[1]))))


if __name__ == "__main__":
    main()
