"""How much of what nobody wrote for the filter it leaves alone: reports, manuals, sources, listings of a machine.

    PYTHONPATH=tests python tests/bench/egress/found_texts.py [--python P] [--half look|held] [--show N]

The pieces are cut once and kept in build/bench/found-texts.jsonl: 0.2 to 30 KiB each, by a fixed seed. Every
second source, by its name's checksum, is held out: of those only the counts are shown, and they are what
counts. ``--python`` is an interpreter that has CPython's tests (Debian: libpython3.11-testsuite). What is a
secret by its form (a key of a test, a token of an example) is counted apart, and not as damage. Another
checkout's filter sees the same pieces with its producer/ and config/ on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.egress.found_sources import families
from cellblock.egress import filter_text

PIECES = Path("build/bench/found-texts.jsonl")
OUT = Path("build/bench/egress-found.json")
LEAST_CHARS, MOST_CHARS = 200, 30 * 1024
#: Of one source, and of one family, so that none outweighs the others.
SOURCE_MOST, FAMILY_MOST = 8, 320
LOOK, HELD = "look", "held"
#: What these find is a secret by itself, whoever shows it: a private key, a token with its signature, a
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


def main() -> int:
    """Count changed pieces by family and by kind, and show those that may be looked at."""
    parser = argparse.ArgumentParser(description="Honest texts that were found, not written.")
    parser.add_argument("--python", default="/usr/bin/python3", help="an interpreter that has CPython's tests")
    parser.add_argument("--pieces", type=Path, default=PIECES, help="where they are kept")
    parser.add_argument("--half", choices=(LOOK, HELD), action="append", help="default: both")
    parser.add_argument("--family", action="append", help="default: all")
    parser.add_argument("--every", type=int, default=1, help="only each so manieth piece")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="changes shown, of the first half")
    chosen = parser.parse_args()
    total: Counter[tuple[str, str]] = Counter()
    changed: Counter[tuple[str, str]] = Counter()
    by_form: Counter[tuple[str, str]] = Counter()
    kinds: Counter[str] = Counter()
    shown = 0
    started, chars = time.process_time(), 0
    for piece in pieces(chosen.pieces, chosen.python)[:: chosen.every]:
        if chosen.half and piece.half not in chosen.half:
            continue
        if chosen.family and piece.family not in chosen.family:
            continue
        total[piece.half, piece.family] += 1
        chars += len(piece.text)
        found = [one for one in filter_text(piece.text).redactions if one.kind != CONTROL]
        if not found:
            continue
        if {one.kind for one in found} <= BY_FORM:
            by_form[piece.half, piece.family] += 1
            continue
        changed[piece.half, piece.family] += 1
        kinds.update({one.kind for one in found} - BY_FORM)
        if piece.half == LOOK and shown < chosen.show:
            shown += 1
            for one in found[:4]:
                before, after = piece.text[max(0, one.start - 70) : one.start], piece.text[one.end :][:20]
                print(f"{piece.family} | {piece.source[-40:]} | {one.kind} {one.how}")
                print(f"    {before!r} [[{piece.text[one.start : one.end][:90]!r}]] {after!r}")
    took_s = time.process_time() - started
    for half in (LOOK, HELD):
        print(f"\n{half}: family, changed, of which form alone, of")
        for (of, family), count in sorted(total.items()):
            if of == half and (changed[of, family] or by_form[of, family]):
                print(f"  {family:20} {changed[of, family]:4} {by_form[of, family]:4} {count:5}")
        of_all = sum(count for (of, _), count in total.items() if of == half)
        bad = sum(count for (of, _), count in changed.items() if of == half)
        formed = sum(count for (of, _), count in by_form.items() if of == half)
        print(f"  {'all':20} {bad:4} {formed:4} {of_all:5}  changed {bad / max(1, of_all):.2%}")
    print(f"kinds: {dict(kinds.most_common())}; {took_s / max(1, chars) * 1024 * 1000:.2f} ms of CPU for each KiB")
    OUT.write_text(
        json.dumps(
            {"total": [[*key, n] for key, n in total.items()], "changed": [[*key, n] for key, n in changed.items()]}
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
