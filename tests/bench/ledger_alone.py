"""What hello jobs cost the store when the ledger is called without client, broker and worker."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from statistics import fmean, median
from typing import Any
from unittest import mock

from bench.instant_worker import NoLauncher
from bench.ledger_hello import WORKER, Hello, hello_jobs, hush
from bench.redis_meter import YARDSTICK_CALLS, Figures, Meter, difference, measured
from cellblock import Outcome
from cellblock.ledger.script_calls import Reply, Scripts
from cellblock_config import Settings
from cellblock_workers.worker import main as worker_main
from cellblock_workers.worker.reaper import Reaper
from ledger.kit import be_late, expire_lease, operation

_STATUS = {"state": "ready", "reason": None, "isolations": {"standard": "namespaces"}, "running": 1}
#: Settings under which what waits for a retry, or for its message, can be had at once; and when that is.
QUICK = {"retry_backoff_s": 0.004, "republish_after_s": 0.001, "fault_retries": 0}
_SOON_S = 0.008
_IN_LINE = 5
_WARM_UP = 100
DRIVERS = 2


def measure_scripts(meter: Meter, one: Hello, reaper: Reaper, rounds: int) -> dict[str, dict[str, Figures]]:
    """What a call of each script costs, by when it is called; under the settings in QUICK.

    A job's scripts twice: when nothing else waits, and in a line, where others of its tenant wait too; then
    the scripts that no job calls. The yardstick says how fast the machine was meanwhile.
    """
    one.live()
    for group in (_keep_up, _go_wrong):
        group(one, reaper)  # loads the scripts
    sticks: list[Figures] = []

    def live_and_compare() -> None:
        one.live()
        sticks.append(meter.yardstick())

    found = {"job": _by_script(meter, live_and_compare, rounds)}
    if not {"admit", "claim", "finish"} <= found["job"].keys():
        raise SystemExit("the scripts of a job were not seen: Scripts is called by other names")
    for _ in range(_IN_LINE):
        one.admit()
    found["job in a line"] = _by_script(meter, one.live, rounds)
    for _ in range(_IN_LINE):
        one.end(one.claim())
    of_jobs = found["job"].keys() | found["job in a line"].keys()
    by_clock = _by_script(meter, lambda: _keep_up(one, reaper), rounds)
    found["by the clock"] = {name: cost for name, cost in by_clock.items() if name not in of_jobs}
    rest = _by_script(meter, lambda: _go_wrong(one, reaper), rounds)
    found["rest"] = {name: cost for name, cost in rest.items() if name not in of_jobs | by_clock.keys()}
    found["yardstick"] = {f"{YARDSTICK_CALLS} x PING": _means(sticks, rounds)}
    return found


def _by_script(meter: Meter, call: Callable[[], None], rounds: int) -> dict[str, Figures]:
    """What one call of each script costs, by its name."""
    with _attributed(meter) as found:
        for _ in range(rounds):
            call()
    return {name: _means(calls, rounds) for name, calls in found.items()}


def _means(calls: Sequence[Figures], rounds: int) -> Figures:
    """The means of these calls, and the median of their microseconds. ``calls``: how many a round has.

    ``inner``: commands besides the script's own, so inside of it, or sent along with it.
    """
    return {
        "calls": len(calls) / rounds,
        "inner": fmean(one["commands"] - 1 for one in calls),
        "us": fmean(one["script_us"] for one in calls),
        "us_median": median(one["script_us"] for one in calls),
        "bytes_in": fmean(one["bytes_in"] for one in calls),
        "bytes_out": fmean(one["bytes_out"] for one in calls),
    }


@contextmanager
def reaper_of(settings: Settings) -> Iterator[Reaper]:
    """A worker's, whose rounds are called by hand."""
    with mock.patch.object(worker_main, "LauncherClient", NoLauncher):
        app, runtime = worker_main.create_worker(settings)
    with closing(app), closing(runtime.redis):
        yield runtime.reaper


def _keep_up(one: Hello, reaper: Reaper) -> None:
    """What a worker calls by the clock, with one job running."""
    reaper.tick()
    held = one.begin()
    one.ledger.beat(WORKER, [(held.job_id, held.fence)], _STATUS)
    one.end(held)


def _go_wrong(one: Hello, reaper: Reaper) -> None:
    """Every other transition that can be had without waiting."""
    ledger = one.ledger
    held = one.begin()
    ledger.release(held, operation())
    ledger.cancel(held.job_id)
    one.end(replace(one, manifest=one.manifest.model_copy(update={"retries": 1})).begin(), Outcome.EXIT)
    time.sleep(_SOON_S)
    reaper.tick()  # its pause is over
    held = one.claim()
    one.end(held, Outcome.SANDBOX_ERROR)
    ledger.retry_dead(held.job_id, operation())
    one.end(one.claim(), Outcome.SANDBOX_ERROR)
    ledger.upkeep.drop_dead(held.job_id, operation())
    held = one.begin()
    expire_lease(ledger, one.redis, held.job_id)
    reaper.tick()
    assert ledger.reads.status(held.job_id).losses == 1
    time.sleep(_SOON_S)
    ledger.upkeep.unclaimed()
    be_late(ledger, one.redis, held.job_id)
    reaper.tick()
    assert ledger.reads.status(held.job_id).outcome is Outcome.REJECTED


@contextmanager
def _attributed(meter: Meter) -> Iterator[dict[str, list[Figures]]]:
    """What each call of a script in the block made the server do, by the script's name."""
    found: dict[str, list[Figures]] = defaultdict(list)

    def counted(plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(scripts: Scripts, reply: type[Reply], *args: Any) -> Any:
            before = meter.read()
            answer = plain(scripts, reply, *args)
            one = difference(meter.read(), before)
            assert one["scripts"] == one["reads"] == 1, f"{reply.script}: {one}"
            found[reply.script].append(one)
            return answer

        return call

    with ExitStack() as stack:
        for name in ("call", "call_each"):
            plain = getattr(Scripts, name)
            stack.enter_context(mock.patch.object(Scripts, name, counted(plain)))
        yield found


def measure_kept(meter: Meter, one: Hello, jobs: int) -> Figures:
    """Bytes of memory that an ended job keeps, and those of the stream's events, for itself.

    Without buffers of clients and of the append-only file. Redis' tables grow by doubling: that adds some
    bytes to a job, or some dozens.
    """
    stream = one.ledger.keys.events

    def events() -> Figures:
        size = meter.redis.memory_usage(stream, samples=0)
        return {"bytes": float(size or 0), "count": float(meter.redis.xlen(stream))}

    def live(count: int) -> None:
        for _ in range(count):
            one.live()

    live(_WARM_UP)
    before = events()
    found = measured(meter, lambda: live(jobs))
    stored = difference(events(), before)
    return {
        "job_bytes": (found["memory"] - stored["bytes"]) / jobs,
        "events_bytes": stored["bytes"] / jobs,
        "event_bytes": stored["bytes"] / stored["count"],
        "events": stored["count"] / jobs,
        "jobs": jobs,
    }


@contextmanager
def drivers() -> Iterator[ProcessPoolExecutor]:
    """Two processes that have imported everything."""
    spawning = get_context("spawn")
    ready = spawning.Barrier(DRIVERS)
    with ProcessPoolExecutor(DRIVERS, mp_context=spawning, initializer=_begin, initargs=(ready,)) as pool:
        list(pool.map(abs, range(DRIVERS)))
        yield pool


def _begin(ready: Barrier) -> None:
    hush()
    ready.wait()


def measure_carried(
    meter: Meter,
    settings: Settings,
    pool: ProcessPoolExecutor,
    *,
    processes: int,
    together: int,
    seconds: float,
) -> Figures:
    """Whole jobs through the ledger from some of the drivers: what Redis can carry, what was reached.

    The ceiling is by all of the server's threads, as if it had one processor; ``main_us`` is of the one
    thread that runs commands.
    """
    before = meter.read()
    each = [(settings, together, seconds)] * processes
    driven = list(pool.map(_drive, *zip(*each, strict=True)))
    found = difference(meter.read(), before)
    jobs = sum(count for count, _ in driven)
    return {
        "cpu_us": found["cpu_us"] / jobs,
        "main_us": found["main_cpu_us"] / jobs,
        "script_us": found["script_us"] / jobs,
        "ceiling_jobs_per_s": 1e6 * jobs / found["cpu_us"],
        "reached_jobs_per_s": sum(count / took_s for count, took_s in driven),
    }


def _drive(settings: Settings, together: int, seconds: float) -> tuple[int, float]:
    """Runs jobs in its own process, ``together`` at a time. Returns how many ended, in how many seconds."""
    with hello_jobs(settings) as one:
        count, started = 0, time.monotonic()
        while time.monotonic() < started + seconds:
            one.live(together)
            count += together
        return count, time.monotonic() - started
