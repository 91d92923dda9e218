"""Honest outputs that are computed: numbers, frames, dumps of public data, random bytes, long runs."""

from __future__ import annotations

import base64
import json
import random
import struct
import zlib
from collections.abc import Callable

from bench.egress.prose import LANGUAGES, prose
from bench.egress.wide.making import picked, uuid
from bench.egress.wide.vocabulary import COMMON, FIRST_NAMES

Rng = random.Random


def _run(rng: Rng) -> str:
    char = rng.choice("aAxX=-_#*0.~")
    return char * rng.choice((40, 120, 800, 5_000)) + "\n"


def _random_bytes(rng: Rng) -> str:
    return rng.randbytes(rng.choice((200, 2_000, 9_000))).decode("utf-8", errors="replace")


def _random_latin(rng: Rng) -> str:
    return rng.randbytes(rng.choice((200, 3_000))).decode("latin-1")


def _dna(rng: Rng) -> str:
    return "\n".join("".join(rng.choices("ACGT", k=70)) for _ in range(rng.randint(3, 30)))


def _png(rng: Rng) -> str:
    side = rng.randint(4, 30)
    rows = b"".join(b"\x00" + rng.randbytes(3 * side) for _ in range(side))
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n"
    for name, body in ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")):
        data += struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    shown = base64.b64encode(data).decode()
    form = rng.choice(('<img src="data:image/png;base64,{}">', '{{"image/png": "{}"}}', "{}"))
    return form.format(shown) + "\n"


def _hex_dump(rng: Rng) -> str:
    data = rng.choice((prose(rng, 300).encode(), b"\x7fELF\x02\x01\x01" + bytes(9) + rng.randbytes(240)))
    rows = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{at:08x}  {row[:8].hex(' '):23}  {row[8:].hex(' '):23}  |{shown}|")
    return "\n".join(rows)


def _matrix(rng: Rng) -> str:
    rows = (
        "[" + " ".join(f"{rng.gauss(0, 1):11.8f}" for _ in range(6)) + "]" for _ in range(rng.randint(2, 20))
    )
    return "[" + "\n ".join(rows) + "]\n"


def _frame(rng: Rng) -> str:
    rows = [f"{'':4}{'name':>12}{'key':>10}{'tokens':>10}{'score':>10}"]
    for n in range(rng.randint(3, 20)):
        name, key = rng.choice(FIRST_NAMES), rng.choice(COMMON)
        rows.append(f"{n:<4}{name:>12}{key:>10}{rng.randint(1, 90_000):>10}{rng.random():>10.4f}")
    return "\n".join(rows) + "\n"


def _pixels(rng: Rng) -> str:
    return f"pixels = {[rng.randint(0, 255) for _ in range(rng.choice((32, 64, 300)))]}\n"


def _embedding(rng: Rng) -> str:
    return json.dumps(
        {"object": "embedding", "embedding": [round(rng.gauss(0, 0.05), 8) for _ in range(128)]}
    )


def _primes(rng: Rng) -> str:
    return "\n".join(
        f"{rng.randint(2, 99)}! / {rng.randint(2, 9)} = {rng.randrange(10**60)}" for _ in range(6)
    )


def _factored(rng: Rng) -> str:
    n = rng.randrange(10 ** rng.choice((40, 90, 154)))
    return f"n = {n}\nbits: {n.bit_length()}\ndigits: {len(str(n))}\nsqrt: {int(n**0.5)}\n"


def _base64_text(rng: Rng) -> str:
    return base64.b64encode(prose(rng, rng.randint(60, 900)).encode()).decode() + "\n"


def _tree(rng: Rng) -> str:
    rows = [
        f"{rng.choice(('├──', '│   ├──', '└──'))} {rng.choice(COMMON)}_{rng.choice(COMMON)}.py"
        for _ in range(20)
    ]
    return "\n".join([".", *rows])


def _notebook(rng: Rng) -> str:
    cell = {
        "cell_type": "code",
        "id": picked(rng, "h", 8),
        "execution_count": rng.randint(1, 90),
        "metadata": {},
    }
    return json.dumps(
        {"cells": [cell | {"source": [prose(rng, 80)], "outputs": []}], "nbformat": 4}, indent=1
    )


def _prose(rng: Rng) -> str:
    return prose(rng, rng.randint(100, 3_000), rng.choice(LANGUAGES))


def _letters_one_by_one(rng: Rng) -> str:
    return "\n".join(prose(rng, rng.randint(20, 60)))


def _characters(rng: Rng) -> str:
    return repr(list(prose(rng, 80)))


def _json_records(rng: Rng) -> str:
    rows = (
        {
            "id": uuid(rng),
            "key": rng.choice(COMMON),
            "owner": rng.choice(FIRST_NAMES),
            "n": rng.randint(1, 9999),
        }
        for _ in range(rng.randint(2, 20))
    )
    return "\n".join(json.dumps(row) for row in rows)


def _histogram(rng: Rng) -> str:
    return "\n".join(
        f"{n:>4} {'█' * rng.randint(0, 50)} {rng.randint(0, 999)}" for n in range(rng.randint(5, 25))
    )


def _sudoku(rng: Rng) -> str:
    return "\n".join("".join(rng.choices("123456789.", k=81)) for _ in range(rng.randint(1, 8)))


def _game_of_life(rng: Rng) -> str:
    return "\n".join("".join(rng.choices(".#", k=60)) for _ in range(20))


def _csv(rng: Rng) -> str:
    rows = ["id,name,key,password_changed,tokens"]
    for n in range(rng.randint(3, 30)):
        rows.append(
            f"{n},{rng.choice(FIRST_NAMES)},{rng.choice(COMMON)},2026-0{n % 9 + 1}-11,{rng.randint(1, 99)}"
        )
    return "\n".join(rows) + "\n"


def _bits(rng: Rng) -> str:
    return "\n".join(f"{rng.getrandbits(64):064b}" for _ in range(rng.randint(1, 12)))


DATA: dict[str, Callable[[Rng], str]] = {
    "long-run": _run,
    "random-bytes": _random_bytes,
    "random-latin-1": _random_latin,
    "dna": _dna,
    "png-base64": _png,
    "hex-dump": _hex_dump,
    "matrix": _matrix,
    "frame": _frame,
    "pixels": _pixels,
    "embedding": _embedding,
    "large-quotients": _primes,
    "factored": _factored,
    "base64-of-prose": _base64_text,
    "tree": _tree,
    "notebook": _notebook,
    "prose": _prose,
    "letters-one-by-one": _letters_one_by_one,
    "characters": _characters,
    "json-records": _json_records,
    "histogram": _histogram,
    "sudoku": _sudoku,
    "game-of-life": _game_of_life,
    "csv": _csv,
    "bits": _bits,
}
