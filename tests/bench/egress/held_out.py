"""Each class of the wide corpus, measured on the filter without what was made for that class.

    PYTHONPATH=tests python tests/bench/egress/held_out.py [--seed N] [--class NAME]

The tables below name what is taken out for each class: its forms of places, its values, its words, and the
families of values that the scorer learns from. New weights are made without those, and kept in memory.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

from bench.egress.train_scorer import train
from bench.egress.wide.disguises import WRAPPED, WRITERS, survives
from bench.egress.wide.kinds import GROUPS, secrets
from bench.egress.wide.making import WideSecret
from cellblock.egress import filter_text, places
from cellblock.egress import secrets as exact
from cellblock.egress.places import assessment, containers, lexicon, lines, tables
from cellblock.egress.values import checksums, scorer, seeds

PATH = Path("build/bench/egress-held-out.json")
WAYS_EACH = 3
#: Forms of places behind a name, and what needs none, by the class they were made for.
BEHIND = {
    "chat": ("prose",),
    "keyvalue": ("blocks", "beside"),
    "network": ("devices",),
    "databases": ("beside",),
}
FREE = {"commands": ("commands",), "databases": ("calls",), "chat": ("calls",)}
ALONE = {
    "containers": ("containers",),
    "hashes": ("hashes",),
    "providers": ("prefixed",),
    "databases": ("lines",),
    "signed": ("lines",),
    "codes": ("lines",),
    "wallets": ("containers",),
}
#: Families of values the scorer has not seen then.
VALUES = {
    "providers": ("prefixed", "base64url"),
    "wallets": ("hex", "base32"),
    "codes": ("grouped",),
    "cloud": ("base64", "alnum"),
    "keyvalue": ("signs",),
    "tables": ("alnum",),
    "commands": ("signs",),
    "databases": ("alnum",),
    "hashes": ("base64",),
    "signed": ("base64url", "hex"),
}


@contextmanager
def without(name: str) -> Iterator[None]:  # noqa: C901  # one line for each class
    """The filter as if nobody had thought of this class. Mocks take parts out; nothing else is changed."""
    with ExitStack() as stack:

        def put(*what: object) -> None:
            stack.enter_context(patch.object(*what))  # type: ignore[call-overload]

        for table, taken in ((places.BEHIND, BEHIND), (places.ALONE, ALONE)):
            left = {key: value for key, value in table.items() if key not in taken.get(name, ())}
            stack.enter_context(patch.dict(table, left, clear=True))
        free = {key: look for key, look in places.FREE.items() if key not in FREE.get(name, ())}
        stack.enter_context(patch.dict(places.FREE, free, clear=True))
        if name == "commands":
            put(lines, "SOURCES", tuple(one for one in lines.SOURCES if one[1].__name__ != "_commands"))
        if name == "tables":
            put(tables, "columns", lambda text, found: iter(()))
        if name == "providers":
            put(exact, "RULES", ())
        if name == "containers":
            put(containers, "find", lambda text: iter(()))
        if name == "wallets":
            put(checksums, "find", lambda text: iter(()))
            put(seeds, "find", lambda text: iter(()))
        if name == "passphrases":
            put(assessment, "is_passphrase", lambda value, setting: False)
        if name == "languages":
            put(lexicon, "_in_other_scripts", lambda text: iter(()))
            put(lexicon, "_ALL_CHOSEN", {stem for stem in lexicon._ALL_CHOSEN if stem.startswith("pass")})
        if name in VALUES:
            raw = train(frozenset(VALUES[name]))
            made = tuple((byte - 128) / scorer.SCALE for byte in raw)
            put(scorer, "weights", lambda: made)
        _forget()
        try:
            yield
        finally:
            _forget()


def _forget() -> None:
    scorer.score.cache_clear()
    for cached in (lexicon.promised, lexicon._may_tell, lexicon._of_segment):
        cached.cache_clear()


def measured(name: str, seed: int) -> dict[str, float]:
    """Recall on one class: plain, encoded, wrapped."""
    rng = random.Random(f"{seed} {name}")
    good: dict[str, list[bool]] = {"plain": [], "encoded": [], "wrapped": []}
    for made in [*secrets(rng, (name,)), *secrets(rng, (name,))]:
        for way in ("plain", *rng.sample(sorted(WRITERS), WAYS_EACH)):
            form = "plain" if way == "plain" else "wrapped" if way in WRAPPED else "encoded"
            good[form].append(_is_held_back(made, way, rng))
    return {form: sum(held) / max(1, len(held)) for form, held in good.items()}


def _is_held_back(made: WideSecret, way: str, rng: random.Random) -> bool:
    text = made.text if way == "plain" else WRITERS[way](made.text, rng)
    left = filter_text(text).text
    return not survives(way, text, made.core, left)


def main() -> int:
    """Print one line for each class, with it and without, and write build/bench/egress-held-out.json."""
    parser = argparse.ArgumentParser(description="Leave one class out, and measure it.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--class", dest="classes", action="append", choices=GROUPS)
    chosen = parser.parse_args()
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name in chosen.classes or GROUPS:
        known = measured(name, chosen.seed)
        with without(name):
            found[name] = {"known": known, "held out": measured(name, chosen.seed)}
        shown = "  ".join(
            f"{form} {known[form]:.2f} -> {found[name]['held out'][form]:.2f}" for form in known
        )
        print(f"{name:12} {shown}", flush=True)
    for form in ("plain", "encoded", "wrapped"):
        share = sum(one["held out"][form] for one in found.values()) / len(found)
        print(f"held out, mean of classes, {form}: {share:.3f}")
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
