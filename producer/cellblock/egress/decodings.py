"""Single steps from one reading of a text to another: what views.py puts together.

Each takes a text and answers with another one in which everything that can be read this way has been, or with
None if nothing can. All run in time proportional to the text.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a decoded text, from ``at`` on, and where it came from.

    ``whole``: character by character there is no telling where each came from; else they are the same.
    """

    at: int
    start: int
    end: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Decoded:
    """A text and, when somebody asks, the parts it was made of."""

    text: str
    parts: Callable[[], list[Part]]


#: Fewer decoded characters than this are no secret of any form known here.
_LEAST = 8
#: As many in a row are no accident, whatever stands around them.
_SURE = 16
#: What stands around a decoded stretch can say what it is; further away it cannot.
_NEAR = 300
#: Text that was compressed grows at most to this.
_UNPACKED_BYTES = 1024 * 1024

_PRINTABLE = re.compile(rb"[\t\n\r -~]{%d,}" % _LEAST)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")
_BASE32 = re.compile(r"(?:[A-Z2-7]{16,}|[a-z2-7]{16,})={0,6}")
_HEX = re.compile(r"(?:(?:0[xX]|\\x|%)?[0-9A-Fa-f]{2}(?:,? |[:,;\n-])?){8,}")
_BASE85 = re.compile(r"[!-~]{20,}")
#: Some of these stand in every run of base85, and few in a path, a name or a call.
_SIGNS, _SIGNS_LEAST = re.compile(r"[!#$%&*+;<>?@^`{|}~]"), 3
_NUMBERS = re.compile(r"(?:\b\d{1,3}\b[\s,;|\[\]()']{1,4}){7,}\d{1,3}\b")
_OCTETS = re.compile(r"(?:[01]{8}[\s,]{0,2}){8,}")
_ESCAPES = re.compile(
    r"\\x[0-9A-Fa-f]{2}|\\u\{?[0-9A-Fa-f]{4,6}\}?|\\U[0-9A-Fa-f]{8}|\\[0-7]{3}|\\[nrt\"'/\\]|%[0-9A-Fa-f]{2}"
    r"|&#\d{2,7};|&#[xX][0-9A-Fa-f]{2,6};|&[a-zA-Z]{2,6};|=[0-9A-F]{2}|=\r?\n|\\N\{[A-Z -]{1,60}\}"
)
_PLAIN_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "'": "'", "/": "/", "\\": "\\"}
_INVISIBLE = re.compile(
    "[\u00ad\u0300-\u036f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd]+"
    "|\x1b\\[[0-?]*[ -/]*[@-~]"
)
_FANCY = re.compile(
    "[\u00aa-\u00ba\u02b0-\u02e4\u1d2c-\u1d6a\u2070-\u209c\u2100-\u214f\u2460-\u24ff\uff01-\uff5e\U0001d400-\U0001d7ff]"
)
_LETTER = r"(?>'[ -~]'|\"[ -~]\"|[!-~])"
_SPELLED = re.compile(rf"{_LETTER}(?P<between>[^A-Za-z0-9]{{1,6}}?)(?>{_LETTER}(?P=between)){{6,}}+{_LETTER}")
_UNBROKEN = re.compile(r"[^\s\"'`,;|\[\]()\\+]+|(?<![\s\"'`])\+(?![\s\"'`])")
_NUMBERED = re.compile(r"(?m)^[ \t]{0,12}\d{1,9}[ \t]{0,3}[:.)|\]\t -][ \t]?")
_PREFIXED = re.compile(r"(?m)^[ \t]{0,12}(?:[>#*|+-]|//)[ \t]?")


def _replaced(text: str, found: Iterable[tuple[int, int, str, bool]]) -> Decoded | None:
    """What these stretches, in their order, read as, with the text that stands near them."""
    pieces: list[str] = []
    parts: list[Part] = []
    at = done = 0

    def keep(start: int, end: int) -> None:
        nonlocal at
        if end > start:
            parts.append(Part(at, start, end, whole=False))
            pieces.append(text[start:end])
            at += end - start

    for start, end, piece, whole in found:
        if not pieces:
            keep(max(0, start - _NEAR), start)
        elif start - done > 2 * _NEAR:
            keep(done, done + _NEAR)
            keep(start - _NEAR, start)
        else:
            keep(done, start)
        parts.append(Part(at, start, end, whole))
        pieces.append(piece)
        at += len(piece)
        done = end
    if not pieces:
        return None
    keep(done, min(len(text), done + _NEAR))
    return Decoded("".join(pieces), lambda: parts)


def _kept(text: str, wanted: re.Pattern[str]) -> Decoded | None:
    """Only what the pattern finds, put together; its places are looked up when they are asked for."""
    joined = "".join(wanted.findall(text))
    if len(joined) == len(text) or len(joined) < _LEAST:
        return None
    return Decoded(joined, partial(_places, text, wanted))


def _places(text: str, wanted: re.Pattern[str]) -> list[Part]:
    parts, at = [], 0
    for match in wanted.finditer(text):
        parts.append(Part(at, match.start(), match.end(), whole=False))
        at += match.end() - match.start()
    return parts


def _invisible(text: str) -> Decoded | None:
    """Without what takes no room on a screen, and with letters in their plain form."""
    plain = text if text.isascii() else _FANCY.sub(_plain_letter, text)
    found = [(m.start(), m.end(), "", True) for m in _INVISIBLE.finditer(plain)]
    if found:
        return _replaced(plain, found)
    return None if plain == text else Decoded(plain, lambda: [Part(0, 0, len(text), whole=False)])


def _plain_letter(fancy: re.Match[str]) -> str:
    """One letter for one letter: mathematical, circled and full-width ones become ASCII."""
    plain = unicodedata.normalize("NFKC", fancy[0])
    return plain if len(plain) == 1 and plain < "\x80" else fancy[0]


def _escaped(text: str) -> Decoded | None:
    if not any(sign in text for sign in "\\%&="):
        return None
    return _replaced(text, ((m.start(), m.end(), _unescape(m[0]), True) for m in _ESCAPES.finditer(text)))


def _unescape(escape: str) -> str:
    sign, rest = escape[0], escape[1:]
    try:
        if sign == "%":
            return chr(int(rest, 16))
        if sign == "=":
            return "" if rest[0] in "\r\n" else chr(int(rest, 16))
        if sign == "&":
            return html.unescape(escape)
        if rest[0] in "xuU":
            return chr(int(rest[1:].strip("{}"), 16))
        if rest[0] in "01234567":
            return chr(int(rest, 8))
        if rest[0] == "N":
            return unicodedata.lookup(rest[2:-1])
        return _PLAIN_ESCAPES[rest[0]]
    except (ValueError, KeyError, OverflowError):
        return escape


def _base64(text: str) -> Decoded | None:
    return _replaced(text, _in_runs(text, _BASE64, _base64_readings))


def _in_runs(
    text: str, runs: re.Pattern[str], readings: Callable[[str], Iterator[tuple[int, int, str]]]
) -> Iterator[tuple[int, int, str, bool]]:
    for match in runs.finditer(text):
        for start, end, piece in readings(match[0]):
            yield match.start() + start, match.start() + end, piece, True


def _base64_readings(run: str) -> Iterator[tuple[int, int, str]]:
    """What of a run is text, by the alignment of four that shows most of it."""
    if run.islower() or run.isupper():  # a name: text in base64 has both
        return iter(())
    body = run.rstrip("=").replace("-", "+").replace("_", "/")
    best: list[tuple[int, int, str]] = []
    for shift in range(4):
        usable = body[shift:]
        raw = binascii.a2b_base64(usable[: len(usable) // 4 * 4] + _filled(usable))
        readings = [
            (shift + first // 3 * 4, min(len(run), shift + -(-last // 3) * 4), piece)
            for first, last, piece in _readable(raw)
        ]
        if _shown(readings) > _shown(best):
            best = readings
        if readings and 3 * len(body) <= 5 * _shown(readings):  # nearly all of it: no other reads better
            break
    if best and best[-1][1] >= len(body):
        best[-1] = (best[-1][0], len(run), best[-1][2])
    return iter(best)


def _filled(usable: str) -> str:
    """The last incomplete group of a run, with its padding."""
    rest = usable[len(usable) // 4 * 4 :]
    return rest + "=" * (4 - len(rest)) if len(rest) > 1 else ""


def _shown(readings: list[tuple[int, int, str]]) -> int:
    return sum(len(piece) for _, _, piece in readings)


def _readable(raw: bytes) -> Iterator[tuple[int, int, str]]:
    """The stretches of bytes that are text, also of what was compressed or is UTF-16."""
    unpacked = _unpacked(raw)
    if unpacked is not None:
        yield 0, len(raw), unpacked
        return
    if raw.count(0) * 3 > len(raw) and (wide := raw.replace(b"\0", b"")).isascii() and len(wide) >= _LEAST:
        yield 0, len(raw), wide.decode()
        return
    for match in _PRINTABLE.finditer(raw):
        length = match.end() - match.start()
        if length >= _SURE or 5 * length >= 3 * len(raw):
            yield match.start(), match.end(), match[0].decode()


def _unpacked(raw: bytes) -> str | None:
    """What was compressed by gzip or zlib, up to a bound."""
    if raw[:2] != b"\x1f\x8b" and not (
        raw[:1] == b"\x78" and raw[1:2] in {b"\x01", b"\x5e", b"\x9c", b"\xda"}
    ):
        return None
    try:
        return (
            zlib.decompressobj(wbits=47).decompress(raw, _UNPACKED_BYTES).decode("utf-8", "replace") or None
        )
    except zlib.error:
        return None


def _base32(text: str) -> Decoded | None:
    return _replaced(text, _in_runs(text, _BASE32, _base32_readings))


def _base32_readings(run: str) -> Iterator[tuple[int, int, str]]:
    if run.isalpha():  # a word, or words without blanks: text in base32 has digits
        return
    body = run.rstrip("=").upper()
    usable = body[: len(body) - (1 if len(body) % 8 in {1, 3, 6} else 0)]
    try:
        raw = base64.b32decode(usable + "=" * (-len(usable) % 8))
    except (binascii.Error, ValueError):
        return
    for first, last, piece in _readable(raw):
        yield first // 5 * 8, min(len(run), -(-last // 5) * 8), piece


def _hex(text: str) -> Decoded | None:
    return _replaced(text, _in_runs(text, _HEX, _hex_readings))


def _hex_readings(run: str) -> Iterator[tuple[int, int, str]]:
    digits = re.sub(r"0[xX]|\\x|[^0-9A-Fa-f]", "", run)
    best: list[tuple[int, int, str]] = []
    for shift in (0, 1):
        usable = digits[shift:]
        raw = bytes.fromhex(usable[: len(usable) // 2 * 2])
        readings = list(_readable(raw))
        if _shown(readings) > _shown(best):
            best = readings
    if not best:
        return
    if len(digits) == len(run):  # without separators every digit has its place
        yield from ((2 * first, min(len(run), 2 * last + 1), piece) for first, last, piece in best)
    else:
        yield 0, len(run), "\0".join(piece for _, _, piece in best)


def _base85(text: str) -> Decoded | None:
    return _replaced(text, _in_runs(text, _BASE85, _base85_readings))


def _base85_readings(run: str) -> Iterator[tuple[int, int, str]]:
    if len(_SIGNS.findall(run)) < _SIGNS_LEAST:
        return
    for decode in (base64.b85decode, base64.a85decode):
        bare = run.strip("\"'").removeprefix("<~").removesuffix("~>")
        try:
            raw = decode(bare)
        except (ValueError, OverflowError):
            continue
        readings = list(_readable(raw))
        if _shown(readings) * 10 >= 9 * len(raw) or _unpacked(raw) is not None:
            yield 0, len(run), "".join(piece for _, _, piece in readings)
            return


def _numbers(text: str) -> Decoded | None:
    """Lists of character codes, decimal or as eight bits."""
    found = [(m.start(), m.end(), 10) for m in _NUMBERS.finditer(text)]
    found += [(m.start(), m.end(), 2) for m in _OCTETS.finditer(text)]
    return _replaced(text, _spelled_codes(text, sorted(found)))


def _spelled_codes(text: str, found: list[tuple[int, int, int]]) -> Iterator[tuple[int, int, str, bool]]:
    for start, end, base in found:
        codes = [int(code, base) for code in re.findall(r"\d+" if base == 10 else "[01]{8}", text[start:end])]
        if all(9 <= code <= 126 for code in codes):
            yield start, end, "".join(map(chr, codes)), True


def _spelled(text: str) -> Decoded | None:
    """Characters one by one with the same between them, as in a list."""
    return _replaced(text, _spellings(text))


def _spellings(text: str) -> Iterator[tuple[int, int, str, bool]]:
    for match in _SPELLED.finditer(text):
        step = len(match["between"])
        spelled = match[0]
        quoted = spelled[0] in "'\"" and spelled[2:3] == spelled[0]
        word = spelled[1 :: 3 + step] if quoted else spelled[:: 1 + step]
        if sum(map(str.isalnum, word)) >= _LEAST:
            yield match.start(), match.end(), word, True


def _numbered(text: str) -> Decoded | None:
    """Without what stands before every line: a number, or the sign of a quotation."""
    for sign in (_NUMBERED, _PREFIXED):
        found = [(m.start(), m.end(), "", True) for m in sign.finditer(text)]
        if len(found) >= 3 and 2 * len(found) > text.count("\n"):
            return _replaced(text, found)
    return None


def joined(text: str) -> Decoded | None:
    """Everything that blanks, quotation marks and commas kept apart, in one."""
    return _kept(text, _UNBROKEN)


def rot13(text: str) -> Decoded:
    """Every letter thirteen on."""
    return Decoded(codecs.encode(text, "rot13"), lambda: [Part(0, 0, len(text), whole=False)])


#: Steps that show what was encoded.
DECODINGS: dict[str, Callable[[str], Decoded | None]] = {
    "invisible": _invisible,
    "escaped": _escaped,
    "base64": _base64,
    "hex": _hex,
    "base32": _base32,
    "base85": _base85,
    "numbers": _numbers,
    "spelled": _spelled,
    "numbered": _numbered,
}
