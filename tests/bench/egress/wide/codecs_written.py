"""Ways to write a text that disguises.py lacks: numbers, alphabets, look-alike letters, pieces, tables."""

from __future__ import annotations

import base64
import binascii
import bz2
import gzip
import json
import lzma
import random
import zlib
from collections.abc import Callable

Rng = random.Random
Write = Callable[[str, Rng], str]
BASE45 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ $%*+-./:"
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
#: Latin letters and what looks the same in Cyrillic or Greek, as codes: nobody can tell them apart.
LOOK_ALIKE = str.maketrans(
    "aceopxyiABCEHKMOPTXj",
    "\u0430\u0441\u0435\u043e\u0440\u0445\u0443\u0456"
    "\u0410\u0412\u0421\u0415\u041d\u041a\u041c\u041e\u0420\u0422\u0425\u0458",
)
FULL_WIDTH = {code: code + 0xFEE0 for code in range(33, 127)}
MATHEMATICAL = {65 + n: 0x1D670 + n for n in range(26)} | {97 + n: 0x1D68A + n for n in range(26)}
NOISE = (
    "INFO heartbeat ok, queue depth 4",
    "progress 41 % eta 00:12",
    "cache hit ratio 0.93",
    "...",
    "worker 3 idle",
    "GET /healthz 200",
)


def digits(number: int, alphabet: str) -> str:
    shown = ""
    while number:
        number, digit = divmod(number, len(alphabet))
        shown = alphabet[digit] + shown
    return shown


def number_of(text: str) -> int:
    return int.from_bytes(text.encode(), "big")


def base45(text: str) -> str:
    data, shown = text.encode(), ""
    for at in range(0, len(data) - 1, 2):
        rest, first = divmod(data[at] * 256 + data[at + 1], 45)
        third, second = divmod(rest, 45)
        shown += BASE45[first] + BASE45[second] + BASE45[third]
    if len(data) % 2:
        second, first = divmod(data[-1], 45)
        shown += BASE45[first] + BASE45[second]
    return shown


def z85(text: str) -> str:
    data = text.encode()
    data += b"\x00" * (-len(data) % 4)
    shown = ""
    for at in range(0, len(data), 4):
        shown += digits(int.from_bytes(data[at : at + 4], "big"), Z85).rjust(5, "0")
    return shown


def uuencode(text: str) -> str:
    data = text.encode()
    rows = (binascii.b2a_uu(data[at : at + 45]).decode() for at in range(0, len(data), 45))
    return f"begin 644 data\n{''.join(rows)}`\nend"


def pieces(text: str, rng: Rng, least: int = 4, most: int = 9) -> list[str]:
    found, at = [], 0
    while at < len(text):
        size = rng.randint(least, most)
        found.append(text[at : at + size])
        at += size
    return found


def noise_between(text: str, rng: Rng) -> str:
    return "\n".join(f"{piece}\n{rng.choice(NOISE)}" for piece in pieces(text, rng, 5, 12))


def labelled_parts(text: str, rng: Rng) -> str:
    parts = pieces(text, rng, 6, 14)
    form = rng.choice(("part {n}/{of}: {part}", "chunk[{n}] = {part}", "({n} of {of}) {part}", "p{n}={part}"))
    return "\n".join(form.format(n=n, of=len(parts), part=part) for n, part in enumerate(parts, start=1))


def concatenated(text: str, rng: Rng) -> str:
    quoted = [json.dumps(part) for part in pieces(text, rng, 4, 10)]
    return rng.choice(
        (
            lambda: "s = " + " + ".join(quoted),
            lambda: "var s =\n    " + "\n    + ".join(quoted) + ";",
            lambda: "$s = " + " . ".join(quoted) + ";",
            lambda: "s = (\n    " + "\n    ".join(quoted) + "\n)",
            lambda: "s := " + " + ".join(quoted),
            lambda: "SELECT " + " || ".join(quoted),
            lambda: "".join(f"s += {part}\n" for part in quoted),
            lambda: "''.join([" + ", ".join(quoted) + "])",
        )
    )()


def with_line_numbers(text: str, rng: Rng) -> str:
    width = rng.randint(12, 40)
    rows = [row for line in text.splitlines() for row in pieces(line, rng, width, width) or [""]]
    form = rng.choice(("{n:>4}  {row}", "{n}: {row}", "{n:03}| {row}", "L{n}\t{row}"))
    return "\n".join(form.format(n=n, row=row) for n, row in enumerate(rows, start=rng.randint(1, 90)))


def hexdump_c(text: str, _: Rng) -> str:
    data, rows = text.encode(), []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        left, right = row[:8].hex(" "), row[8:].hex(" ")
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{at:08x}  {left:23}  {right:23}  |{shown}|")
    return "\n".join([*rows, f"{len(data):08x}"])


def od(text: str, rng: Rng) -> str:
    data = text.encode()
    form = rng.choice((" {:02x}", " {:03o}"))
    rows = (
        f"{at:07o}" + "".join(form.format(byte) for byte in data[at : at + 16])
        for at in range(0, len(data), 16)
    )
    return "\n".join([*rows, f"{len(data):07o}"])


def od_characters(text: str, _: Rng) -> str:
    data, named = text.encode(), {10: "\\n", 9: "\\t", 13: "\\r"}
    rows = (
        f"{at:07o}" + "".join(f"{named.get(byte, chr(byte)):>4}" for byte in data[at : at + 16])
        for at in range(0, len(data), 16)
    )
    return "\n".join(rows)


def code_calls(text: str, rng: Rng) -> str:
    codes = list(text.encode())
    return rng.choice(
        (
            lambda: "String.fromCharCode(" + ",".join(map(str, codes)) + ")",
            lambda: "+".join(f"chr({code})" for code in codes),
            lambda: "CHAR(" + ", ".join(map(str, codes)) + ")",
            lambda: "[char[]](" + ",".join(map(str, codes)) + ") -join ''",
        )
    )()


def columns(text: str, rng: Rng) -> str:
    height, text = rng.randint(4, 8), text.replace("\n", " ")
    return "\n".join(text[row::height] for row in range(height))


def every_second(text: str, rng: Rng) -> str:
    return "".join(char + rng.choice("abcdefghijkmnopqrstuvwxyz0123456789") for char in text)


def indexed(text: str, _: Rng) -> str:
    return "\n".join(f"{n} {char}" for n, char in enumerate(text))


def words_backwards(text: str, _: Rng) -> str:
    return " ".join(word[::-1] for word in text.split(" "))


def packed(squeeze: Callable[[bytes], bytes]) -> Write:
    return lambda text, _: base64.b64encode(squeeze(text.encode())).decode()


def punycode(text: str, _: Rng) -> str:
    return (text + "\u00fc").encode("punycode").decode()


def shifted(text: str, rng: Rng) -> str:
    step = rng.randint(1, 25)
    turned = {base + n: base + (n + step) % 26 for base in (ord("a"), ord("A")) for n in range(26)}
    return text.translate(turned)


WRITTEN: dict[str, Write] = {
    "big integer": lambda text, _: digits(number_of(text), "0123456789"),
    "big integer hex": lambda text, _: hex(number_of(text)),
    "base36": lambda text, _: digits(number_of(text), BASE36),
    "base58": lambda text, _: digits(number_of(text), BASE58),
    "base45": lambda text, _: base45(text),
    "ascii85": lambda text, _: base64.a85encode(text.encode(), adobe=True).decode(),
    "z85": lambda text, _: z85(text),
    "base32 hex": lambda text, _: base64.b32hexencode(text.encode()).decode(),
    "uuencode": lambda text, _: uuencode(text),
    "quoted-printable all": lambda text, _: "".join(f"={byte:02X}" for byte in text.encode()),
    "look-alike letters": lambda text, _: text.translate(LOOK_ALIKE),
    "full width": lambda text, _: text.translate(FULL_WIDTH),
    "mathematical letters": lambda text, _: text.translate(MATHEMATICAL),
    "soft hyphens": lambda text, rng: "\u00ad".join(pieces(text, rng, 2, 4)),
    "combining marks": lambda text, _: "".join(f"{char}\u0336" for char in text),
    "noise lines": noise_between,
    "labelled parts": labelled_parts,
    "concatenated": concatenated,
    "line numbers": with_line_numbers,
    "hexdump -C": hexdump_c,
    "od": od,
    "od characters": od_characters,
    "code calls": code_calls,
    "columns": columns,
    "every second": every_second,
    "indexed characters": indexed,
    "words backwards": words_backwards,
    "punycode": punycode,
    "shifted": shifted,
    "zlib base64": packed(lambda data: zlib.compress(data, 9)),
    "bz2 base64": packed(bz2.compress),
    "lzma base64": packed(lzma.compress),
    "gzip hex": lambda text, _: gzip.compress(text.encode(), mtime=0).hex(),
    "deflate base64": packed(lambda data: zlib.compress(data, 9)[2:-4]),
    "base64 of UTF-16": lambda text, _: base64.b64encode(text.encode("utf-16-le")).decode(),
    "HTML entities hex": lambda text, _: "".join(f"&#x{ord(char):x};" for char in text),
    "percent u": lambda text, _: "".join(f"%u{ord(char):04x}" for char in text),
    "unicode braces": lambda text, _: "".join(f"\\u{{{ord(char):x}}}" for char in text),
    "octal escapes": lambda text, _: "".join(f"\\{byte:03o}" for byte in text.encode()),
    "base64 under labels": lambda text, rng: labelled_parts(base64.b64encode(text.encode()).decode(), rng),
    "hex in reverse bytes": lambda text, _: text.encode()[::-1].hex(),
    "xor 0x20 hex": lambda text, _: bytes(byte ^ 0x20 for byte in text.encode()).hex(),
}
