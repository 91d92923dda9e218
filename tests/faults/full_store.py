"""A fleet whose Redis is far too small for what is asked of it, at default settings; injected: the sandbox.

Run by tests/faults/test_full_store.py in a short form. By itself (``python -m faults.full_store 60000``) it
prints the curve: memory used, jobs accepted, refusals and jobs ended, second by second.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from redis import Redis

from cellblock import Client, JobSpec, RateLimited, StoreUnavailable
from cellblock_config import load_settings
from faults.soak import instant_fleet
from parts import RedisServer, wait_until

#: As its own: no curve needs it finer.
_LOOK_S = 1.0
_REFUSED_PAUSE_S = 0.01
_BESIDE_EVERY_S = 0.25


@dataclass(frozen=True)
class Moment:
    """One point of the curve."""

    at_s: float
    used_mb: float
    accepted: int
    refused: int
    ended: int


@dataclass
class Course:
    """What became of all jobs. ``ends``: how often each accepted one ended."""

    accepted: list[str] = field(default_factory=list)
    refused: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    curve: list[Moment] = field(default_factory=list)
    beside_s: list[float] = field(default_factory=list)  #: how long another tenant's jobs took
    beside_refused: int = 0

    @property
    def lost(self) -> list[str]:
        """Accepted, and never ended."""
        return [job_id for job_id in self.accepted if job_id not in self.ends]

    def longest_standstill_s(self) -> float:
        """How long no job ended while some were waiting."""
        longest, since = 0.0, 0.0
        for before, now in zip(self.curve, self.curve[1:], strict=False):
            stands = now.ended == before.ended and before.accepted > before.ended
            since = since + now.at_s - before.at_s if stands else 0.0
            longest = max(longest, since)
        return longest


def run(
    folder: Path,
    jobs: int,
    *,
    memory: str,
    spec: Callable[[int], JobSpec] = lambda number: JobSpec(code=f"print({number})"),
    most_s: float = 600,
    **environment: str,
) -> Course:
    """Submit the jobs as fast as they are taken, refused ones again, and follow each to its end."""
    server = RedisServer(folder, fsync="everysec", memory=memory)
    server.start()
    course = Course()
    settings = load_settings(redis={"url": server.url})
    stop = threading.Event()
    try:
        with (
            instant_fleet(folder, server.url, **environment),
            closing(Redis.from_url(server.url)) as redis,
            Client(settings=settings) as client,
        ):
            # Its connections and scripts take a megabyte: not after the store has been filled without it.
            wait_until(lambda: client.counts().workers, 60, "the worker")
            began = time.monotonic()
            watch = threading.Thread(target=_watch, args=(client, redis, course, stop, began))
            watch.start()
            beside = threading.Thread(target=_run_beside, args=(client, course, stop))
            beside.start()
            try:
                _submit(client, course, jobs, spec, began + most_s)
                while course.lost and time.monotonic() < began + most_s:
                    time.sleep(0.2)
                time.sleep(2 * _LOOK_S)
            finally:
                stop.set()
                watch.join()
                beside.join()
    finally:
        server.stop()
    return course


def _run_beside(client: Client, course: Course, stop: threading.Event) -> None:
    """Another tenant's small jobs, one after the other, a few each second."""
    while not stop.wait(_BESIDE_EVERY_S):
        began = time.monotonic()
        try:
            client.submit(JobSpec(code="1", tenant="beside")).result(timeout_s=60)
        except (StoreUnavailable, RateLimited):
            course.beside_refused += 1
        else:
            course.beside_s.append(time.monotonic() - began)


def _submit(client: Client, course: Course, jobs: int, spec: Callable[[int], JobSpec], until: float) -> None:
    for number in range(jobs):
        while time.monotonic() < until:
            try:
                course.accepted.append(client.submit(spec(number)).id)
                break
            except (StoreUnavailable, RateLimited):  # full, or the tenant's part of it
                course.refused += 1
                time.sleep(_REFUSED_PAUSE_S)


def _watch(client: Client, redis: Redis, course: Course, stop: threading.Event, began: float) -> None:
    """Read every event, and note the curve."""
    after, noted = "0", 0.0
    while not stop.is_set():
        for event in client.events(after, limit=1000, wait_s=0.2):
            after = event.id
            if event.terminal:
                course.ends[event.job_id] = course.ends.get(event.job_id, 0) + 1
        now = time.monotonic() - began
        if now - noted >= _LOOK_S:
            noted = now
            memory = redis.info("memory")
            # As Redis counts against maxmemory: without what it has still to write to its file.
            used = int(memory["used_memory"]) - int(memory["mem_not_counted_for_evict"])
            used_mb = round(used / 2**20, 2)
            counts = len(course.accepted), course.refused, len(course.ends)
            course.curve.append(Moment(round(now, 1), used_mb, *counts))


def report(course: Course) -> dict[str, Any]:
    """In figures."""
    return {
        "accepted": len(course.accepted),
        "refused": course.refused,
        "ended": len(course.accepted) - len(course.lost),
        "lost": len(course.lost),
        "twice": sum(count > 1 for count in course.ends.values()),
        "longest_standstill_s": course.longest_standstill_s(),
        "most_mb": max(moment.used_mb for moment in course.curve),
        "took_s": course.curve[-1].at_s,
        "beside": len(course.beside_s),
        "beside_refused": course.beside_refused,
        "beside_p50_ms": round(1000 * statistics.median(course.beside_s)) if course.beside_s else None,
        "beside_most_ms": round(1000 * max(course.beside_s)) if course.beside_s else None,
    }


def main() -> None:
    """Run it in full. Arguments: jobs, the memory of Redis, bytes that each job says."""
    given = dict(enumerate(sys.argv))
    memory, says = given.get(2, "24mb"), given.get(3, "0")
    with tempfile.TemporaryDirectory(prefix="full-store-") as name:
        spec = JobSpec(code="1", args=(says,))
        course = run(Path(name), int(sys.argv[1]), memory=memory, spec=lambda _: spec)
    for moment in course.curve:
        print(json.dumps(asdict(moment)))
    print(json.dumps(report(course)))


if __name__ == "__main__":
    main()
