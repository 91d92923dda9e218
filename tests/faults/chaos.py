"""Jobs under random faults: what was accepted ends once, and nothing stays behind.

Run by tests/faults/test_chaos.py in a short form, by `make test-faults` in full. Prints one JSON line.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from cellblock import CallerError, Client, Event, JobSpec, Outcome, StoreUnavailable
from faults.hosts import Network, RedisHost, WorkerHost, cgroups_of, hosts, remains, swept
from parts import wait_until
from suite.appearing import Appearing

SLOTS = 9
SETTINGS = {"CELLBLOCK_LEDGER_TENANT_SLOTS": str(SLOTS), "CELLBLOCK_LEDGER_LOSS_LIMIT": "10"}
CODES = (
    ("import time; time.sleep({s:.2f}); print('done')", "succeeded"),
    ("import time; time.sleep({s:.2f}); raise SystemExit(3)", "failed"),
)
#: Methods of Chaos, and how often each comes beside the others.
FAULTS = {
    "kill_worker": 3,
    "kill_launcher": 2,
    "power_cut": 2,
    "freeze": 2,
    "partition": 3,
    "restart_store": 1,
    "drop_connections": 2,
}
#: What a job takes at most, in seconds.
LONGEST_S = 2.0


@dataclass
class Chaos:
    """A seeded row of faults against one fleet."""

    network: Network
    store: RedisHost
    workers: Sequence[WorkerHost]
    chance: random.Random
    due: list[str] = field(default_factory=list)  #: each fault once; afterwards they come by weight
    done: list[tuple[float, str, str]] = field(default_factory=list)  #: (unix seconds, fault, where)

    def __post_init__(self) -> None:
        self.due = self.chance.sample(list(FAULTS), len(FAULTS))

    def one(self) -> None:
        """Do one fault, and mend it."""
        name = self.due.pop() if self.due else self.chance.choices(list(FAULTS), list(FAULTS.values()))[0]
        host = self.chance.choice(self.workers)
        self.done.append((time.time(), name, host.name))
        fault: Callable[[WorkerHost], None] = getattr(self, name)
        fault(host)
        for one in self.workers:
            if not one.alive():  # as an operator's systemd does
                one.start()

    def kill_worker(self, host: WorkerHost) -> None:
        self._signal(host, "worker.main", signal.SIGKILL)
        time.sleep(1)

    def kill_launcher(self, host: WorkerHost) -> None:
        self._signal(host, "launcher.server", signal.SIGKILL)

    def power_cut(self, host: WorkerHost) -> None:
        host.power_off()
        time.sleep(self.chance.uniform(0.5, 3))

    def freeze(self, host: WorkerHost) -> None:
        pids = self._signal(host, "worker.main", signal.SIGSTOP)
        time.sleep(self.chance.uniform(2, 14))
        for pid in pids:
            with suppress(ProcessLookupError):
                host_signal(pid, signal.SIGCONT)

    def partition(self, host: WorkerHost) -> None:
        self.network.cut(host.name)
        time.sleep(self.chance.uniform(2, 14))
        self.network.heal(host.name)

    def restart_store(self, _: WorkerHost) -> None:
        self.store.kill()
        time.sleep(self.chance.uniform(0.5, 4))
        self.store.start()

    def drop_connections(self, _: WorkerHost) -> None:
        with closing(Redis.from_url(self.store.url)) as redis, suppress(RedisError):
            for kind in ("normal", "pubsub"):
                redis.client_kill_filter(_type=kind, skipme=True)

    def _signal(self, host: WorkerHost, what: str, number: signal.Signals) -> list[int]:
        pids = host.pids(what) if host.alive() else []
        for pid in pids:
            with suppress(ProcessLookupError):
                host_signal(pid, number)
        return pids


def host_signal(pid: int, number: signal.Signals) -> None:
    """To a process that this run started."""
    os.kill(pid, number)


def submit_all(client: Client, count: int, over_s: float, chance: random.Random) -> dict[str, str]:
    """Job id → how it has to end, of every job accepted. What an outage refuses is asked again by its key."""
    expected: dict[str, str] = {}
    began = time.monotonic()
    for number in range(count):
        code, end = CODES[chance.random() < 0.1]
        spec = JobSpec(
            code=code.format(s=chance.uniform(0.02, LONGEST_S) ** 2 / LONGEST_S),
            idempotency_key=f"chaos-{number}",
            priority=chance.choice(("high", "normal", "low")),
        )
        while True:
            try:
                expected[client.submit(spec).id] = end
                break
            except (StoreUnavailable, CallerError):
                time.sleep(0.2)
        time.sleep(max(0.0, began + over_s * number / count - time.monotonic()))
    return expected


def run(folder: Path, *, jobs: int, for_s: float, seed: int) -> dict[str, object]:
    """Run it; the report. Raises AssertionError for whatever does not hold."""
    chance = random.Random(seed)
    with (
        hosts(folder, 3, **SETTINGS) as (network, store, workers),
        Client(store.url) as client,
        closing(Appearing(host.records for host in workers)) as recorded,
    ):
        wait_until(lambda: len(client._ledger.figures.workers()) == 3, 60, "three workers")
        chaos = Chaos(network, store, workers, chance)
        with ThreadPoolExecutor(1) as pool:
            submitting = pool.submit(submit_all, client, jobs, for_s, random.Random(seed + 1))
            ends = time.monotonic() + for_s
            while time.monotonic() < ends or not submitting.done():
                time.sleep(chance.uniform(1, 5))
                chaos.one()
            expected = submitting.result()
        healed = time.monotonic()
        ledger = client._ledger
        wait_until(lambda: len(ledger.reads.settled(list(expected))) == len(expected), 240, "every job's end")
        drained_s = time.monotonic() - healed
        events = read_events(client)
        check(client, expected, events)
        for host in workers:  # one that has just come back has had no time to clean up
            wait_until(partial(swept, host), 60, f"{host.name} sweeping")
            host.stop()
        left = [one for host in workers for one in remains(host)]
        recorded.close()
        sandboxes = {name.partition(".")[0] for name in recorded.names}
        assert len(sandboxes) >= len(expected), "each job had one, so each has to be found gone"
        left += cgroups_of(sandboxes)
        assert not left, f"left behind: {left}"
        return report(expected, events, chaos, drained_s) | {"seed": seed}


def check(client: Client, expected: dict[str, str], events: list[Event]) -> None:
    """Everything docs/guarantees.md promises of it."""
    terminal = Counter(event.job_id for event in events if event.terminal)
    wrong = {job: terminal[job] for job in expected if terminal[job] != 1}
    assert wrong == {}, "one terminal event each"
    assert set(terminal) == set(expected), "and of nothing else"
    last = {event.job_id: event.type.removeprefix("agent.run.") for event in events if event.terminal}
    assert last == expected, "each ended as its program does, whatever happened to its workers"
    for job_id in expected:
        assert client.result(job_id, timeout_s=5).job_id == job_id
    ledger, redis = client._ledger, client._redis
    assert (ledger.figures.depth(), ledger.figures.running()) == (0, 0)
    keys = ledger.keys
    indices = [
        keys.delayed,
        keys.deadlines,
        keys.slots("default"),
        keys.ready("default"),
        keys.lane_turns,
        keys.lane_heads,
        keys.parked,
    ]
    assert redis.exists(*indices) == 0, "no slot is held, nobody waits"


def read_events(client: Client) -> list[Event]:
    events: list[Event] = []
    while batch := client.events(events[-1].id if events else "0", limit=1000):
        events += batch
    return events


def report(
    expected: dict[str, str], events: list[Event], chaos: Chaos, drained_s: float
) -> dict[str, object]:
    """How much happened, and how soon what was lost ran again."""
    found = recovered(events, chaos.done)
    recoveries = sorted(took_s for took_s, losses in found if losses <= 1)
    later = [took_s for took_s, losses in found if losses > 1]  # these have a pause before them
    attempts = Counter(event.attempt for event in events if event.terminal)
    return {
        "jobs": len(expected),
        "faults": dict(Counter(name for _, name, _ in chaos.done)),
        "attempts": {str(number): count for number, count in sorted(attempts.items())},
        "all_ended_after_the_last_fault_s": round(drained_s, 1),
        "recoveries": len(recoveries),
        "recovery_p50_s": round(statistics.median(recoveries), 1) if recoveries else None,
        "recovery_p95_s": round(recoveries[int(0.95 * (len(recoveries) - 1))], 1) if recoveries else None,
        "recovery_max_s": round(recoveries[-1], 1) if recoveries else None,
        "recoveries_of_a_second_loss": len(later),
        "recovery_of_a_second_loss_max_s": round(max(later), 1) if later else None,
    }


def recovered(events: list[Event], faults: Sequence[tuple[float, str, str]]) -> list[tuple[float, int]]:
    """Seconds from a worker's death to the next start of each of its jobs, and their losses until then."""
    deadly = {"kill_worker", "power_cut", "freeze", "partition"}
    found = []
    history: dict[str, list[Event]] = {}
    for event in events:
        history.setdefault(event.job_id, []).append(event)
    for at, name, host in faults:
        if name not in deadly:
            continue
        for job in history.values():
            before = [event for event in job if event.at <= at]
            after = [event for event in job if event.at > at and event.type == "agent.run.started"]
            running = before and before[-1].type == "agent.run.started"
            if running and after and (before[-1].worker or "").startswith(f"{host}-"):
                losses = [
                    event for event in job if event.outcome is Outcome.WORKER_LOST and event.at <= after[0].at
                ]
                found.append((after[0].at - at, len(losses)))
    return found


def main() -> None:
    """Run it in full: JOBS, SECONDS and SEED from the arguments."""
    jobs, for_s, seed = (int(word) for word in sys.argv[1:4])
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        print(json.dumps(run(folder, jobs=jobs, for_s=for_s, seed=seed)))


if __name__ == "__main__":
    main()
