"""Makes the weights of the value scorer: logistic regression over hashed n-grams of made and of real values.

    PYTHONPATH=tests python tests/bench/egress/train_scorer.py

Drawn are values of every alphabet that programs draw from; written are words of many languages, identifiers,
paths, dates and sentences. The seed is fixed: the same sources give the same file.
"""

# ruff: noqa: E501

from __future__ import annotations

import argparse
import base64
import keyword
import random
import re
import string
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.egress.honest import honest
from bench.egress.prose import LANGUAGES, prose
from cellblock.egress.values.scorer import BUCKETS, SCALE, grams

PATH = Path("producer/cellblock/egress/values/weights.bin")
EACH, ROUNDS, L2, STEP = 2500, 60, 1e-4, 0.5
LOW, UP, DIG = string.ascii_lowercase, string.ascii_uppercase, string.digits
Rng = random.Random


def _of(alphabet: str, least: int, most: int) -> Callable[[Rng], str]:
    return lambda rng: "".join(rng.choices(alphabet, k=rng.randint(least, most)))


def _prefixed(rng: Rng) -> str:
    prefix = "".join(rng.choices(LOW, k=rng.randint(2, 6)))
    return prefix + rng.choice("_-") + _of(LOW + UP + DIG, 14, 40)(rng)


def _grouped(rng: Rng) -> str:
    alphabet, size = rng.choice((UP + DIG, LOW + DIG, DIG + "abcdef", UP)), rng.randint(4, 6)
    return "-".join("".join(rng.choices(alphabet, k=size)) for _ in range(rng.randint(3, 6)))


#: By the family that a held-out bench leaves out.
DRAWN: dict[str, Callable[[Rng], str]] = {
    "alnum": _of(LOW + UP + DIG, 10, 48),
    "lower_digits": _of(LOW + DIG, 10, 40),
    "upper_digits": _of(UP + DIG, 10, 40),
    "base64": lambda rng: base64.b64encode(rng.randbytes(rng.randint(9, 48))).decode(),
    "base64url": lambda rng: base64.urlsafe_b64encode(rng.randbytes(rng.randint(9, 48))).decode().rstrip("="),
    "hex": lambda rng: rng.randbytes(rng.randint(8, 32)).hex(),
    "hex_upper": lambda rng: rng.randbytes(rng.randint(8, 32)).hex().upper(),
    "base32": _of(UP + "234567", 16, 40),
    "letters": _of(LOW + UP, 12, 40),
    "lower": _of(LOW, 14, 32),
    "upper": _of(UP, 14, 32),
    "signs": _of(LOW + UP + DIG + "!@#$%^&*()_+-=~", 9, 28),
    "prefixed": _prefixed,
    "grouped": _grouped,
}


def _identifier(rng: Rng, words: list[str]) -> str:
    parts = rng.choices(words, k=rng.randint(1, 4))
    number = str(rng.randint(0, 2030)) if rng.random() < 0.25 else ""
    form = rng.randrange(6)
    if form == 0:
        return "_".join(parts) + ("_" + number if number else "")
    if form == 1:
        return parts[0] + "".join(map(str.capitalize, parts[1:])) + number
    if form == 2:
        return "".join(map(str.capitalize, parts)) + number
    if form == 3:
        return "-".join(parts) + ("-" + number if number else "")
    if form == 4:
        return "_".join(parts).upper() + ("_" + number if number else "")
    return ".".join(parts) + number


def _path(rng: Rng, words: list[str]) -> str:
    end = rng.choice((".py", ".txt", ".json", "", ".log", ".tar.gz", ".csv", "/"))
    return (
        rng.choice(("/", "./", "", "~/", "C:\\", "s3://"))
        + "/".join(rng.choices(words, k=rng.randint(2, 5)))
        + end
    )


def _stamp(rng: Rng, _: list[str]) -> str:
    d = f"20{rng.randint(0, 39):02}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    t = f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}"
    forms = (d, f"{d}T{t}Z", f"{d}T{t}.{rng.randrange(10**6)}+00:00", t, d.replace("-", "/"), f"{d} {t}")
    return rng.choice(forms)


def _number(rng: Rng, words: list[str]) -> str:
    forms = (
        f"{rng.randrange(10 ** rng.randint(3, 18))}",
        f"{rng.random() * 10 ** rng.randint(0, 9):.{rng.randint(1, 12)}f}",
        f"v{rng.randint(0, 20)}.{rng.randint(0, 40)}.{rng.randint(0, 90)}{rng.choice(('', 'rc1', '-beta.2', '+build5'))}",
        ".".join(str(rng.randint(0, 255)) for _ in range(4)) + rng.choice(("", ":8080")),
        f"{rng.random():.5e}",
        f"{rng.randint(1, 999)}{rng.choice(('ms', 'px', 'KiB', 'GB', 'em', 's', '%'))}",
        f"{rng.choice(words)}={rng.randrange(10**4)}",
        f"{rng.choice(words)}[{rng.randrange(100)}]",
        f"{rng.choice(words)}:{rng.randrange(10**4)}",
        f"{rng.choice(words)}({rng.choice(words)})",
    )
    return rng.choice(forms)


WRITTEN: dict[str, Callable[[Rng, list[str]], str]] = {
    "word": lambda rng, words: rng.choice(words),
    "identifier": _identifier,
    "identifier again": _identifier,
    "path": _path,
    "stamp": _stamp,
    "number": _number,
    "sentence": lambda rng, words: " ".join(rng.choices(words, k=rng.randint(2, 8))),
}


def vocabulary(rng: Rng) -> tuple[list[str], list[str]]:
    """Words, and the unbroken runs of honest outputs."""
    text = " ".join(prose(rng, 20_000, language) for language in LANGUAGES)
    runs: list[str] = []
    for number, (kind, output) in enumerate(honest(rng)):
        if number % 3 == 0 and not re.search(
            "hex|base64|key|sum|hash|lock|ids|RECORD|metadata|picture|dump|seq", kind
        ):
            runs += re.findall(r"[^\s\"'`<>(){},;=]{5,60}", output)[:60]
    words = {*re.findall(r"[^\W\d_]{2,14}", text), *keyword.kwlist}
    words |= {w.lower() for run in runs for w in re.findall(r"[A-Z]?[a-z]{2,12}", run) if len(w) > 2}
    return sorted(words), runs


def examples(rng: Rng, without: frozenset[str]) -> tuple[list[str], list[int]]:
    words, runs = vocabulary(rng)
    values = [(make(rng), 1) for name, make in DRAWN.items() if name not in without for _ in range(EACH)]
    values += [(make(rng, words), 0) for make in WRITTEN.values() for _ in range(2 * EACH)]
    values += [(run, 0) for run in rng.sample(runs, min(len(runs), 8 * EACH))]
    rng.shuffle(values)
    return [value for value, _ in values], [drawn for _, drawn in values]


def train(without: frozenset[str] = frozenset(), seed: int = 20261124) -> bytes:
    """The weights as they are stored."""
    values, labels = examples(random.Random(seed), without)
    columns = [np.fromiter(grams(value), np.int64) for value in values]
    lengths = np.array([len(column) for column in columns])
    flat, rows = np.concatenate(columns), np.repeat(np.arange(len(values)), lengths)
    wanted = np.array(labels, np.float64)
    weight, bias, squares = np.zeros(BUCKETS), 0.0, np.full(BUCKETS, 1e-6)
    for _ in range(ROUNDS):
        raw = np.bincount(rows, weight[flat], len(values)) + bias
        error = 1 / (1 + np.exp(-np.clip(raw, -30, 30))) - wanted
        slope = np.bincount(flat, error[rows], BUCKETS) / len(values) + L2 * weight
        squares += slope**2
        weight -= STEP * slope / np.sqrt(squares)
        bias -= STEP * float(error.mean())
    raw = np.bincount(rows, weight[flat], len(values)) + bias
    right = (raw > 0) == (wanted > 0)
    print(f"of {len(values)} examples {right.mean():.2%} right", file=sys.stderr)
    held = np.clip(np.round(np.append(weight, bias) * SCALE) + 128, 0, 255)
    return bytes(held.astype(np.uint8).tolist())


def main() -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(description="Train the value scorer.")
    parser.add_argument("--out", type=Path, default=PATH)
    parser.add_argument("--without", action="append", default=[], choices=sorted(DRAWN), metavar="FAMILY")
    chosen = parser.parse_args()
    chosen.out.write_bytes(train(frozenset(chosen.without)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
