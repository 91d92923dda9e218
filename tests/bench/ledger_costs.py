"""`python tests/bench/ledger_costs.py`: what one hello job, and one idle worker, cost the store.

Each part has a redis-server of its own (append-only file, fsync every second), with nobody else in it.

scripts  calls inside a script, microseconds by the server's commandstats, bytes that travel: by the
         server's counters before and after each call. A machine may be half as fast a minute later, so
         compare microseconds with those of the yardstick
job      from Client.submit to the result, through Celery and a worker without sandbox (instant_worker.py).
         Round trips are the server's reads: what arrives together, as a pipeline does, counts once. MONITOR
         tells commands of clients from those inside scripts, in a second pass
kept     memory that stays when a job has ended
carried  admit, claim, finish from one process and from two, alone and eight together: the server's CPU time,
         and what that allows
idle     with --idle-workers N: a second of an idle worker

The file is not called ledger.py: it would hide tests/ledger from every other benchmark of this folder.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from bench.ledger_alone import (
    QUICK,
    drivers,
    measure_carried,
    measure_kept,
    measure_scripts,
    reaper_of,
)
from bench.ledger_fleet import PRODUCER, celery_worker, create_users, measure_idle, measure_job, url_of
from bench.ledger_hello import hello_jobs, hush, settings_for
from bench.ledger_tables import tables
from bench.redis_meter import Figures, Meter
from cellblock import Client
from parts import RedisServer

ROUNDS, JOBS, KEPT = 100, 200, 2000
CARRIED_ROUNDS, CARRIED_S = 3, 1.5
#: How many processes drive it, and how many jobs they admit and claim together.
CARRIED = {"from 1": (1, 1), "from 2": (2, 1), "from 2, eight together": (2, 8)}
PLANS = {"no plan": False, "a plan": True}


@dataclass(frozen=True)
class Store:
    """A server that nobody else uses."""

    url: str
    folder: Path
    meter: Meter


@contextmanager
def store() -> Iterator[Store]:
    """Started, and stopped."""
    with tempfile.TemporaryDirectory(prefix="ledger-costs-") as name:
        server = RedisServer(Path(name), fsync="everysec")
        server.start()
        try:
            with closing(Meter(server.url)) as meter:
                meter.redis.config_set("auto-aof-rewrite-percentage", 0)  # would look like a smaller file
                create_users(meter)
                assert meter.counts_inner_calls(), "total_commands_processed leaves out what scripts call"
                yield Store(server.url, server.folder, meter)
        finally:
            server.stop()


def scripts(planned: bool) -> dict[str, dict[str, Figures]]:
    """By group, then by script."""
    with store() as one:
        settings = settings_for(one.url, one.folder, planned=planned, **QUICK)
        with hello_jobs(settings) as hello, reaper_of(settings) as reaper:
            return measure_scripts(one.meter, hello, reaper, ROUNDS)


def job(planned: bool) -> Mapping[str, object]:
    """By how many are on their way."""
    with store() as one:
        settings = settings_for(url_of(one.url, PRODUCER), one.folder, planned=planned)
        with celery_worker(settings, one.url, one.folder), Client(settings=settings) as client:
            return measure_job(one.meter, client, JOBS)


def kept(planned: bool) -> Figures:
    """Memory that one ended job takes."""
    with store() as one, hello_jobs(settings_for(one.url, one.folder, planned=planned)) as hello:
        return measure_kept(one.meter, hello, KEPT)


def carried() -> dict[str, dict[str, Figures]]:
    """By plan, then by how it is driven: medians of rounds that alternate: the speed changes."""
    found: dict[tuple[str, str], list[Figures]] = defaultdict(list)
    with drivers() as pool, ExitStack() as stack:
        stores = {plan: stack.enter_context(store()) for plan in PLANS}
        for _ in range(CARRIED_ROUNDS):
            for plan, one in stores.items():
                settings = settings_for(one.url, one.folder, planned=PLANS[plan])
                for name, (processes, together) in CARRIED.items():
                    figures = measure_carried(
                        one.meter, settings, pool, processes=processes, together=together, seconds=CARRIED_S
                    )
                    found[plan, name].append(figures)
    return {
        plan: {
            way: {name: median(one[name] for one in rounds) for name in rounds[0]}
            for (whose, way), rounds in found.items()
            if whose == plan
        }
        for plan in PLANS
    }


def idle(workers: int) -> dict[str, Figures]:
    """What one idle worker costs, by the part of it that asks the store."""
    with store() as one:
        settings = settings_for(one.url, one.folder, planned=False)
        return measure_idle(one.meter, one.url, one.folder, settings, workers)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the file that was asked for."""
    parser = argparse.ArgumentParser(description="What one hello job costs the store.")
    parser.add_argument("--json", type=Path, help="write everything there")
    parser.add_argument(
        "--idle-workers", type=int, default=0, help="how many to simulate; 0: none is measured"
    )
    parts: dict[str, Callable[[], object]] = {
        "scripts": lambda: {plan: scripts(planned) for plan, planned in PLANS.items()},
        "job": lambda: {plan: job(planned) for plan, planned in PLANS.items()},
        "kept": lambda: {plan: kept(planned) for plan, planned in PLANS.items()},
        "carried": carried,
        "idle": lambda: idle(asked.idle_workers) if asked.idle_workers else {},
    }
    parser.add_argument("--only", choices=parts, action="append", help="measure this part; may be repeated")
    asked = parser.parse_args(arguments)
    hush()
    found: dict[str, Any] = {part: parts[part]() for part in asked.only or parts}
    console = Console(width=None if sys.stdout.isatty() else 120)
    for table in tables(found):
        console.print(table)
    for plan, ways in found.get("job", {}).items():
        for way, one in ways.items():
            print(f"commands of a job, {plan}, {way}: {json.dumps(one['by_side'])}")
    if asked.json is not None:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
