"""What one tenant can do to the others: each attack of nasty.py beside a tenant that runs hellos.

    PYTHONPATH=tests python -m faults.neighbours [--level LEVEL] [--every S] [--seconds S] [ATTACK …]

Redis, the launcher, the worker and the sandboxes are real. The neighbour runs a hello every 100 ms; on two
processors that is more than gVisor can do (standard, strict), so give those levels --every 0.4. The attacker
submits as fast as its plan admits, to its limit of runs at once. The table: the hello's p50 and p95 alone and
beside each attack, how the attacks ended, and what the attacker paid.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.table import Table

from bench.report import percentile
from cellblock import BudgetExceeded, CellblockError, Client, InvalidJob, Job, JobSpec, RateLimited
from cellblock_config.levels import LevelName
from faults.nasty import ATTACKS, Attack
from parts import RedisServer, launcher_process, wait_until, worker_process

PATH = Path("build/bench/neighbours.json")
_POLL_S = 0.1
RESULT_S = 120
#: A plan of the ones that come with cellblock, large enough for every attack.
PLAN = "premium"
PLAN_RATE_PER_S = 5
ISOLATIONS = {
    "CELLBLOCK_SANDBOX_ISOLATIONS": '["gvisor", "namespaces"]',
    "CELLBLOCK_LAUNCHER_BACKENDS": '["oci"]',
}
#: Jobs of the attacker that wait or run at once: its plan lets a few of them run.
AHEAD = 8


@dataclass(frozen=True, slots=True)
class Waits:
    """How long hellos took, from before their submission to their result; those that failed are counted."""

    count: int
    p50_ms: float
    p95_ms: float
    failed: int

    @classmethod
    def of(cls, took_ms: list[float], failed: int) -> Waits:
        """The median and the 95th percentile of these, and how many failed."""
        return cls(
            len(took_ms), round(statistics.median(took_ms), 1), round(percentile(took_ms, 95), 1), failed
        )


@dataclass(frozen=True, slots=True)
class Beside:
    """One attack: the neighbour's waits beside it, how the attacks ended, and their bill."""

    attack: str
    finding: str
    waits: Waits
    outcomes: dict[str, int]
    cost_micros: int
    cpu_ms: int


@dataclass
class Fleet:
    """One host with one worker, and a client."""

    client: Client
    worker: subprocess.Popen[bytes]
    level: LevelName
    every_s: float

    def worker_lives(self) -> bool:
        """Whether its worker is the one that was started."""
        return self.worker.poll() is None

    def alone(self, seconds: float) -> Waits:
        """The hello without an attacker."""
        return self._hellos(seconds)

    def beside(self, attack: Attack, seconds: float) -> Beside:
        """The hello beside this attack, from when the attacker's first job was admitted."""
        attacker = _Attacker(self.client, attack, self.level)
        attacker.start()
        try:
            wait_until(
                lambda: attacker.jobs or attacker.refused or attacker.fault,
                30,
                f"the first job of: {attack.name}",
            )
            waits = self._hellos(seconds)
        finally:
            attacker.stop()
        outcomes, cost_micros, cpu_ms = attacker.bill()
        return Beside(attack.name, attack.finding, waits, outcomes, cost_micros, cpu_ms)

    def _hellos(self, seconds: float) -> Waits:
        """A hello every so often, each in a thread of its own: one that waits holds up no other."""
        spec = JobSpec(code="print('hello')", tenant="neighbour", level=self.level)
        took_ms: list[float] = []
        failed = 0
        lock = threading.Lock()

        def hello() -> None:
            nonlocal failed
            began = time.monotonic()
            try:
                job = self.client.submit(spec)
                stdout = job.result(timeout_s=RESULT_S).stdout
            except CellblockError as error:
                stdout = str(error)
            with lock:
                took_ms.append(1000 * (time.monotonic() - began))
                failed += stdout != "hello\n"

        threads = []
        ends = time.monotonic() + seconds
        while (now := time.monotonic()) < ends:
            threads.append(threading.Thread(target=hello))
            threads[-1].start()
            time.sleep(max(0.0, now + self.every_s - time.monotonic()))
        for thread in threads:
            thread.join()
        return Waits.of(took_ms, failed)


class _Attacker(threading.Thread):
    """Submits as fast as the plan admits."""

    def __init__(self, client: Client, attack: Attack, level: LevelName) -> None:
        super().__init__(daemon=True)
        self._client, self._attack, self._level = client, attack, level
        self._stopped = threading.Event()
        self.jobs: list[Job] = []
        self.refused = 0
        self.fault: BaseException | None = None

    def run(self) -> None:
        try:
            number = 0
            while not self._stopped.is_set():
                number += 1
                self._submit(number)
        except BaseException as error:
            self.fault = error

    def _submit(self, number: int) -> None:
        spec = self._attack.make(number)
        level = spec.level if "level" in spec.model_fields_set else self._level
        own = {"tenant": "nasty", "plan": PLAN, "level": level}
        try:
            self.jobs.append(self._client.submit(spec.model_copy(update=own)))
        except RateLimited as refusal:
            self._stopped.wait(refusal.retry_after_s or _POLL_S)
        except BudgetExceeded:
            self._stopped.wait(1)
        except InvalidJob:  # some attacks end at the door
            self.refused += 1
            self._stopped.wait(1 / PLAN_RATE_PER_S)
        while len(self.jobs) - self._ended() >= AHEAD and not self._stopped.wait(_POLL_S):
            pass

    def _ended(self) -> int:
        return sum(job.status().state.terminal for job in self.jobs[-2 * AHEAD :]) + max(
            0, len(self.jobs) - 2 * AHEAD
        )

    def stop(self) -> None:
        self._stopped.set()
        self.join(30)
        if self.fault is not None:
            raise AssertionError(f"the attack was not made: {self._attack.name}") from self.fault

    def bill(self) -> tuple[dict[str, int], int, int]:
        """What they came to: those that still wait or run are cancelled, and pay for what they used."""
        for job in self.jobs:
            if not job.status().state.terminal:
                job.cancel()
        outcomes: Counter[str] = Counter({"refused": self.refused} if self.refused else {})
        cost_micros = cpu_ms = 0
        for job in self.jobs:
            result = job.result(timeout_s=RESULT_S)
            outcomes[result.outcome.value] += 1
            cost_micros += result.cost_micros or 0
            cpu_ms += result.usage.paid_cpu_ms
        return dict(outcomes), cost_micros, cpu_ms


@contextmanager
def fleet(folder: Path, *, level: LevelName = "permissive", every_s: float = 0.1) -> Iterator[Fleet]:
    """A fleet at default settings, on gVisor and namespaces, without Docker."""
    server = RedisServer(folder, fsync="everysec")
    server.start()
    try:
        with (
            launcher_process(folder, **ISOLATIONS) as (socket, _),
            worker_process(folder, server.url, socket, **ISOLATIONS) as worker,
            Client(server.url) as client,
        ):
            for one in get_args(LevelName):  # the first sandboxes of each level are cold
                for _ in range(10):
                    hello = client.submit(JobSpec(code="print('hello')", level=one))
                    assert hello.result(timeout_s=60).stdout == "hello\n"
            yield (made := Fleet(client, worker, level, every_s))
            assert made.worker_lives(), "the worker died"
    finally:
        server.stop()


def main() -> int:
    """Measure, print the table, write build/bench/neighbours.json. 1 where a p95 is more than tripled."""
    parser = argparse.ArgumentParser(description="What one tenant can do to the others.")
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help="parts of names; default: all")
    parser.add_argument("--level", choices=get_args(LevelName), default="permissive")
    parser.add_argument("--every", type=float, default=0.1, metavar="S", help="from hello to hello")
    parser.add_argument("--seconds", type=float, default=8.0, help="beside each attack")
    chosen = parser.parse_args()
    wanted = [
        one for one in ATTACKS if not chosen.attacks or any(part in one.name for part in chosen.attacks)
    ]
    found: list[Beside] = []
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        with fleet(Path(name), level=chosen.level, every_s=chosen.every) as host:
            alone = [host.alone(chosen.seconds)]
            for attack in wanted:
                print(f"{len(found) + 1}/{len(wanted)} {attack.name} …", file=sys.stderr)
                found.append(host.beside(attack, chosen.seconds))
            alone.append(host.alone(chosen.seconds))
    base_ms = statistics.mean(one.p95_ms for one in alone)
    _print(f"a hello every {chosen.every:g} s ({chosen.level})", alone, found, base_ms)
    PATH.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(PATH.read_text()) if PATH.exists() else {}
    known[chosen.level] = {"alone": [asdict(one) for one in alone], "beside": [asdict(one) for one in found]}
    PATH.write_text(json.dumps(known, indent=2) + "\n")
    return 1 if any(one.waits.p95_ms > 3 * base_ms or one.waits.failed for one in found) else 0


def _print(what: str, alone: list[Waits], found: list[Beside], base_ms: float) -> None:
    console = Console(width=None if sys.stdout.isatty() else 150)
    title = f"{what}: alone p50 {alone[0].p50_ms}, {alone[1].p50_ms} ms; "
    table = Table(title=f"{title}p95 {alone[0].p95_ms}, {alone[1].p95_ms} ms")
    for name in ("beside", "finding", "p50 ms", "p95 ms", "times", "failed", "attacks", "micros", "CPU s"):
        table.add_column(name, justify="left" if name in {"beside", "finding", "attacks"} else "right")
    for one in found:
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(one.outcomes.items()))
        times = f"{one.waits.p95_ms / base_ms:.1f}"
        figures = (f"{one.waits.p50_ms:.0f}", f"{one.waits.p95_ms:.0f}", times, str(one.waits.failed))
        table.add_row(
            one.attack, one.finding, *figures, outcomes, str(one.cost_micros), f"{one.cpu_ms / 1000:.1f}"
        )
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
