"""`python tests/bench/fleet_model.py`: what a fleet of many hosts and shards would do; a model, in seconds.

A shard is one Redis and the workers of its hosts. A tenant's name gives one of 4,096 buckets, a table gives
the bucket's shard. Jobs are a fluid: in each step a shard admits what its store's CPU time, its queue and its
memory allow, and ends what its cores allow. Shards know nothing of each other.

measured  the fields of Measured; ``--costs FILE`` takes them from what ledger_costs.py --json wrote
chosen    the fields of Fleet: each has an option of its name
derived   everything that is printed

``--calibrate`` holds the rule that CPU time of a job gives jobs/s to the one host there is, this machine.
Measured for the prediction: CPU time of client, worker and store for a job, by /proc and by Redis, in bursts
with pauses, a third of what the machine can do. Measured to compare, in turn with that: jobs/s of
faults/soak.py, its store synced every second as a fleet's is, and how many cores others use meanwhile; or
``--soak FILE`` has what soak.py printed; that store waits for its disk at each write, which is not CPU time.
Fitted before, by other runs: BUSY. Derived: jobs/s when the first of client, worker and store is full, or all
together what cores are left. Ends with 1 where that is off by more than 15 %, with 2 where others work.
The worker is full first: of the store's ceiling, which is what a fleet runs into, this proves no more than
that a job's CPU time is the same in both runs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest import mock

from cellblock.contract.job_ids import BUCKETS, bucket_of

DAY_S, NOON_S = 86_400, 43_200
OUTAGE_S, HOT_SHARE, OVERFLOWS = 1800, 0.2, (1, 2, 4, 8, 16)
GROWTH = (1e8, 3e8, 1e9, 3e9, 1e10)
BURST, BURSTS, EVERY_S, SOAK_JOBS, ROUNDS = 64, 13, 0.4, 4000, 3
#: The part of a core that a busy process of many threads under one lock gets: the rest is waking up.
#: Fitted: a worker had 0.796 and 0.797 with 16 jobs at once, in two runs without others.
BUSY = 0.79
PROCESSES = ("client µs", "worker µs", "store µs")
TOLERANCE, OTHERS_MOST = 0.15, 0.3
SHIPPED_MB, SHIPPED_CONNECTIONS = 512, 10_000  # config/redis.conf
Row = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """What a hello job costs, and a worker. On two cores of a virtual machine, 2026-11-26."""

    store_us: float = 540  # ledger_costs.py "job", 16 at once: all of the server's CPU time, broker included
    scripts_us: float = 330  # ledger_costs.py "scripts": these alone, which nothing but better scripts saves
    trips: float = 7.6  # ledger_costs.py "job": round trips
    aof_bytes: float = 6000  # the same
    job_bytes: float = 866  # ledger_costs.py "kept": an ended job
    events_bytes: float = 3 * 154  # the same: its events
    waiting_bytes: float = 1860  # 3,000 of bench/ledger_hello.py admitted, growth of used memory
    idle_us: float = 225  # ledger_costs.py --idle-workers 30: CPU time in a second, for 3 commands
    connections: float = 14  # operations.md section 0: 12 to 16; a worker of instant_worker.py had 11
    host_s: float = 0.02  # operations.md C3: a core does 50 hello jobs/s, sandboxes and workers included
    begin_s: float = 0.0046  # docs/performance.md: admit, publish, broker, claim


@dataclass(frozen=True)
class Fleet:
    """What would be built, and what would be asked of it."""

    hosts: int = 1000
    cores: int = 16  # of a host
    workers: int = 4  # processes of a host
    shards: int = 16
    clients: int = 200  # processes that speak to each shard, with 4 connections each (CLIENT LIST)
    jobs_a_day: float = 1e9
    peak: float = 2.0  # by the mean
    cpu_s: float = 1.0  # mean of what the users' code in a job takes; it has a core as long
    sigma: float = 1.0  # of its logarithm: lognormal
    tenants: int = 20_000
    zipf: float = 0.8  # the n-th tenant asks for n to the power of minus this: the first for 3 % of all
    hot_s: float = 600  # ended jobs and their events are in the store as long
    memory_mb: float = 4096  # maxmemory
    max_connections: float = 10_000
    queue_depth: float = 100_000  # ledger.queue_depth: of jobs that wait in a shard
    archive_rows_s: float = 5000  # ASSUMED, as there is no archive yet: what a shard's archiver writes
    archive_ratio: float = 0.25  # ASSUMED: compressed, by plain
    step_s: float = 10
    costs: Measured = field(default_factory=Measured)

    @property
    def room(self) -> float:
        """How many ended jobs a store holds before it admits no more (ADMITS_BELOW)."""
        return 0.85 * self.memory_mb * 2**20 / (self.costs.job_bytes + self.costs.events_bytes)

    def rate(self, at_s: float) -> float:
        """Jobs a second that are asked for: fewest at midnight, most at noon."""
        return self.jobs_a_day / DAY_S * (1 - (self.peak - 1) * math.cos(2 * math.pi * at_s / DAY_S))

    def needs(self, jobs_s: float) -> dict[str, float]:
        """What a shard needs for this many jobs/s, as a part of what there is."""
        workers, cores = self.hosts * self.workers / self.shards, self.hosts * self.cores / self.shards
        jobs_held, connections = jobs_s * self.hot_s, workers * self.costs.connections + self.clients * 4
        return {
            "store CPU": (workers * self.costs.idle_us + jobs_s * self.costs.store_us) / 1e6,
            "store CPU, scripts alone": (workers * self.costs.idle_us + jobs_s * self.costs.scripts_us) / 1e6,
            "cores": jobs_s * (self.cpu_s + self.costs.host_s) / cores,
            "memory": jobs_held / self.room,
            "memory, as shipped": jobs_held / replace(self, memory_mb=SHIPPED_MB).room,
            "connections": connections / self.max_connections,
            "connections, as shipped": connections / SHIPPED_CONNECTIONS,
            "archive": jobs_s / self.archive_rows_s,
        }


def loads(fleet: Fleet) -> tuple[list[float], list[float]]:
    """By bucket: its part of all jobs, and of all tenants."""
    jobs, tenants = [0.0] * BUCKETS, [0.0] * BUCKETS
    weights = [rank**-fleet.zipf for rank in range(1, fleet.tenants + 1)]
    whole = sum(weights)
    for rank, weight in enumerate(weights, start=1):
        jobs[bucket_of(f"tenant-{rank}")] += weight / whole
        tenants[bucket_of(f"tenant-{rank}")] += 1 / fleet.tenants
    return jobs, tenants


def by_shard(parts: Sequence[float], table: Sequence[int], shards: int) -> list[float]:
    """What the buckets of each shard have together."""
    sums = [0.0] * shards
    for part, shard in zip(parts, table, strict=True):
        sums[shard] += part
    return sums


def tables(fleet: Fleet, parts: Sequence[float]) -> dict[str, list[int]]:
    """The ways to give buckets to shards. The rest of the model uses the last.

    Overrides are buckets moved from the fullest shard to the emptiest until all are within a hundredth.
    """
    contiguous = [bucket * fleet.shards // BUCKETS for bucket in range(BUCKETS)]
    robin, moved = [bucket % fleet.shards for bucket in range(BUCKETS)], list(contiguous)
    while True:
        sums = by_shard(parts, moved, fleet.shards)
        full, empty = sums.index(max(sums)), sums.index(min(sums))
        gap = sums[full] - sums[empty]
        fitting = [b for b in range(BUCKETS) if moved[b] == full and 0 < parts[b] <= gap / 2]
        if sums[full] < 1.01 / fleet.shards or not fitting:
            overrides = sum(now != before for now, before in zip(moved, contiguous, strict=True))
            return {"contiguous": contiguous, "round robin": robin, f"{overrides} overrides": moved}
        moved[max(fitting, key=parts.__getitem__)] = empty


class Step(NamedTuple):
    """A shard's day, in jobs. ``held``: in the store, counted in ended jobs."""

    asked: float
    admitted: float
    ended: float
    refused: float
    backlog: float
    held: float
    wait_s: float


def live(fleet: Fleet, share: float, away: tuple[float, float] = (0, 0), patient: bool = False) -> list[Step]:
    """A day of a shard with this share of all jobs.

    ``away``: from when to when its store is lost. ``patient``: who is refused asks again.
    """
    step_s, day, idle = fleet.step_s, list[Step](), fleet.needs(0)["store CPU"]
    admits, ends = (
        max(1.0, (1 - idle) * 1e6 / fleet.costs.store_us * step_s),
        step_s / fleet.needs(1)["cores"],
    )
    bulk = fleet.costs.waiting_bytes / (fleet.costs.job_bytes + fleet.costs.events_bytes)
    hot_steps, outside, waiting, hot = int(fleet.hot_s / step_s), 0.0, 0.0, 0.0
    for number in range(int(DAY_S / step_s)):
        there = not away[0] <= number * step_s < away[1]
        asked = fleet.rate(number * step_s) * share * step_s
        hot -= day[-hot_steps].ended if number >= hot_steps else 0
        held = hot + waiting * bulk
        room = min(fleet.queue_depth - waiting + ends, fleet.room - held)
        admitted = max(0, min(asked + outside, admits, room)) if there else 0
        ended = min(waiting + admitted, ends) if there else 0
        left = asked + outside - admitted
        outside, refused = (left, 0.0) if patient else (0.0, left)
        waiting, hot = waiting + admitted - ended, hot + ended
        wait_s = crowding(fleet, idle + (1 - idle) * admitted / admits, ended / ends)
        wait_s += step_s * (waiting / ends + outside / admits)
        day.append(Step(asked, admitted, ended, refused, outside + waiting, held, wait_s))
    return day


def crowding(fleet: Fleet, store: float, cores: float) -> float:
    """Seconds until a job begins where nothing piles up, by the parts of store and cores in use.

    At the store M/D/1 for half of a job's round trips; at the cores Allen's and Cunneen's for many servers.
    """
    store, cores, servers = min(store, 0.99), min(cores, 0.99), fleet.hosts * fleet.cores / fleet.shards
    at_store = fleet.costs.store_us / 1e6 / 2 * store / (1 - store) / 2
    crowd = math.pow(cores, math.sqrt(2 * (servers + 1)) - 1) / (servers * (1 - cores))
    spread = math.exp(fleet.sigma**2) / 2  # half of 1 + the squared coefficient of variation
    return fleet.costs.begin_s + at_store + spread * crowd * fleet.cpu_s


def wait_of(day: Sequence[Step], part: float) -> float:
    """What this part of the jobs did not wait longer than."""
    left = part * sum(step.admitted for step in day)
    for step in sorted(day, key=lambda step: step.wait_s):
        left -= step.admitted
        if left <= 0:
            return step.wait_s
    return math.nan


def of_shard(fleet: Fleet, share: float) -> Row:
    """A shard's day in figures. ``asked``: at the peak, whether there is so much or not."""
    day, costs, most_jobs_s = live(fleet, share), fleet.costs, fleet.rate(NOON_S) * share
    ended = sum(step.ended for step in day)
    peak, mean = fleet.needs(most_jobs_s), fleet.needs(ended / DAY_S)
    row: Row = {"jobs %": 100 * share}
    for name in ("store CPU", "cores"):
        row |= {f"{name} mean %": 100 * mean[name], f"{name} asked %": 100 * peak[name]}
    row |= {"wait p50 s": wait_of(day, 0.5), "wait p99 s": wait_of(day, 0.99)}
    row["refused %"] = 100 * sum(step.refused for step in day) / sum(step.asked for step in day)
    row["store GB"] = max(step.held for step in day) * (costs.job_bytes + costs.events_bytes) / 1e9
    row["trips/s"] = most_jobs_s * costs.trips
    row["archive rows/s"] = max(step.ended for step in day) / fleet.step_s
    row["archive GB/day"] = ended * costs.job_bytes * fleet.archive_ratio / 1e9
    row["AOF GB/day"] = ended * costs.aof_bytes / 1e9
    return row | {"connections": peak["connections"] * fleet.max_connections}


def lost(fleet: Fleet, share: float, tenants: float) -> Row:
    """One shard without its store for half an hour from noon; its clients go on asking."""
    first, back = int(NOON_S / fleet.step_s), int((NOON_S + OUTAGE_S) / fleet.step_s)
    plain = live(fleet, share, patient=True)
    hit = live(fleet, share, away=(NOON_S, NOON_S + OUTAGE_S), patient=True)
    more = [after.backlog - before.backlog for before, after in zip(plain, hit, strict=True)]
    drained = next((n for n in range(back, len(more)) if more[n] < hit[n].asked), None)
    late = sum(step.asked for step in hit[first:drained])
    return {
        "tenants %": 100 * tenants,
        "jobs % meanwhile": 100 * share,
        "jobs % of the day late": 100 * late / fleet.jobs_a_day,
        "backlog unharmed": plain[back].backlog,
        "backlog after": hit[back].backlog,
        "drained after h": math.inf if drained is None else (drained - back) * fleet.step_s / 3600,
    }


def hot_tenant(fleet: Fleet) -> Iterator[Row]:
    """One tenant with a fifth of all jobs, at home and over more shards; the rest is level."""
    for shards in (several for several in OVERFLOWS if several <= fleet.shards):
        others = (1 - HOT_SHARE) / fleet.shards
        his, beside = of_shard(fleet, HOT_SHARE / shards + others), of_shard(fleet, others)
        names = ("jobs %", "store CPU asked %", "cores asked %", "refused %", "wait p99 s")
        row = {"over shards": shards} | {name: his[name] for name in names}
        yield row | {f"beside: {name}": beside[name] for name in names[3:]}


def limits(fleet: Fleet, share: float) -> list[Row]:
    """The fullest shard at the peak: percent needed as jobs/day grow, and what is full first."""
    part, fixed, rows = fleet.peak * share / DAY_S, fleet.needs(0), []
    for name, one in fleet.needs(1).items():
        grows = one - fixed[name]
        left = max(0.0, 1 - fixed[name])  # none: too many workers for it, whatever they are asked for
        most = left / grows if grows else math.inf if left else 0.0
        row: Row = {"resource": name}
        row |= {f"{jobs:.0e}": 100 * (fixed[name] + grows * jobs * part) for jobs in GROWTH}
        rows.append(row | {"full at jobs/s": most, "at jobs/day": most / part})
    return sorted(rows, key=lambda row: float(row["at jobs/day"]))


def model(fleet: Fleet) -> dict[str, list[Row]]:
    """Every table, by its title."""
    jobs, tenants = loads(fleet)
    ways = tables(fleet, jobs)
    shares = {way: by_shard(jobs, table, fleet.shards) for way, table in ways.items()}
    *_, used = shares
    most = max(shares[used])
    his = by_shard(tenants, ways[used], fleet.shards)[shares[used].index(most)]
    tabled = [{"table": way, "most %": 100 * max(p), "least %": 100 * min(p)} for way, p in shares.items()]
    day = f"{fleet.jobs_a_day:.3g} jobs a day of {fleet.cpu_s:g} CPU s on {fleet.hosts} hosts, by shard"
    return {
        "buckets to shards, by all jobs": tabled,
        day: [of_shard(fleet, share) for share in sorted(shares[used], reverse=True)],
        "the fullest shard lost for 30 minutes from the peak": [lost(fleet, most, his)],
        f"one tenant with {HOT_SHARE:.0%} of all jobs; beside: a shard without it": list(hot_tenant(fleet)),
        "needed at the peak by jobs/day, in percent; what is full first is on top": limits(fleet, most),
    }


def cpu_s(process: int) -> float:
    """User's and system's, of a process."""
    words = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def machine_s() -> float:
    """What all cores did but wait."""
    user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def burst_costs() -> Row:
    """CPU time of one job of the soak's, on a machine that rests most of the time."""
    from bench.ledger_costs import store  # the model itself needs nothing of the project
    from cellblock import Client, JobResult, JobSpec
    from cellblock_config import load_settings
    from faults import soak
    from parts import NAMESPACES, REPOSITORY, launcher_process, worker_process

    variables = {f"CELLBLOCK_LEDGER_{name.upper()}": str(value) for name, value in soak.RETENTION.items()}
    program = ("-c", soak.STUB_WORKER, str(REPOSITORY / "tests"))
    with (
        store() as one,
        launcher_process(one.folder, **NAMESPACES) as (socket, _),
        worker_process(one.folder, one.url, socket, program=program, **NAMESPACES, **variables) as worker,
        Client(settings=load_settings(redis={"url": one.url}, ledger=soak.RETENTION)) as client,
    ):

        def spent_s() -> list[float]:
            return [time.process_time(), cpu_s(worker.pid), one.meter.read()["cpu_us"] / 1e6]

        def burst() -> None:
            ends, specs = time.monotonic() + EVERY_S, (JobSpec(code="pass") for _ in range(BURST))
            results = client.map(specs, window=BURST, ordered=False)
            assert all(isinstance(result, JobResult) and result.ok for result in results)
            time.sleep(max(0, ends - time.monotonic()))

        for _ in range(5):
            burst()  # warms up
        before = spent_s()
        for _ in range(BURSTS):
            burst()
        jobs_us = (1e6 * (now - then) for now, then in zip(spent_s(), before, strict=True))
        return {name: spent / BURST / BURSTS for name, spent in zip(PROCESSES, jobs_us, strict=True)}


def soak_here() -> Row:
    """faults/soak.py, as a fleet's store is synced; jobs/s from its first sample to its last."""
    from faults import soak
    from parts import RedisServer

    seen, measure = list[tuple[float, float, float]](), soak.measure

    def server(folder: Path) -> RedisServer:
        return RedisServer(folder, fsync="everysec")

    def look(redis: Any, worker: Any) -> dict[str, float]:
        store, of_worker_s = redis.info("cpu"), cpu_s(worker.pid)
        ours = time.process_time() + of_worker_s + store["used_cpu_user"] + store["used_cpu_sys"]
        seen.append((time.monotonic(), of_worker_s, machine_s() - ours))
        return measure(redis, worker)

    with tempfile.TemporaryDirectory() as name, mock.patch.multiple(soak, RedisServer=server, measure=look):
        soak.run(Path(name), SOAK_JOBS, samples=5)
    took_s, of_worker_s, others_s = (last - first for first, last in zip(seen[0], seen[4], strict=True))
    jobs = SOAK_JOBS * 4 / 5
    found = {"worker µs in the soak": 1e6 * of_worker_s / jobs, "jobs_per_s": jobs / took_s}
    return found | {"others": max(0.0, others_s / took_s)}


def calibrate(soaked: Row | None) -> Row:
    """Predict the soak. Both alternate, for the machine's speed changes."""
    rounds = [burst_costs() | (soaked or soak_here()) for _ in range(ROUNDS)]
    names = (*PROCESSES, "worker µs in the soak", "others", "jobs_per_s")
    found: Row = {name: median(one.get(name, 0) for one in rounds) for name in names}
    client, worker, store = (found[name] / 1e6 for name in PROCESSES)
    one_full = min(BUSY / client, BUSY / worker, 1 / store)
    all_full = ((os.cpu_count() or 1) - found["others"]) / (client + worker + store)
    measured, predicted = found.pop("jobs_per_s"), min(one_full, all_full)
    found |= {"one full jobs/s": one_full, "all full jobs/s": all_full, "soak jobs/s": measured}
    return found | {"off %": 100 * (predicted / measured - 1)}


def costs_in(file: Path) -> Measured:
    """As ledger_costs.py wrote them; what it does not measure stays."""
    found = json.loads(file.read_text())
    job, kept = found["job"]["no plan"]["16 at once"]["figures"], found["kept"]["no plan"]
    costs = Measured(store_us=job["cpu_us"], trips=job["reads"], aof_bytes=job["aof_bytes"])
    return replace(costs, job_bytes=kept["job_bytes"], events_bytes=kept["events_bytes"])


def show(title: str, rows: Sequence[Row]) -> None:
    """A plain table."""
    lines = [list(rows[0]), *([cell(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    print(f"\n{title}")
    for line in lines:
        print("  ".join(word.rjust(width) for word, width in zip(line, widths, strict=True)))


def cell(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.2e}" if value >= 1e7 else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables, write the file that was asked for."""
    parser = argparse.ArgumentParser(description="What a fleet of many hosts and shards would do.")
    chosen = {one.name: one.default for one in fields(Fleet) if one.name != "costs"}
    for name, default in chosen.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    parser.add_argument("--costs", type=Path, help="what ledger_costs.py --json wrote")
    parser.add_argument("--calibrate", action="store_true", help="predict and measure a soak on this machine")
    parser.add_argument("--soak", type=Path, help="what soak.py printed; it waits for the disk too")
    parser.add_argument("--json", type=Path, help="write everything there")
    asked, ends_with = parser.parse_args(arguments), 0
    if asked.calibrate:
        held = calibrate(json.loads(asked.soak.read_text()) if asked.soak else None)
        found = {"calibration on this machine": [held]}
        ends_with = 2 if held["others"] > OTHERS_MOST else int(abs(held["off %"]) > 100 * TOLERANCE)
    else:
        costs = costs_in(asked.costs) if asked.costs else Measured()
        found = model(Fleet(costs=costs, **{name: getattr(asked, name) for name in chosen}))
    for title, rows in found.items():
        show(title, rows)
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=2).replace("Infinity", "null") + "\n")
    return ends_with


if __name__ == "__main__":
    sys.exit(main())
