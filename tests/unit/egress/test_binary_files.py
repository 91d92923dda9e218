"""Files that are not text: what is printable in them by chance is no secret, and a key in them is one."""

from __future__ import annotations

import array
import gzip
import io
import json
import lzma
import pickle
import random
import sqlite3
import struct
import zipfile
import zlib
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import pytest
from pydantic import SecretStr

from cellblock.contract.results import Artifact
from cellblock.egress import Outgoing, filter_outgoing
from cellblock_config import EgressSettings
from cellblock_config.levels import MIB

TOKEN = "gh" + "p_" + "x7Kq9Zt2Lm4Rv8Bw1Nc6Pd3Hs5Jf0Gy7Qa2X"
ASSIGNED = "db_password=" + "Hunter2Secret99"
REGISTERED = EgressSettings(secrets={"db": SecretStr("qV7xTr")})


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _picture(rng: random.Random, comment: bytes = b"") -> bytes:
    rows = b"".join(b"\0" + rng.randbytes(3 * 500) for _ in range(500))
    text = _chunk(b"tEXt", b"Comment\0" + comment) if comment else b""
    head = _chunk(b"IHDR", struct.pack(">IIBBBBB", 500, 500, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + text + _chunk(b"IDAT", zlib.compress(rows, 1)) + _chunk(b"IEND", b"")


def _zip(members: dict[str, bytes], how: int) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", how) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return packed.getvalue()


def _database(folder: Path, rows: list[tuple[str, bytes]]) -> bytes:
    with sqlite3.connect(folder / "a.db") as base:
        base.execute("create table rows (name text, content blob)")
        base.executemany("insert into rows values (?, ?)", rows)
    base.close()
    return (folder / "a.db").read_bytes()


def _left(data: bytes, settings: EgressSettings | None = None) -> bool:
    said = Outgoing(artifacts=(Artifact(path="a.bin", data=data),))
    return bool(filter_outgoing(said, settings or EgressSettings()).artifacts)


def _walk(rng: random.Random, channels: int) -> bytes:
    ways = [
        accumulate((rng.choice((-1, 0, 1)) for _ in range(MIB // channels)), initial=90)
        for _ in range(channels)
    ]
    return bytes(value & 0xFF for point in zip(*ways, strict=True) for value in point)


HONEST: dict[str, Callable[[random.Random, Path], bytes]] = {
    "random bytes": lambda rng, _: rng.randbytes(2 * MIB),
    "gzip": lambda rng, _: gzip.compress(rng.randbytes(MIB)),
    "xz": lambda rng, _: lzma.compress(rng.randbytes(MIB), preset=0),
    "zip": lambda rng, _: _zip({"a.bin": rng.randbytes(MIB)}, zipfile.ZIP_DEFLATED),
    "weights": lambda rng, _: array.array("f", (rng.gauss(0, 0.02) for _ in range(MIB // 4))).tobytes(),
    "doubles": lambda rng, _: array.array("d", (rng.gauss(0, 1) for _ in range(MIB // 8))).tobytes(),
    "a picture": lambda rng, _: _picture(rng),
    "samples": lambda rng, _: _walk(rng, 1),
    "samples of colours": lambda rng, _: _walk(rng, 3),
    "a pickle": lambda rng, _: pickle.dumps({f"w{n}": rng.randbytes(4096) for n in range(256)}),
    "a database": lambda rng, path: _database(path, [(f"row {n}", rng.randbytes(700)) for n in range(1000)]),
}


@pytest.mark.parametrize("kind", HONEST)
def test_a_file_of_honest_bytes_leaves(kind: str, tmp_path: Path) -> None:
    assert _left(HONEST[kind](random.Random(20261129), tmp_path))


SECRETS: dict[str, Callable[[random.Random, Path, str], bytes]] = {
    "a pickle": lambda rng, _, line: pickle.dumps({"note": line, "w": rng.randbytes(5000)}),
    "a database": lambda rng, path, line: _database(path, [("a", rng.randbytes(700)), (line, b"")]),
    "a stored zip": lambda rng, _, line: _zip({"a": rng.randbytes(900) + line.encode()}, zipfile.ZIP_STORED),
    "a program": lambda rng, _, line: (
        b"\x7fELF" + rng.randbytes(900) + b"\0" + line.encode() + b"\0libc.so.6\0"
    ),
    "an array": lambda rng, _, line: rng.randbytes(900) + line.encode("utf-32-le") + rng.randbytes(900),
    "a picture": lambda rng, _, line: _picture(rng, line.encode()),
    "UTF-16": lambda rng, _, line: rng.randbytes(900) + line.encode("utf-16-le") + rng.randbytes(900),
    "random bytes": lambda rng, _, line: (
        rng.randbytes(90_000) + b"\xff" + line.encode() + b"\xff" + rng.randbytes(9)
    ),
    "samples": lambda rng, _, line: (
        _walk(rng, 1)[:9000] + b"\0" + line.encode() + b"\0" + _walk(rng, 1)[:9000]
    ),
    "a safetensors header": lambda rng, _, line: json.dumps({"note": line}).encode() + rng.randbytes(9000),
}


@pytest.mark.parametrize("line", [TOKEN, ASSIGNED], ids=["token", "password"])
@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_in_a_file_that_is_not_text_withholds_it(kind: str, line: str, tmp_path: Path) -> None:
    assert not _left(SECRETS[kind](random.Random(20261129), tmp_path, line))


def test_a_field_and_its_value_in_a_pickle_are_read_together() -> None:
    record = {"user": "ann", "password": "Hunter2Secret99", "scores": list(range(200))}
    assert not _left(pickle.dumps(record))


@pytest.mark.parametrize(
    "pack", [bytes, lambda data: _zip({"a": data}, zipfile.ZIP_DEFLATED)], ids=["", "zip"]
)
def test_a_registered_value_counts_in_the_shortest_run(pack: Callable[[bytes], bytes]) -> None:
    data = random.Random(1).randbytes(9000) + b"\0qV7xTr\0" + random.Random(2).randbytes(9000)
    assert not _left(pack(data), REGISTERED)
    assert _left(pack(data))


def test_a_secret_in_the_last_of_many_compressed_streams_withholds_a_file() -> None:
    streams = [zlib.compress(f"stream {n} of a document, with some words".encode()) for n in range(99)]
    assert _left(b"%PDF\0" + b"\0".join(streams))
    assert not _left(b"%PDF\0" + b"\0".join([*streams, zlib.compress(f"the last: {ASSIGNED}".encode())]))
