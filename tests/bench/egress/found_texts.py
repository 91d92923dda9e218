"""How much of what nobody wrote for the filter it leaves alone: reports, manuals, sources, listings of a machine.

    PYTHONPATH=tests python tests/bench/egress/found_texts.py [--python P] [--half look|held] [--show N]

The pieces are cut once and kept in build/bench/found-texts.jsonl: 0.2 to 30 KiB each, by a fixed seed. Every
second source, by its name's checksum, is held out: of those only the counts are shown, and they are what
counts. ``--python`` is an interpreter that has CPython's tests (Debian: libpython3.11-testsuite). What is a
secret by its form (a key of a test, a token of an example) is counted apart, and not as damage. Another
checkout's filter sees the same pieces with its producer/ and config/ on PYTHONPATH.
"""

# ruff: noqa: E501

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.egress.found_sources import families
from cellblock.egress import filter_text
from cellblock.egress.filtering import Redaction

PIECES = Path("build/bench/found-texts.jsonl")
LEAST_CHARS, MOST_CHARS = 200, 30 * 1024
#: The most of one source, and of one family, so that none outweighs the others.
SOURCE_MOST, FAMILY_MOST = 8, 320
LOOK, HELD = "look", "held"
#: What these find is a secret in any text: a private key, a token with its signature, a
#: password between a user and a host.
BY_FORM = {"private_key", "jwt", "connection_string", "password_hash", "wallet_key", "seed_phrase"}
CONTROL = "control"


@dataclass(frozen=True)
class Piece:
    """A stretch of a source, and the half it is of."""

    family: str
    source: str
    half: str
    text: str


def cut(python: str) -> Iterator[Piece]:
    """Pieces of all families, at the ends of lines."""
    for family, sources in families(python).items():
        rng = random.Random(family)
        found: list[Piece] = []
        for name, text in sources():
            half = HELD if zlib.crc32(f"{family} {name}".encode()) & 1 else LOOK
            at = 0
            for _ in range(SOURCE_MOST):
                size = int(LEAST_CHARS * (MOST_CHARS / LEAST_CHARS) ** rng.random())
                end = text.find("\n", at + size)
                end = len(text) if end < 0 else end + 1
                if end - at < LEAST_CHARS or end - at > 2 * MOST_CHARS:
                    break
                found.append(Piece(family, name, half, text[at:end]))
                at = end
        rng.shuffle(found)
        print(f"{family}: {len(found)} pieces", file=sys.stderr, flush=True)
        yield from found[:FAMILY_MOST]


def pieces(path: Path, python: str) -> list[Piece]:
    """The pieces of the last run, or new ones."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        half_done = path.with_suffix(".part")
        with half_done.open("w") as made:
            for piece in cut(python):
                print(json.dumps(asdict(piece)), file=made, flush=True)
        half_done.rename(path)
    return [Piece(**json.loads(line)) for line in path.read_text().splitlines()]


@dataclass
class Count:
    """Pieces by half and family: all, those that were changed, those that held what is a secret by its form."""

    total: Counter[tuple[str, str]] = field(default_factory=Counter)
    changed: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_form: Counter[tuple[str, str]] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    chars: int = 0

    def add(self, piece: Piece) -> list[Redaction]:
        """What was taken out of it wrongly."""
        self.total[piece.half, piece.family] += 1
        self.chars += len(piece.text)
        found = [one for one in filter_text(piece.text).redactions if one.kind != CONTROL]
        wrong = {one.kind for one in found} - BY_FORM
        if found:
            (self.changed if wrong else self.by_form)[piece.half, piece.family] += 1
        self.kinds.update(wrong)
        return found if wrong else []

    def show(self, half: str) -> None:
        print(f"\n{half}: family, changed, holding a secret by its form, of")
        for (of, family), count in sorted(self.total.items()):
            if of == half and (self.changed[of, family] or self.by_form[of, family]):
                print(f"  {family:20} {self.changed[of, family]:4} {self.by_form[of, family]:4} {count:5}")
        bad, formed, count = (
            sum(n for (of, _), n in counts.items() if of == half)
            for counts in (self.changed, self.by_form, self.total)
        )
        print(f"  {'all':20} {bad:4} {formed:4} {count:5}  changed {bad / max(1, count):.2%}")


def _explain(piece: Piece, found: list[Redaction]) -> None:
    for one in found[:4]:
        before, after = piece.text[max(0, one.start - 70) : one.start], piece.text[one.end :][:20]
        print(f"{piece.family} | {piece.source[-40:]} | {one.kind} {one.how}")
        print(f"    {before!r} [[{piece.text[one.start : one.end][:90]!r}]] {after!r}")


def main() -> int:
    """Count changed pieces by family and by kind, and show those that may be looked at."""
    parser = argparse.ArgumentParser(description="Honest texts that were found, not written.")
    parser.add_argument(
        "--python", default="/usr/bin/python3", help="an interpreter that has CPython's tests"
    )
    parser.add_argument("--pieces", type=Path, default=PIECES, help="where they are kept")
    parser.add_argument("--half", choices=(LOOK, HELD), action="append", help="default: both")
    parser.add_argument("--family", action="append", help="default: all")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="changes shown, of the first half")
    chosen = parser.parse_args()
    halves = chosen.half or [LOOK, HELD]
    counted, shown, started = Count(), 0, time.process_time()
    for piece in pieces(chosen.pieces, chosen.python):
        if piece.half in halves and piece.family in (chosen.family or [piece.family]):
            wrong = counted.add(piece)
            if wrong and piece.half == LOOK and shown < chosen.show:
                shown += 1
                _explain(piece, wrong)
    took_ms = 1000 * (time.process_time() - started)
    for half in halves:
        counted.show(half)
    kinds = ", ".join(f"{kind} {count}" for kind, count in counted.kinds.most_common())
    print(f"kinds: {kinds}; {took_ms / max(1, counted.chars) * 1024:.2f} ms of CPU for each KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
