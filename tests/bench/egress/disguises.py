"""Ways to write a text so that a reader of patterns misses it, and what each leaves readable.

Whether a secret survived is judged by undoing the writing as far as it goes on whatever is left, from every
alignment, and looking for long stretches of the secret: a reader who knows how it was written could do that.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import gzip
import html
import json
import math
import random
import re
import urllib.parse
import zlib
from collections.abc import Callable, Iterator
from functools import partial

Write = Callable[[str, random.Random], str]
Undo = Callable[[str], Iterator[str]]

INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff"
#: A stretch of the secret this long has survived, even if it is a small part of a long key.
LONG = 100
SHORT = 12
DASHED = "dashes between"
PROSE = "the key I found: {} and that is all"


def encodings() -> dict[str, Write]:
    """Every way, by name."""
    return {name: write for name, (write, _) in WAYS.items()}


def survives(encoding: str, encoded: str, core: str, filtered: str) -> bool:
    """Whether 60 % of the core, twelve characters at least, can be read out of what the filter left."""
    if filtered == encoded:
        return True
    # A core with dashes of its own would hide among them.
    return survives_undone(WAYS[encoding][1], core, filtered, drop="-" if encoding == DASHED else "")


def survives_undone(undo: Undo, core: str, filtered: str, drop: str) -> bool:
    """The same of anything that can be undone; ``drop`` is what the writing put between."""
    wanted = _bare(core, drop)
    length = min(len(wanted), max(SHORT, min(LONG, math.ceil(0.6 * len(wanted)))))
    stretches = {wanted[at : at + length] for at in range(len(wanted) - length + 1)}
    for left in (*undo(filtered), filtered):
        text = _bare(left, drop)
        if any(text[at : at + length] in stretches for at in range(len(text) - length + 1)):
            return True
    return False


def _bare(text: str, drop: str = "") -> str:
    return re.sub(rf"[\s\x00{INVISIBLE}{drop}]", "", text)


# --- writing ---


def _b64(text: str, _: random.Random) -> str:
    return base64.b64encode(text.encode()).decode()


def _wrapped(text: str, _: random.Random) -> str:
    return base64.encodebytes(text.encode()).decode()


def _urlsafe(text: str, _: random.Random) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _hex(text: str, rng: random.Random, forms: tuple[str, ...] = ("{:02x}",), between: str = "") -> str:
    form = rng.choice(forms)
    return between.join(form.format(byte) for byte in text.encode())


def _every(text: str, rng: random.Random, between: str, least: int, most: int) -> str:
    step = rng.randint(least, most)
    return between.join(text[at : at + step] for at in range(0, len(text), step))


def _invisible(text: str, rng: random.Random) -> str:
    return "".join(char + rng.choice(INVISIBLE) for char in text)


def _xxd(text: str, _: random.Random) -> str:
    lines, data = [], text.encode()
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}: {row.hex(' ', -2):39}  {shown}")
    return "\n".join(lines)


def _gzip(text: str, rng: random.Random) -> str:
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _after(first: Write, second: Write) -> Write:
    return lambda text, rng: second(first(text, rng), rng)


def _in_prose(text: str, _: random.Random) -> str:
    return PROSE.format(text)


def _reversed(text: str, _: random.Random) -> str:
    return text[::-1]


# --- undoing ---


def _same(text: str) -> Iterator[str]:
    yield text


def _runs(pattern: str, text: str) -> list[str]:
    return re.findall(f"{pattern}{{8,}}", text)


def _undo_b64(text: str) -> Iterator[str]:
    joined = _bare(text).replace("-", "+").replace("_", "/")
    for run in _runs("[A-Za-z0-9+/]", joined):
        for start in range(4):
            part = run[start:]
            part = part[: len(part) - (len(part) % 4 == 1)]
            yield base64.b64decode(part + "=" * (-len(part) % 4)).decode("latin-1")


def _undo_hex(text: str) -> Iterator[str]:
    joined = re.sub(r"\\x|\b0x|[\s:,]", "", text.lower())
    for run in _runs("[0-9a-f]", joined):
        for start in range(2):
            yield bytes.fromhex(run[start : start + (len(run) - start) // 2 * 2]).decode("latin-1")


def _undo_xxd(text: str) -> Iterator[str]:
    rows = re.findall(r"\b[0-9a-f]{8}: ([0-9a-f ]{39})  (.*)", text)
    yield from _undo_hex("".join(row for row, _ in rows))
    yield "".join(shown for _, shown in rows)


def _undo_b32(text: str) -> Iterator[str]:
    for run in _runs("[A-Z2-7]", _bare(text)):
        for start in range(8):
            part = run[start:]
            part = part[: len(part) - (0, 1, 0, 1, 0, 0, 1, 0)[len(part) % 8]]
            yield base64.b32decode(part + "=" * (-len(part) % 8)).decode("latin-1")


def _undo_b85(text: str) -> Iterator[str]:
    for run in _runs(r"[!-~]", text):
        for start in range(5):
            groups = (run[at : at + 5] for at in range(start, len(run), 5))
            yield "".join(map(_b85_group, groups))


def _b85_group(group: str) -> str:
    try:
        return base64.b85decode(group).decode("latin-1")
    except ValueError:
        return "\n\ufffd"


def _undo_gzip(text: str) -> Iterator[str]:
    for run in _undo_b64(text):
        if (at := run.find("\x1f\x8b\x08")) >= 0:
            left, found = zlib.decompressobj(31), b""
            try:
                for byte in run[at:].encode("latin-1"):
                    found += left.decompress(bytes([byte]))
            except zlib.error:
                pass
            yield found.decode("latin-1")


def _undo_numbers(text: str, base: int) -> Iterator[str]:
    codes = (int(number, base) for number in re.findall(r"\b[0-7]+\b" if base == 8 else r"\b\d+\b", text))
    yield "".join(chr(code) if code < 256 else "\ufffd" for code in codes)


def _undo_list(text: str) -> Iterator[str]:
    items = re.findall(r"'(\\.|[^'\\])'|\"(.)\"", text)
    yield "".join("\n" if one == "\\n" else (one or other)[-1] for one, other in items)


def _undo_escapes(text: str) -> Iterator[str]:
    code = r"\\u([0-9a-fA-F]{4})"
    whole = re.sub(code, lambda match: chr(int(match[1], 16)), text)
    known = {"n": "\n", "t": "\t", "r": "\r"}
    yield whole
    yield re.sub(r"\\(.)", lambda match: known.get(match[1], match[1]), whole)


def _undo_twice(first: Undo, second: Undo) -> Undo:
    def undo(text: str) -> Iterator[str]:
        for one in first(text):
            yield from second(one)

    return undo


def _one(undo: Callable[[str], str]) -> Undo:
    return lambda text: iter((undo(text),))


_undo_reversed, _undo_rot13 = _one(lambda text: text[::-1]), _one(lambda text: codecs.encode(text, "rot13"))

WAYS: dict[str, tuple[Write, Undo]] = {
    "plain": (lambda text, rng: text, _same),
    "base64": (_b64, _undo_b64),
    "base64 twice": (_after(_b64, _b64), _undo_twice(_undo_b64, _undo_b64)),
    "base64 wrapped": (_wrapped, _undo_b64),
    "base64 urlsafe": (_urlsafe, _undo_b64),
    "base64 in prose": (_after(_b64, _in_prose), _undo_b64),
    "base64 of reversed": (_after(_reversed, _b64), _undo_twice(_undo_b64, _undo_reversed)),
    "base64 reversed": (_after(_b64, _reversed), _undo_twice(_undo_reversed, _undo_b64)),
    "base64 by lines of 8": (_after(_b64, partial(_every, between="\n", least=8, most=8)), _undo_b64),
    "base64 in JSON": (_after(_b64, lambda text, rng: json.dumps({"data": text})), _undo_b64),
    "gzip base64": (_gzip, _undo_gzip),
    "base32": (lambda text, rng: base64.b32encode(text.encode()).decode(), _undo_b32),
    "base85": (lambda text, rng: base64.b85encode(text.encode()).decode(), _undo_b85),
    "hex": (_hex, _undo_hex),
    "hex upper": (partial(_hex, forms=("{:02X}",)), _undo_hex),
    "hex colons": (partial(_hex, between=":"), _undo_hex),
    "hex escapes": (partial(_hex, forms=("\\x{:02x}",)), _undo_hex),
    "hex 0x": (partial(_hex, forms=("0x{:02x}", "0x{:02X}"), between=", "), _undo_hex),
    "hex spaced": (partial(_hex, forms=("{:02x}", "{:02X}"), between=" "), _undo_hex),
    "hex in prose": (_after(_hex, _in_prose), _undo_hex),
    "hex of base64": (_after(_b64, _hex), _undo_twice(_undo_hex, _undo_b64)),
    "hex reversed": (_after(_hex, _reversed), _undo_twice(_undo_reversed, _undo_hex)),
    "xxd": (_xxd, _undo_xxd),
    "octal codes": (partial(_hex, forms=("{:03o}",), between=" "), partial(_undo_numbers, base=8)),
    "binary codes": (
        partial(_hex, forms=("{:08b}",), between=" "),
        _one(lambda text: "".join(chr(int(byte, 2)) for byte in re.findall("[01]{8}", text))),
    ),
    "decimal codes": (partial(_hex, forms=("{}",), between=", "), partial(_undo_numbers, base=10)),
    "list of codes": (lambda text, rng: repr(list(text.encode())), partial(_undo_numbers, base=10)),
    "list of characters": (lambda text, rng: repr(list(text)), _undo_list),
    "one per line": (partial(_every, between="\n", least=1, most=1), _same),
    "one per space": (partial(_every, between=" ", least=1, most=1), _same),
    "lines of a few": (partial(_every, between="\n", least=3, most=12), _same),
    "spaced every few": (partial(_every, between=" ", least=3, most=8), _same),
    DASHED: (partial(_every, between="-", least=1, most=1), _same),
    "zero-width between": (_invisible, _same),
    "reversed": (_reversed, _undo_reversed),
    "rot13": (lambda text, rng: codecs.encode(text, "rot13"), _undo_rot13),
    "case swapped": (lambda text, rng: text.swapcase(), _one(str.swapcase)),
    "in prose": (_in_prose, _same),
    "JSON string": (lambda text, rng: json.dumps({"out": text}), _undo_escapes),
    "repr of bytes": (lambda text, rng: repr(text.encode()), _undo_escapes),
    "unicode escapes": (lambda text, rng: "".join(f"\\u{ord(char):04x}" for char in text), _undo_escapes),
    "HTML entities": (lambda text, rng: "".join(f"&#{ord(char)};" for char in text), _one(html.unescape)),
    "URL quoted": (lambda text, rng: urllib.parse.quote(text, safe=""), _one(urllib.parse.unquote)),
    "URL all percent": (partial(_hex, forms=("%{:02x}", "%{:02X}")), _one(urllib.parse.unquote)),
    "quoted-printable": (
        lambda text, rng: binascii.b2a_qp(text.encode()).decode(),
        _one(lambda text: binascii.a2b_qp(text.encode()).decode("latin-1")),
    ),
}
