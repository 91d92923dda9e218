"""What hello jobs and idle workers cost the store in a fleet: real clients, broker and Celery worker.

The worker is bench/instant_worker.py: all of one but the sandbox. What the fleet does anyway (beats, reapers,
Celery's own) is measured while nobody asks for anything, and taken off what jobs cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import TypedDict
from unittest import mock
from urllib.parse import urlsplit

from bench.instant_worker import NoLauncher
from bench.ledger_hello import HELLO, WORKER
from bench.redis_meter import LUA, Commands, Figures, Meter, each, measured
from cellblock import Client, JobResult
from cellblock.ledger import Ledger, connect
from cellblock_config import Settings
from cellblock_workers.worker import main as worker_main
from parts import wait_until, worker_process

#: Each side of the store has a user of its own, by which MONITOR's lines are told apart.
PRODUCER, FLEET = "producer", "worker"
_IDLE_S, _WATCH_S = 4.0, 10.0
_WARM_UP = 30
_WINDOW = 16
_FEW = 3
#: What adds up, of what a meter reads.
_FLOWS = ("commands", "scripts", "script_us", "reads", "bytes_in", "bytes_out", "aof_bytes", "cpu_us")
_WATCHED = ("commands", "top_level", "inner", "reads")
#: A cost of a job below this is not shown.
_RARE = 0.02


class WholeJob(TypedDict):
    """One job from submit to result. ``by_side``: whose commands they are, and how many of each name."""

    figures: Figures
    by_side: dict[str, dict[str, float]]


def create_users(meter: Meter) -> None:
    """Both may do everything."""
    for name in (PRODUCER, FLEET):
        meter.redis.acl_setuser(
            name, enabled=True, nopass=True, categories=["+@all"], keys=["*"], channels=["*"]
        )


def url_of(url: str, user: str) -> str:
    """The same store, as this user; any password will do."""
    parts = urlsplit(url)
    return parts._replace(netloc=f"{user}:any@{parts.hostname}:{parts.port}").geturl()


@contextmanager
def celery_worker(settings: Settings, url: str, folder: Path) -> Iterator[None]:
    """A worker process that consumes. ``settings``: how its store is asked for its word."""
    program = ("-m", "bench.instant_worker")
    with (
        worker_process(folder, url_of(url, FLEET), folder / "none.sock", program=program) as process,
        closing(connect(settings)) as redis,
    ):
        ledger = Ledger(redis, settings)

        def ready() -> bool:
            assert process.poll() is None, (folder / "worker.log").read_text()[-4000:]
            return any(said["state"] == "ready" for said in ledger.figures.workers().values())

        wait_until(ready, 60, "the worker being ready")
        yield


def measure_job(meter: Meter, client: Client, jobs: int) -> dict[str, WholeJob]:
    """What a whole job costs, by how many are on their way at once."""

    def alone(count: int) -> None:
        for _ in range(count):
            assert client.submit(HELLO).result(timeout_s=30).ok

    def together(count: int) -> None:
        specs = (HELLO for _ in range(count))
        results = client.map(specs, ordered=False, window=_WINDOW)
        assert all(isinstance(result, JobResult) and result.ok for result in results)

    ways: dict[str, Callable[[int], None]] = {"one by one": alone, f"{_WINDOW} at once": together}
    for run in ways.values():
        run(_WARM_UP)
    idle, idle_commands = _idle(meter)
    found: dict[str, WholeJob] = {}
    for way, run in ways.items():
        whole = measured(meter, lambda run=run: run(jobs))  # type: ignore[misc]
        seen, counted = meter.watched(lambda run=run: run(jobs))  # type: ignore[misc]
        own = {
            name: (count - counted["seconds"] * idle_commands.get(name, 0)) / jobs
            for name, count in seen.items()
        }
        figures = {name: (whole[name] - whole["seconds"] * idle[name]) / jobs for name in _FLOWS}
        figures["ms"] = 1000 * whole["seconds"] / jobs
        found[way] = WholeJob(figures=figures | _levels(own), by_side=_by_side(own))
    return found


def _idle(meter: Meter) -> tuple[Figures, Commands]:
    """What happens in a second in which nobody asks for anything: by the counters, then by MONITOR."""
    quiet = measured(meter, lambda: time.sleep(_IDLE_S))
    seen, counted = meter.watched(lambda: time.sleep(_IDLE_S))
    figures = each({name: quiet[name] for name in _FLOWS}, quiet["seconds"])
    return figures, {name: count / counted["seconds"] for name, count in seen.items()}


def _levels(commands: Commands) -> Figures:
    inner = sum(count for (whose, _), count in commands.items() if whose == LUA)
    return {"inner": inner, "top_level": sum(commands.values()) - inner}


def _by_side(commands: Commands) -> dict[str, dict[str, float]]:
    sides: dict[str, dict[str, float]] = {}
    for (whose, name), count in sorted(commands.items()):
        if whose != LUA and count >= _RARE:
            sides.setdefault(whose, {})[name] = round(count, 2)
    return sides


def measure_idle(
    meter: Meter, url: str, folder: Path, settings: Settings, simulated: int
) -> dict[str, Figures]:
    """What an idle worker costs in a second: a whole process, and all of it but Celery, few and many of them.

    The server's own pulse is in it: what that takes is measured with nobody there. Commands and round trips
    are of one span of time, bytes and CPU of another, without MONITOR.
    """
    kinds: dict[str, tuple[int, AbstractContextManager[None]]] = {
        "nobody": (1, nullcontext()),
        "Celery worker process": (1, celery_worker(settings, url, folder)),
        **{f"{count} without Celery": (count, _runtimes(settings, count)) for count in (_FEW, simulated)},
    }
    found = {}
    for name, (count, running) in kinds.items():
        with running:
            time.sleep(settings.ledger.beat_s)
            quiet = measured(meter, lambda: time.sleep(_IDLE_S))
            seen, counted = meter.watched(lambda: time.sleep(_WATCH_S))
        counted |= _levels(seen)
        found[name] = {
            **each(
                {one: quiet[one] for one in ("bytes_in", "bytes_out", "cpu_us")}, quiet["seconds"] * count
            ),
            **each({one: counted[one] for one in _WATCHED}, counted["seconds"] * count),
            "workers": count,
        }
    return found


@contextmanager
def _runtimes(settings: Settings, count: int) -> Iterator[None]:
    """``count`` workers in this process, without Celery and the filter, each under its own name."""
    with (
        mock.patch.object(worker_main, "LauncherClient", NoLauncher),
        ThreadPoolExecutor(count) as pool,
        ExitStack() as stack,
    ):
        for number in range(count):
            with mock.patch("socket.gethostname", return_value=f"{WORKER}-{number}"):
                app, runtime = worker_main.create_worker(settings)
            stack.callback(app.close)
            stack.callback(pool.submit, runtime.stop)  # takes a second, so all at once
            for part in (runtime.heart, runtime.reaper, runtime.health, runtime.control):
                part.start()
            time.sleep(settings.ledger.beat_s / count)  # else all would beat at the same moment
        yield
