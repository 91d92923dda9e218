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
import string
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise


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
NEAR = 300
#: Text that was compressed grows at most to this.
_UNPACKED_BYTES = 1024 * 1024

_PRINTABLE = rb"[\t\n\r -~]"
#: Bytes that text in UTF-8 is made of, if one does not ask in which order.
_TEXTLIKE = rb"[\t\n\r -~\x80-\xf4]"
_IN_FEW_BYTES = (re.compile(_TEXTLIKE + b"{%d,}" % _LEAST), re.compile(_PRINTABLE + b"{%d,}" % _LEAST))
_IN_MANY_BYTES = (re.compile(_TEXTLIKE + b"{%d,}" % _SURE), re.compile(_PRINTABLE + b"{%d,}" % _SURE))
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")
#: The same in lines, as encoders wrap it.
_BASE64_LINES = re.compile(
    r"(?m)^[ \t>]{0,8}(?:[A-Za-z0-9+/_-]{4,}\r?\n[ \t]{0,8})+[A-Za-z0-9+/_-]{1,}={0,2}"
)
_BASE32 = re.compile(r"(?:[A-Z2-7]{16,}|[a-z2-7]{16,})={0,6}")
_HEX = re.compile(r"(?:(?:0[xX]|\\x|%)?[0-9A-Fa-f]{2}(?:,? |[:,;\n-])?){8,}")
_BASE85_MOST = 16 * 1024
_BASE85 = re.compile(r"[!-~]{20,}")
#: Some of these stand in every run of base85, and few in a path, a name or a call.
_SIGNS, _SIGNS_LEAST = re.compile(r"[!#$%&*+;<>?@^`{|}~]"), 3
_NUMBERS = re.compile(r"(?:\b\d{1,3}\b[\s,;|\[\]()']{1,4}){7,}\d{1,3}\b")
_OCTETS = re.compile(r"(?:[01]{8}[\s,]{0,2}){8,}")
_ESCAPES = re.compile(
    r"(?:\\x[0-9A-Fa-f]{2})+|(?:%[0-9A-Fa-f]{2})+|(?:\\[0-7]{3})+|\\u\{?[0-9A-Fa-f]{4,6}\}?|\\U[0-9A-Fa-f]{8}"
    r"|\\[nrt\"'/\\]|&#\d{2,7};|&#[xX][0-9A-Fa-f]{2,6};|&[a-zA-Z]{2,6};|\\N\{[A-Z -]{1,60}\}"
)
_PLAIN_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "'": "'", "/": "/", "\\": "\\"}
#: Encoders break lines at 76 characters.
_SOFT_BREAK = re.compile(r"(?m)^.{72,75}[^=\n]=$")
_QUOTED_PRINTABLE = re.compile(r"(?:=[0-9A-F]{2})+|=\r?\n")
_OCTAL_LIST = re.compile(r"(?:\b[0-3][0-7]{2}\b[\s,;]{1,2}){7,}[0-3][0-7]{2}\b")
_DUMP = re.compile(
    r"(?m)^[0-9A-Fa-f]{4,8}:?[ \t]{1,3}(?P<bytes>(?:[0-9A-Fa-f]{2,4}[ \t]{1,2}){1,16})[ \t]?.{0,60}$"
)
_INVISIBLE = re.compile(
    "[\u00ad\u0300-\u036f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd]+"
    "|\x1b\\[[0-?]*[ -/]*[@-~]"
)
#: Secrets that are broken up are so to hide, not to be read.
_WRAPPED_MOST, _EQUAL_LINES, _BLANKS_LEAST = 40, 2, 4
_SWAPPED = str.maketrans({letter: letter.swapcase() for letter in string.ascii_letters})
_FANCY = re.compile(
    "[\u00aa-\u00ba\u02b0-\u02e4\u1d2c-\u1d6a\u2070-\u209c\u2100-\u214f\u2460-\u24ff\uff01-\uff5e\U0001d400-\U0001d7ff]"
)
_LETTER = r"(?>'[ -~]'|\"[ -~]\"|[ -~])"
_SPELLED = re.compile(rf"{_LETTER}(?P<between>[^A-Za-z0-9]{{1,6}}?)(?>{_LETTER}(?P=between)){{6,}}+{_LETTER}")
#: A plus between two quotations is a program's way to put them together.
_UNBROKEN = re.compile(r"(?!\+[\s\"'`])[^\s\"'`,;|\[\]()\\]+")
_NUMBERED = re.compile(r"(?m)^[ \t]{0,12}\d{1,9}[ \t]{0,3}[:.)|\]\t -][ \t]?")
_PREFIXED = re.compile(r"(?m)^[ \t]{0,12}(?:[>#*|+-]|//)[ \t]?")


def _replaced(text: str, found: Iterable[tuple[int, int, str, bool]], near: int) -> Decoded | None:
    """What these stretches, in their order, read as, with so much of the text that stands beside them."""
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
            keep(max(0, start - near), start)
        elif start - done > 2 * near:
            keep(done, done + near)
            parts.append(Part(at, start, start, whole=True))
            pieces.append("\n")
            at += 1
            keep(start - near, start)
        else:
            keep(done, start)
        parts.append(Part(at, start, end, whole))
        pieces.append(piece)
        at += len(piece)
        done = end
    if not pieces:
        return None
    keep(done, min(len(text), done + near))
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


def _invisible(text: str, near: int) -> Decoded | None:
    """Without what takes no room on a screen, and with letters in their plain form."""
    plain = text if text.isascii() else _FANCY.sub(_plain_letter, text)
    found = [(m.start(), m.end(), "", True) for m in _INVISIBLE.finditer(plain)]
    if found:
        return _replaced(plain, found, near)
    return None if plain == text else _same_places(plain)


def _plain_letter(fancy: re.Match[str]) -> str:
    """One letter for one letter: mathematical, circled and full-width ones become ASCII."""
    plain = unicodedata.normalize("NFKC", fancy[0])
    return plain if len(plain) == 1 and plain < "\x80" else fancy[0]


def _escaped(text: str, near: int) -> Decoded | None:
    if not any(sign in text for sign in "\\%&"):
        return None
    found = ((m.start(), m.end(), _unescape(m[0]), True) for m in _ESCAPES.finditer(text))
    return _replaced(text, found, near)


def _unescape(escape: str) -> str:
    sign, rest = escape[0], escape[1:]
    try:
        if sign == "%":
            return _as_text(bytes.fromhex(escape.replace("%", "")))
        if sign == "&":
            return html.unescape(escape)
        if rest[0] == "x":
            return _as_text(bytes.fromhex(escape.replace("\\x", "")))
        if rest[0] in "uU":
            return chr(int(rest[1:].strip("{}"), 16))
        if rest[0] in "01234567":
            return _as_text(bytes(int(code, 8) & 255 for code in escape.split("\\")[1:]))
        if rest[0] == "N":
            return unicodedata.lookup(rest[2:-1])
        return _PLAIN_ESCAPES[rest[0]]
    except (ValueError, KeyError, OverflowError):
        return escape


def _as_text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _quoted_printable(text: str, near: int) -> Decoded | None:
    if "=3D" not in text and not _SOFT_BREAK.search(text):
        return None
    found = ((m.start(), m.end(), _unquoted(m[0]), True) for m in _QUOTED_PRINTABLE.finditer(text))
    return _replaced(text, found, near)


def _unquoted(quoted: str) -> str:
    return "" if quoted[1] in "\r\n" else _as_text(bytes.fromhex(quoted.replace("=", "")))


def reads_as_text(run: str) -> bool:
    """Whether most of what this base64 or base32 stands for is text, and so has been read."""
    bare = "".join(run.split()).rstrip("=")
    if "=" in bare:
        return False
    return any(
        10 * share * _shown(list(readings(bare))) >= 7 * len(bare)
        for readings, share in ((_base64_readings, 4 / 3), (_base32_readings, 8 / 5))
    )


def reads_as_hex(run: str) -> bool:
    """The same of one run of hexadecimal digits."""
    return 10 * 2 * _shown(list(_hex_readings(run))) >= 7 * len(run)


def _base64_lines(text: str, near: int) -> Decoded | None:
    """Base64 that an encoder has wrapped: all lines but the last are equally long."""
    return _replaced(text, _wrapped(text), near)


def _wrapped(text: str) -> Iterator[tuple[int, int, str, bool]]:
    for match in _BASE64_LINES.finditer(text):
        lines = match[0].split()
        if len({len(line) for line in lines[:-1]}) > 1 or len(lines[-1].rstrip("=")) > len(lines[0]):
            continue
        pieces = [piece for _, _, piece in _base64_readings("".join(lines))]
        if pieces:
            yield match.start(), match.end(), "\n".join(pieces), True


def _base64(text: str, near: int) -> Decoded | None:
    return _replaced(text, _in_runs(text, _BASE64, _base64_readings), near)


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
    """How many bytes of text they are."""
    return sum(
        len(piece) if piece.isascii() else len(piece.encode("utf-8", "replace")) for _, _, piece in readings
    )


def _readable(raw: bytes) -> Iterator[tuple[int, int, str]]:
    """The stretches of bytes that are text, also of what was compressed or is UTF-16."""
    unpacked = _unpacked(raw)
    if unpacked is not None:
        yield 0, len(raw), unpacked
        return
    if raw.count(0) * 3 > len(raw) and (wide := raw.replace(b"\0", b"")).isascii() and len(wide) >= _LEAST:
        yield 0, len(raw), wide.decode()
        return
    for start, end, piece in _stretches(raw):
        if end - start >= _SURE or 5 * (end - start) >= 3 * len(raw):
            yield start, end, piece


def _stretches(raw: bytes) -> Iterator[tuple[int, int, str]]:
    textlike, printable = _IN_FEW_BYTES if 3 * len(raw) < 5 * _SURE else _IN_MANY_BYTES
    for match in textlike.finditer(raw):
        try:
            yield match.start(), match.end(), match[0].decode()
        except UnicodeDecodeError:
            for plain in printable.finditer(raw, *match.span()):
                yield plain.start(), plain.end(), plain[0].decode()


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


def _base32(text: str, near: int) -> Decoded | None:
    return _replaced(text, _in_runs(text, _BASE32, _base32_readings), near)


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


def _hex(text: str, near: int) -> Decoded | None:
    return _replaced(text, _in_runs(text, _HEX, _hex_readings), near)


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


def _base85(text: str, near: int) -> Decoded | None:
    return _replaced(text, _in_runs(text, _BASE85, _base85_readings), near)


def _base85_readings(run: str) -> Iterator[tuple[int, int, str]]:
    if len(run) > _BASE85_MOST or len(_SIGNS.findall(run)) < _SIGNS_LEAST:
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


def _numbers(text: str, near: int) -> Decoded | None:
    """Lists of character codes: decimal, octal, or as eight bits."""
    found = [(m.start(), m.end(), r"\d+", 10) for m in _NUMBERS.finditer(text)]
    found += [(m.start(), m.end(), r"\d+", 8) for m in _OCTAL_LIST.finditer(text)]
    found += [(m.start(), m.end(), "[01]{8}", 2) for m in _OCTETS.finditer(text)]
    return _replaced(text, _codes(text, sorted(found)), near)


def _codes(text: str, found: list[tuple[int, int, str, int]]) -> Iterator[tuple[int, int, str, bool]]:
    done = 0
    for start, end, number, base in found:
        codes = [int(code, base) for code in re.findall(number, text[start:end])] if start >= done else []
        if codes and max(codes) <= 255:
            spelled = _as_text(bytes(codes))
            if sum(map(str.isprintable, spelled)) * 10 >= 9 * len(spelled):
                yield start, end, spelled, True
                done = end


def _dumped(text: str, near: int) -> Decoded | None:
    """What a hex dump shows, its lines put together."""
    lines = list(_DUMP.finditer(text))
    if len(lines) < 2:
        return None
    raw = b"".join(bytes.fromhex("".join(line["bytes"].split())) for line in lines if _even(line["bytes"]))
    pieces = [piece for _, _, piece in _readable(raw)]
    if not pieces:
        return None
    return _replaced(text, [(lines[0].start(), lines[-1].end(), "\n".join(pieces), True)], near)


def _even(digits: str) -> bool:
    return all(len(group) % 2 == 0 for group in digits.split())


def _spelled(text: str, near: int) -> Decoded | None:
    """Characters one by one with the same between them, as in a list."""
    return _replaced(text, _spellings(text), near)


def _spellings(text: str) -> Iterator[tuple[int, int, str, bool]]:
    for match in _SPELLED.finditer(text):
        step = len(match["between"])
        spelled = match[0]
        quoted = spelled[0] in "'\"" and spelled[2:3] == spelled[0]
        word = spelled[1 :: 3 + step] if quoted else spelled[:: 1 + step]
        if 2 * sum(map(str.isalnum, word)) >= len(word) >= _LEAST:
            yield match.start(), match.end(), word, True


def _numbered(text: str, near: int) -> Decoded | None:
    """Without what stands before every line: a number, or the sign of a quotation."""
    for sign in (_NUMBERED, _PREFIXED):
        found = [(m.start(), m.end(), "", True) for m in sign.finditer(text)]
        if len(found) >= 3 and 2 * len(found) > text.count("\n"):
            return _replaced(text, found, near)
    return None


def _unwrapped(text: str, near: int) -> Decoded | None:
    """Without the breaks or blanks that somebody put after every so many characters."""
    return _replaced(
        text, ((at, at + 1, "", True) for at in sorted({*_even_breaks(text), *_even_blanks(text)})), near
    )


def _even_breaks(text: str) -> Iterator[int]:
    """Where lines end of which several are equally long, with a shorter one as their last."""
    at = 0
    runs = [(width, sum(1 for _ in run)) for width, run in groupby(map(len, text.split("\n")))]
    for (width, times), (following, _) in pairwise([*runs, (-1, 0)]):
        ends_in_shorter = 0 < following < width
        if 0 < width <= _WRAPPED_MOST and times + ends_in_shorter > _EQUAL_LINES:
            yield from range(at + width, at + (width + 1) * (times - 1), width + 1)
            if ends_in_shorter:
                yield at + (width + 1) * times - 1
        at += (width + 1) * times


def _even_blanks(text: str) -> Iterator[int]:
    start = 0
    for line in text.split("\n"):
        lengths = [len(word) for word in line.split(" ")] if line.count(" ") >= _BLANKS_LEAST else []
        width, times = Counter(lengths).most_common(1)[0] if lengths else (0, 0)
        if 0 < width <= _WRAPPED_MOST and times >= _BLANKS_LEAST and 2 * times >= len(lengths):
            for match in re.finditer(rf"(?:.{{{width}}} ){{{_BLANKS_LEAST},}}", line):
                yield from range(start + match.start() + width, start + match.end(), width + 1)
        start += len(line) + 1


def joined(text: str) -> Decoded | None:
    """Everything that blanks, quotation marks and commas kept apart, in one."""
    return _kept(text, _UNBROKEN)


def rot13(text: str) -> Decoded:
    """Every letter thirteen on."""
    return _same_places(codecs.encode(text, "rot13"))


def swapped(text: str) -> Decoded:
    """Capitals for small letters and the reverse; only of ASCII, where each has one of the other."""
    return _same_places(text.translate(_SWAPPED))


def _same_places(text: str) -> Decoded:
    return Decoded(text, lambda: [Part(0, 0, len(text), whole=False)])


Decoding = Callable[[str, int], Decoded | None]

#: Steps that leave a text as it is but for some of its characters.
CLEANINGS: dict[str, Decoding] = {
    "invisible": _invisible,
    "escaped": _escaped,
    "quoted-printable": _quoted_printable,
    "spelled": _spelled,
    "numbered": _numbered,
}

#: Steps that show what was encoded; it has borders of its own, whatever stood around it.
ENCODINGS: dict[str, Decoding] = {
    "base64": _base64,
    "base64 lines": _base64_lines,
    "hex": _hex,
    "hex dump": _dumped,
    "base32": _base32,
    "base85": _base85,
    "numbers": _numbers,
    "wrapped": _unwrapped,
}
