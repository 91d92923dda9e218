"""`make bench`: what admission and claiming cost, with few tenants in the store and with very many.

Two Redis servers side by side, one with 10 tenants and one with TENANTS (100000), each tenant with one job
waiting. Calls alternate between them; both do the same work. Latencies are of whole calls, client and
network included.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from cellblock.ledger import Claim, Ledger, connect
from cellblock_config import load_settings
from ledger.kit import OPEN, manifest, operation, result_of
from parts import RedisServer

FEW, MANY = 10, int(os.environ.get("TENANTS", "100000"))
CALLS = 3000
GATES = replace(OPEN, reserve_micros=1, result_ttl_s=60)
GIVEN = manifest()
#: Flat: with ten thousand times the tenants, no more than this many times as long.
FLAT = 1.5


@dataclass
class Store:
    """A ledger with this many tenants."""

    ledger: Ledger
    tenants: int

    def admit(self) -> None:
        """One job for one of them."""
        tenant = f"tenant{random.randrange(self.tenants)}"
        self.ledger.admissions.admit(
            uuid.uuid4().hex, GIVEN.model_copy(update={"tenant": tenant}), gates=GATES
        )

    def claim(self) -> Claim:
        """Claim the next job."""
        claimed = self.ledger.claims.claim_next(message="-", worker="bench", operation=operation())
        assert isinstance(claimed, Claim)
        return claimed


def main() -> int:
    """Measure, print, write build/bench/admission.json. 1 if it is not flat."""
    took: dict[str, dict[int, list[float]]] = {
        name: {FEW: [], MANY: []} for name in ("admit", "claim", "finish")
    }
    with ExitStack() as stack:
        stores = [filled(stack, count) for count in (FEW, MANY)]
        for number in range(CALLS):
            for store in stores if number % 2 else reversed(stores):
                took["admit"][store.tenants].append(timed(store.admit)[0])
                claim_s, held = timed(store.claim)
                took["claim"][store.tenants].append(claim_s)
                assert isinstance(held, Claim)
                result = result_of(held)
                took["finish"][store.tenants].append(
                    timed(lambda s=store, h=held, r=result: s.ledger.finish(h, r, operation()))[0]
                )
    found = {
        name: {str(count): {"p50_ms": p(values, 50), "p99_ms": p(values, 99)} for count, values in by.items()}
        for name, by in took.items()
    }
    Path("build/bench").mkdir(parents=True, exist_ok=True)
    Path("build/bench/admission.json").write_text(json.dumps(found, indent=2))
    table = Table("", f"{FEW} tenants p50", "p99", f"{MANY} tenants p50", "p99", "p50 ratio", "p99 ratio")
    flat = True
    for name, by in found.items():
        few, many = by[str(FEW)], by[str(MANY)]
        ratio = many["p50_ms"] / few["p50_ms"]
        flat = flat and ratio <= FLAT
        cells = [f"{one[at]:.2f} ms" for one in (few, many) for at in ("p50_ms", "p99_ms")]
        table.add_row(name, *cells, f"{ratio:.2f}", f"{many['p99_ms'] / few['p99_ms']:.2f}")
    Console(width=None if sys.stdout.isatty() else 110).print(table)
    return 0 if flat else 1


def filled(stack: ExitStack, tenants: int) -> Store:
    """A server of its own with a job of each tenant waiting."""
    server = RedisServer(Path(stack.enter_context(tempfile.TemporaryDirectory())))
    server.start()
    stack.callback(server.stop)
    settings = load_settings(redis={"url": server.url}, ledger={"queue_depth": 10**7})
    redis = connect(settings)
    stack.callback(redis.close)
    ledger = Ledger(redis, settings)

    def some(first: int) -> None:
        for number in range(first, tenants, 4):
            one = GIVEN.model_copy(update={"tenant": f"tenant{number}"})
            ledger.admissions.admit(uuid.uuid4().hex, one, gates=GATES)

    parts = [threading.Thread(target=some, args=(first,)) for first in range(4)]
    for part in parts:
        part.start()
    for part in parts:
        part.join()
    return Store(ledger, tenants)


def timed(call: object) -> tuple[float, object]:
    """(milliseconds, what it returned)."""
    assert callable(call)
    started = time.perf_counter()
    said = call()
    return 1000 * (time.perf_counter() - started), said


def p(values: Sequence[float], percent: int) -> float:
    """The percentile, nearest rank."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)], 3)


if __name__ == "__main__":
    sys.exit(main())
