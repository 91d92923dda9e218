"""What somebody who knows how a text was written can still read from what the filter left of it.

Each takes what is left and the whole as it was written, and yields readings. The whole says only how long a
number was: what is gone from it is gone.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import html
import json
import lzma
import re
import string
import unicodedata
import zlib
from collections.abc import Callable, Iterator

from bench.egress.wide.codecs_written import BASE36, BASE45, BASE58, LOOK_ALIKE, NOISE, Z85

Undo = Callable[[str, str], Iterator[str]]
LABEL = re.compile(r"^(?:part \d+/\d+: |chunk\[\d+\] = |\(\d+ of \d+\) |p\d+=)", re.MULTILINE)
NUMBERED = re.compile(r"^ *L?\d+(?:  |: |\| |\t)(.*)$", re.MULTILINE)
SAME_AS = {shown: code for code, shown in LOOK_ALIKE.items()}


def _number(alphabet: str) -> Undo:
    def undo(left: str, written: str) -> Iterator[str]:
        for run in re.findall(f"[{re.escape(alphabet)}]{{12,}}", left):
            padded = run.ljust(len(written), alphabet[0]) if written.startswith(run) else run
            number = 0
            for char in padded:
                number = number * len(alphabet) + alphabet.index(char)
            yield number.to_bytes((number.bit_length() + 7) // 8, "big").decode("latin-1")

    return undo


def _big_hex(left: str, written: str) -> Iterator[str]:
    for run in re.findall(r"[0-9a-f]{12,}", left.replace("0x", " ")):
        for part in (run, run[1:]):
            yield bytes.fromhex(part[: len(part) // 2 * 2]).decode("latin-1")


def _base45(left: str, written: str) -> Iterator[str]:
    for run in re.findall(f"[{re.escape(BASE45)}]{{12,}}", left):
        for start in range(3):
            found = []
            for at in range(start, len(run) - 2, 3):
                value = sum(BASE45.index(run[at + n]) * 45**n for n in range(3))
                found.append(divmod(value, 256) if value < 65_536 else (0xFF, 0xFF))
            if (len(run) - start) % 3 == 2:
                last = BASE45.index(run[-2]) + 45 * BASE45.index(run[-1])
                found.append((last % 256, 0))
            yield bytes(byte for pair in found for byte in pair).decode("latin-1")


def _base85(alphabet: str) -> Undo:
    def undo(left: str, written: str) -> Iterator[str]:
        for run in re.findall(f"[{re.escape(alphabet)}]{{10,}}", re.sub(r"\s|<~|~>", "", left)):
            for start in range(5):
                found = b""
                for at in range(start, len(run), 5):
                    group = run[at : at + 5].ljust(5, alphabet[-1])
                    value = 0
                    for char in group:
                        value = value * 85 + alphabet.index(char)
                    found += (value & 0xFFFFFFFF).to_bytes(4, "big")
                yield found.decode("latin-1")

    return undo


def _base32_hex(left: str, written: str) -> Iterator[str]:
    for run in re.findall(r"[0-9A-V]{8,}", re.sub(r"\s", "", left)):
        for start in range(8):
            part = run[start:]
            part = part[: len(part) - (0, 1, 0, 1, 0, 0, 1, 0)[len(part) % 8]]
            yield base64.b32hexdecode(part + "=" * (-len(part) % 8)).decode("latin-1")


def _uu(left: str, written: str) -> Iterator[str]:
    found = b""
    for line in left.splitlines():
        try:
            found += binascii.a2b_uu(line)
        except binascii.Error:
            found += b"\n"
    yield found.decode("latin-1")


def _as_base64(left: str) -> Iterator[bytes]:
    for run in re.findall(r"[A-Za-z0-9+/]{8,}", re.sub(r"\s", "", left)):
        for start in range(4):
            part = run[start:]
            part = part[: len(part) - (len(part) % 4 == 1)]
            yield base64.b64decode(part + "=" * (-len(part) % 4))


def _inflated(window: int) -> Undo:
    def undo(left: str, written: str) -> Iterator[str]:
        for data in _as_base64(left):
            stream, found = zlib.decompressobj(window), b""
            try:
                for byte in data:
                    found += stream.decompress(bytes([byte]))
            except zlib.error:
                pass
            yield found.decode("latin-1")

    return undo


def _unpacked(unpack: Callable[[bytes], bytes]) -> Undo:
    def undo(left: str, written: str) -> Iterator[str]:
        for data in _as_base64(left):
            try:
                yield unpack(data).decode("latin-1")
            except (OSError, ValueError, EOFError, lzma.LZMAError):
                continue

    return undo


def _utf16(left: str, written: str) -> Iterator[str]:
    for data in _as_base64(left):
        for start in (0, 1):
            yield data[start:].decode("utf-16-le", errors="replace")


def _hex_runs(left: str) -> Iterator[bytes]:
    for run in re.findall(r"[0-9a-f]{8,}", re.sub(r"\s", "", left)):
        for start in (0, 1):
            yield bytes.fromhex(run[start : start + (len(run) - start) // 2 * 2])


def _gzip_hex(left: str, written: str) -> Iterator[str]:
    for data in _hex_runs(left):
        if data.startswith(b"\x1f\x8b"):
            stream, found = zlib.decompressobj(31), b""
            try:
                for byte in data:
                    found += stream.decompress(bytes([byte]))
            except zlib.error:
                pass
            yield found.decode("latin-1")


def _turned_hex(turn: Callable[[bytes], bytes]) -> Undo:
    return lambda left, written: (turn(data).decode("latin-1") for data in _hex_runs(left))


def _rows(left: str, address: str) -> Iterator[str]:
    yield from re.findall(rf"^{address}(.*)$", left, re.MULTILINE)


def _hexdump(left: str, written: str) -> Iterator[str]:
    shown = [re.split(r"  \|", row) for row in _rows(left, r"[0-9a-f]{8} ")]
    codes = re.findall(r"\b[0-9a-f]{2}\b", " ".join(row[0] for row in shown))
    yield "".join(chr(int(code, 16)) for code in codes)
    yield "".join(row[1].rstrip("|") for row in shown if len(row) > 1)


def _od(left: str, written: str) -> Iterator[str]:
    joined = " ".join(_rows(left, r"[0-7]{7}"))
    yield "".join(chr(int(code, 16)) for code in re.findall(r"\b[0-9a-f]{2}\b", joined))
    yield "".join(chr(int(code, 8)) for code in re.findall(r"\b[0-3][0-7]{2}\b", joined))


def _od_characters(left: str, written: str) -> Iterator[str]:
    cells = (
        row[at : at + 4].lstrip() or " " for row in _rows(left, r"[0-7]{7}") for at in range(0, len(row), 4)
    )
    yield "".join({"\\n": "\n", "\\t": "\t", "\\r": "\r"}.get(cell, cell) for cell in cells)


def _codes(left: str, written: str) -> Iterator[str]:
    yield "".join(chr(int(code)) for code in re.findall(r"\b\d{1,3}\b", left) if int(code) < 256)


def _columns(left: str, written: str) -> Iterator[str]:
    kept = left.split("\n")
    rows = [row if row in kept else "\ufffd" * len(row) for row in written.split("\n")]
    longest = max(map(len, rows), default=0)
    yield "".join(row[at : at + 1] for at in range(longest) for row in rows)


def _quoted(left: str, written: str) -> Iterator[str]:
    found = []
    for one in re.findall(r'"(?:\\.|[^"\\])*"', left):
        try:
            found.append(json.loads(one))
        except ValueError:
            found.append("\n")
    yield "".join(found)


def _shifted(left: str, written: str) -> Iterator[str]:
    low, high = string.ascii_lowercase, string.ascii_uppercase
    for n in range(1, 26):
        yield left.translate(str.maketrans(low + high, low[n:] + low[:n] + high[n:] + high[:n]))


def _substituted(pattern: str, base: int) -> Undo:
    return lambda left, written: iter((re.sub(pattern, lambda match: chr(int(match[1], base)), left),))


def _one(read: Callable[[str], str]) -> Undo:
    return lambda left, written: iter((read(left),))


def _labelled(left: str) -> str:
    return LABEL.sub("", left)


def _labelled_base64(left: str, written: str) -> Iterator[str]:
    return (data.decode("latin-1") for data in _as_base64(_labelled(left)))


def _alternate(left: str, written: str) -> Iterator[str]:
    for part in (left, *re.split(r"\[[^\]]{3,60}\]", left)):
        yield part[::2]
        yield part[1::2]


def _plain_letters(left: str) -> str:
    return unicodedata.normalize("NFKC", left)


UNDONE: dict[str, Undo] = {
    "big integer": _number(string.digits),
    "big integer hex": _big_hex,
    "base36": _number(BASE36),
    "base58": _number(BASE58),
    "base45": _base45,
    "ascii85": _base85("".join(map(chr, range(33, 118)))),
    "z85": _base85(Z85),
    "base32 hex": _base32_hex,
    "uuencode": _uu,
    "quoted-printable all": _substituted(r"=([0-9A-F]{2})", 16),
    "look-alike letters": _one(lambda left: left.translate(SAME_AS)),
    "full width": _one(_plain_letters),
    "mathematical letters": _one(_plain_letters),
    "soft hyphens": _one(lambda left: left.replace("\u00ad", "")),
    "combining marks": _one(lambda left: left.replace("\u0336", "")),
    "noise lines": _one(lambda left: "".join(line for line in left.split("\n") if line not in NOISE)),
    "labelled parts": _one(_labelled),
    "concatenated": _quoted,
    "line numbers": _one(lambda left: "".join(NUMBERED.findall(left))),
    "hexdump -C": _hexdump,
    "od": _od,
    "od characters": _od_characters,
    "code calls": _codes,
    "columns": _columns,
    "every second": _alternate,
    "indexed characters": _one(lambda left: "".join(re.findall(r"^\d+ (.)$", left, re.MULTILINE))),
    "words backwards": _one(lambda left: " ".join(word[::-1] for word in left.split(" "))),
    "punycode": _one(lambda left: left),
    "shifted": _shifted,
    "zlib base64": _inflated(15),
    "bz2 base64": _unpacked(bz2.decompress),
    "lzma base64": _unpacked(lzma.decompress),
    "gzip hex": _gzip_hex,
    "deflate base64": _inflated(-15),
    "base64 of UTF-16": _utf16,
    "HTML entities hex": _one(html.unescape),
    "percent u": _substituted(r"%u([0-9a-f]{4})", 16),
    "unicode braces": _substituted(r"\\u\{([0-9a-f]+)\}", 16),
    "octal escapes": _substituted(r"\\([0-7]{3})", 8),
    "base64 under labels": _labelled_base64,
    "hex in reverse bytes": _turned_hex(lambda data: data[::-1]),
    "xor 0x20 hex": _turned_hex(lambda data: bytes(byte ^ 0x20 for byte in data)),
}
