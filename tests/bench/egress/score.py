"""How much of what must not leave a job the output filter holds back, and what it costs honest jobs.

    PYTHONPATH=tests python tests/bench/egress/score.py [--seed N] [--part NAME] [--show N]

Recall: made secrets of every kind, plain and in every disguise; a secret counts as held back if nobody who
knows the disguise could read it out of what is left. False positives: honest outputs that were changed by
more than the cleaning of control characters. Echo: outputs that hand on the job's context, and outputs that
only report on it. Cost: milliseconds by size of an honest output.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from bench.egress.echoes import fair, leaks
from bench.egress.honest import honest, mixed
from bench.egress.made_secrets import MadeSecret, encodings, secrets, survives
from bench.report import percentile
from cellblock.egress import filter_text

PATH = Path("build/bench/egress.json")
#: Redactions of this kind take control characters out, which an honest output may well have.
CONTROL = "control"
BEFORE, AFTER = "Reading the configuration of stage 3 ...\n", "\nDone in 3.2 s, 14 files checked.\n"
SIZES = {"hello": 6, "4 KB": 4_096, "64 KB": 65_536, "1 MB": 1_048_576}
#: What the filter was made to reach; less is an exit code of 1.
LEAST = {
    "plain": 0.995,
    "encoded line": 0.97,
    "encoded bare": 0.97,
    "honest": 0.995,
    "leaks blocked": 0.99,
    "reports let through": 0.99,
}
QUIET_S = 2.0
Item = TypeVar("Item")


@dataclass
class Tally:
    """What came out well of how many, by group, and what did not."""

    good: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    total: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    failed: list[tuple[str, str]] = field(default_factory=list)  #: what it was, and what the filter left
    took_s: float = 0.0

    def add(self, group: str, good: bool, what: str, left: str) -> None:
        self.good[group] += good
        self.total[group] += 1
        if not good:
            self.failed.append((what, left))

    def share(self, group: str | None = None) -> float:
        if group is not None:
            return self.good[group] / self.total[group]
        return sum(self.good.values()) / max(1, sum(self.total.values()))

    def summary(self) -> dict[str, object]:
        groups = {name: [self.good[name], total] for name, total in self.total.items()}
        calls, failed = sum(self.total.values()), [what for what, _ in self.failed]
        return {"share": self.share(), "of": calls, "took_s": self.took_s, "groups": groups, "failed": failed}


def main() -> int:
    """Measure the parts asked for, print the tables, write build/bench/egress.json."""
    parser = argparse.ArgumentParser(description="What the output filter holds back, and what it costs.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--part", choices=(*PARTS, "cost"), action="append", help="default: all; may be repeated"
    )
    parser.add_argument("--show", type=int, default=10, metavar="N", help="failures shown of each part")
    parser.add_argument("--repeats", type=int, default=2, help="of every kind of secret")
    chosen = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 110)
    found: dict[str, Any] = {"seed": chosen.seed}
    shares: dict[str, float] = {}
    for part in chosen.part or (*PARTS, "cost"):
        rng = random.Random(f"{chosen.seed} {part}")
        if part == "cost":
            found[part] = cost(rng)
            console.print(_cost_table(found[part]))
            continue
        for name, tally in PARTS[part](rng, chosen.repeats).items():
            found[name] = tally.summary()
            shares[name] = tally.share()
            _show(console, name, tally, chosen.show)
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(json.dumps(found, indent=2) + "\n")
    missed = [
        f"{name} {shares[name]:.2%}, not {least:.1%}"
        for name, least in LEAST.items()
        if name in shares and shares[name] < least
    ]
    for one in missed:
        print(f"missed: {one}", file=sys.stderr)
    return 1 if missed else 0


def plain(rng: random.Random, repeats: int) -> dict[str, Tally]:
    """Every kind as it would be printed: alone, and amid other lines, which should stay."""
    held, kept = Tally(), Tally()
    for made in _with_progress("plain", _all_secrets(rng, 2 * repeats)):
        alone = _filtered(held, made.text)
        held.add(made.kind, not survives("plain", made.text, made.core, alone), f"{made.kind}, alone", alone)
        amid = _filtered(held, text := BEFORE + made.text + AFTER)
        held.add(made.kind, not survives("plain", text, made.core, amid), f"{made.kind}, amid", amid)
        whole = BEFORE.strip() in amid and AFTER.strip() in amid
        kept.add("lines around", whole, f"{made.kind}, lines around", amid)
    return {"plain": held, "kept around plain": kept}


def encoded(rng: random.Random, repeats: int) -> dict[str, Tally]:
    """The line as printed in every disguise, and the bare secret where it tells by itself what it is."""
    lines, bare = Tally(), Tally()
    ways = {name: write for name, write in encodings().items() if name != "plain"}
    for made in _with_progress("encoded", _all_secrets(rng, repeats)):
        for name, write in ways.items():
            for tally, text in ((lines, made.text), (bare, made.core if made.marked else "")):
                if text:
                    left = _filtered(tally, written := write(text, rng))
                    gone = not survives(name, written, made.core, left)
                    tally.add(name, gone, f"{made.kind}, {name}", left)
    return {"encoded line": lines, "encoded bare": bare}


def harmless(rng: random.Random, _: int) -> dict[str, Tally]:
    """Honest outputs; good are those left as they are."""
    tally = Tally()
    for kind, text in _with_progress("honest", honest(rng)):
        report = _timed(tally, text)
        kinds = sorted({one.kind for one in report.redactions} - {CONTROL})
        changed = _visible(report.text) != _visible(text) and not report.redactions
        good = not (kinds or changed or report.blocked)
        left = "" if good else _around_change(text, report.text)
        tally.add(
            kind, good, f"{kind}: {', '.join(kinds) or ('blocked' if report.blocked else 'changed')}", left
        )
    return {"honest": tally}


def echo(rng: random.Random, _: int) -> dict[str, Tally]:
    """Leaks should be blocked, reports should not."""
    found = {}
    for name, cases, blocked in (("leaks blocked", leaks, True), ("reports let through", fair, False)):
        tally = Tally()
        for context, output, how in _with_progress(name, cases(rng)):
            report = _timed(tally, output, context=context)
            what = f"{how}, of {len(context)} characters: {context[:30]!r}"
            tally.add(how, report.blocked is blocked, what, output)
        found[name] = tally
    return found


def cost(rng: random.Random, rounds: int = 9) -> dict[str, dict[str, float]]:
    """Milliseconds for honest outputs of each size, each time another."""
    found = {}
    for name, size in _with_progress("cost", SIZES.items()):
        took = []
        for _ in range(rounds):
            text = "hello\n" if size == 6 else mixed(rng, size)
            started = time.perf_counter()
            filter_text(text)
            took.append((time.perf_counter() - started) * 1000)
        found[name] = {"p50": statistics.median(took), "p95": percentile(took, 95), "worst": max(took)}
    return found


PARTS: dict[str, Callable[[random.Random, int], dict[str, Tally]]] = {
    "plain": plain,
    "encoded": encoded,
    "honest": harmless,
    "echo": echo,
}


def _all_secrets(rng: random.Random, repeats: int) -> Iterator[MadeSecret]:
    for _ in range(repeats):
        yield from secrets(rng)


def _timed(tally: Tally, text: str, context: str | None = None) -> Any:
    started = time.perf_counter()
    report = filter_text(text, context=context)
    tally.took_s += time.perf_counter() - started
    return report


def _filtered(tally: Tally, text: str) -> str:
    return str(_timed(tally, text).text)


def _visible(text: str) -> str:
    """Without what a terminal would not show."""
    plain = re.sub(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|.)", "", text)
    return "".join(filter(str.isprintable, plain))


def _around_change(before: str, after: str) -> str:
    """The first place where they differ."""
    at = next((n for n, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), 0)
    return f"{before[max(0, at - 60) : at + 60]}  =>  {after[max(0, at - 20) : at + 60]}"


def _with_progress(name: str, items: Iterable[Item]) -> Iterator[Item]:
    """On stderr, once it takes more than two seconds."""
    started = shown = time.monotonic()
    for number, item in enumerate(items):
        if (now := time.monotonic()) - shown > QUIET_S:
            print(f"{name}: {number} done in {now - started:.0f} s", file=sys.stderr)
            shown = now
        yield item


def _show(console: Console, name: str, tally: Tally, most: int) -> None:
    """The groups from the worst on, the flawless in one line; some failures, from all over."""
    calls = sum(tally.total.values())
    title = f"{name}: {tally.share():.2%} of {calls}, {1000 * tally.took_s / max(1, calls):.2f} ms each"
    table = Table("", "good", "of", "share", title=title)
    flawless = [group for group in tally.total if tally.good[group] == tally.total[group]]
    for group in sorted(tally.total, key=partial(Tally.share, tally)):
        if group not in flawless:
            table.add_row(group, str(tally.good[group]), str(tally.total[group]), f"{tally.share(group):.1%}")
    table.add_row(f"{len(flawless)} others", "", "", "100%")
    console.print(table)
    step = max(1, len(tally.failed) // max(1, most))
    for what, left in tally.failed[::step][:most]:
        shortened = left if len(left) <= 160 else f"{left[:110]} ... {left[-40:]}"
        console.print(f"  {what}: {shortened!r}", markup=False, highlight=False)


def _cost_table(found: dict[str, dict[str, float]]) -> Table:
    table = Table("", "p50 ms", "p95 ms", "worst ms", title="honest outputs, no context")
    for size, took in found.items():
        table.add_row(size, *(f"{value:.2f}" for value in took.values()))
    return table


if __name__ == "__main__":
    sys.exit(main())
