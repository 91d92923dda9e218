"""What a filter holds back of secrets that its rules were not made from, and what that costs honest jobs.

    PYTHONPATH=tests python tests/bench/egress/wide_score.py [--seed N] [--classes A,B] [--show N]

The corpus is in wide/: kinds by class, with the disguises, honest outputs and contexts that go with them.
``measured`` takes any filter, so that one which was made without a class can be measured on that class.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.egress.score import Tally, _around_change, _visible, _with_progress
from bench.egress.wide.contexts import fair, leaks
from bench.egress.wide.disguises import WRAPPED, WRITERS, survives
from bench.egress.wide.honest import honest
from bench.egress.wide.kinds import GROUPS, secrets
from bench.egress.wide.making import WideSecret
from cellblock.egress import filter_text

Filter = Callable[[str], str]
#: Whether an output is blocked, given the context and the output.
EchoFilter = Callable[[str, str], bool]
PATH = Path("build/bench/egress-wide.json")
PARTS = ("secrets", "honest", "echo")
FORMS = ("plain", "encoded", "wrapped")
CONTROL_SHOWN = re.compile(r"[\u2400-\u2426]|\\(?:u[0-9a-f]{4}|x[0-9a-f]{2})")
BEFORE, AFTER = "Step 4 of 9: read the settings of the node\n", "\nFinished after 12.4 s with 3 warnings.\n"


@dataclass
class Measured:
    """The tallies of one filter: recall by class, form, disguise and kind; honest outputs; contexts."""

    recall: dict[str, Tally] = field(default_factory=lambda: {form: Tally() for form in FORMS})
    disguises: Tally = field(default_factory=Tally)
    kinds: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    honest: Tally = field(default_factory=Tally)
    echoes: dict[str, Tally] = field(default_factory=dict)

    def never(self) -> list[str]:
        """The kinds that were not held back once in plain."""
        return sorted(kind for kind, held in self.kinds.items() if not any(held))

    def summary(self) -> dict[str, Any]:
        tallies = {**self.recall, "disguises": self.disguises, "honest": self.honest, **self.echoes}
        shown = {name: tally.summary() for name, tally in tallies.items() if tally.total}
        return {"never caught": self.never(), "kinds": len(self.kinds), **shown}


def measured(
    keep_back: Filter,
    seed: int = 1,
    groups: Sequence[str] = GROUPS,
    parts: Iterable[str] = ("secrets", "honest"),
    repeats: int = 4,
    disguises: int = 6,
    blocks: EchoFilter | None = None,
) -> Measured:
    """One filter on the texts that ``seed`` makes; each secret in that many disguises drawn from all."""
    found = Measured()
    for part in parts:
        rng = random.Random(f"{seed} {part}")
        if part == "secrets":
            for made in _with_progress("secrets", _repeated(rng, groups, repeats)):
                _plain(found, keep_back, made, rng)
                _disguised(found, keep_back, made, rng, disguises)
        elif part == "honest":
            for kind, text in _with_progress("honest", honest(rng)):
                _harmless(found, keep_back, kind, text)
        elif blocks is not None:
            for name, cases, wanted in (("leaks blocked", leaks, True), ("reports let through", fair, False)):
                tally = found.echoes[name] = Tally()
                for context, output, how in _with_progress(name, cases(rng)):
                    tally.add(how, blocks(context, output) is wanted, f"{how}, of {len(context)}", output)
    return found


def _repeated(rng: random.Random, groups: Sequence[str], repeats: int) -> Iterator[WideSecret]:
    for _ in range(repeats):
        yield from secrets(rng, groups)


def _plain(found: Measured, keep_back: Filter, made: WideSecret, rng: random.Random) -> None:
    """Alone or amid other lines, by chance."""
    text = rng.choice((made.text, BEFORE + made.text + AFTER))
    left = keep_back(text)
    held = not survives("in prose", text, made.core, left)
    found.recall["plain"].add(made.group, held, f"{made.group}/{made.kind}", left)
    found.kinds[f"{made.group}/{made.kind}"].append(held)


def _disguised(found: Measured, keep_back: Filter, made: WideSecret, rng: random.Random, count: int) -> None:
    """The text as printed, and the bare core where it tells by itself what it is."""
    for way in rng.sample(sorted(WRITERS), k=count):
        bare = made.marked and rng.random() < 0.3
        written = WRITERS[way](made.core if bare else made.text, rng)
        left = keep_back(written)
        held = not survives(way, written, made.core, left)
        what = f"{made.group}/{made.kind}, {way}{', bare' if bare else ''}"
        found.recall["wrapped" if way in WRAPPED else "encoded"].add(made.group, held, what, left)
        found.disguises.add(way, held, what, left)


def _harmless(found: Measured, keep_back: Filter, kind: str, text: str) -> None:
    left = keep_back(text)
    good = unchanged(text, left)
    found.honest.add(kind, good, kind, "" if good else _around_change(text, left))


def unchanged(text: str, left: str) -> bool:
    """But for control characters: a filter may take them out, or show them otherwise, and what they lead."""
    before, after = _visible(text), _visible(CONTROL_SHOWN.sub("", left))
    if before == after:
        return True
    controls = sum(not char.isprintable() and char not in "\r\n\t" for char in text)
    return controls > 0 and abs(len(after) - len(before)) <= 6 * controls and len(after) >= 0.8 * len(before)


def by_cellblock(text: str) -> str:
    return str(filter_text(text).text)


def blocked_by_cellblock(context: str, output: str) -> bool:
    return bool(filter_text(output, context=context).blocked)


def main() -> int:
    """Measure the parts asked for, print the tables, write build/bench/egress-wide.json."""
    parser = argparse.ArgumentParser(description="Recall on kinds that no rule was made from.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", choices=PARTS, action="append", help="default: all; may be repeated")
    parser.add_argument("--classes", default=",".join(GROUPS), help="of secrets, separated by commas")
    parser.add_argument("--repeats", type=int, default=4, help="of every kind of secret")
    parser.add_argument("--disguises", type=int, default=6, help="of every secret")
    parser.add_argument("--show", type=int, default=10, metavar="N", help="failures shown of each part")
    chosen = parser.parse_args()
    groups = chosen.classes.split(",")
    if unknown := set(groups) - set(GROUPS):
        parser.error(f"--classes: {', '.join(sorted(unknown))}: not one of {', '.join(GROUPS)}")
    found = measured(
        by_cellblock,
        seed=chosen.seed,
        groups=groups,
        parts=chosen.part or PARTS,
        repeats=chosen.repeats,
        disguises=chosen.disguises,
        blocks=blocked_by_cellblock,
    )
    console = Console(width=None if sys.stdout.isatty() else 110)
    show(console, found, chosen.show)
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(json.dumps({"seed": chosen.seed, **found.summary()}, indent=2) + "\n")
    return 0


def show(console: Console, found: Measured, most: int) -> None:
    """Recall by class and form, the worst disguises, kinds never caught, honest outputs, contexts."""
    if found.kinds:
        console.print(_recall_table(found))
        console.print(_share_table("disguises", found.disguises))
        console.print(f"never caught, of {len(found.kinds)} kinds: {', '.join(found.never()) or 'none'}")
        for form in FORMS:
            _print_failed(console, found.recall[form], most)
    for name, tally in {"honest left as it is": found.honest, **found.echoes}.items():
        if tally.total:
            console.print(_share_table(name, tally))
            _print_failed(console, tally, most)


def _recall_table(found: Measured) -> Table:
    table = Table("class", *FORMS, title="recall by class")
    for group in found.recall["plain"].total:
        table.add_row(group, *(_percent(found.recall[form], group) for form in FORMS))
    table.add_row("all", *(f"{found.recall[form].share():.1%}" for form in FORMS))
    return table


def _percent(tally: Tally, group: str) -> str:
    return f"{tally.share(group):.1%} of {tally.total[group]}" if group in tally.total else ""


def _share_table(name: str, tally: Tally) -> Table:
    """From the worst on; the flawless in one line."""
    table = Table(
        "", "good", "of", "share", title=f"{name}: {tally.share():.2%} of {sum(tally.total.values())}"
    )
    flawless = [group for group in tally.total if tally.good[group] == tally.total[group]]
    for group in sorted(set(tally.total) - set(flawless), key=lambda group: (tally.share(group), group)):
        table.add_row(group, str(tally.good[group]), str(tally.total[group]), f"{tally.share(group):.1%}")
    table.add_row(f"{len(flawless)} others", "", "", "100%")
    return table


def _print_failed(console: Console, tally: Tally, most: int) -> None:
    step = max(1, len(tally.failed) // max(1, most))
    for what, left in tally.failed[::step][:most]:
        shortened = left if len(left) <= 200 else f"{left[:150]} ... {left[-40:]}"
        console.print(f"  {what}: {shortened!r}", markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main())
