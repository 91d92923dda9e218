"""Steps that undo changes of single characters: escapes, invisible characters, separators, other letters.

As in encodings.py, each step returns another reading of the text or None, in time proportional to the text.
"""

from __future__ import annotations

import codecs
import html
import json
import re
import string
import unicodedata
from collections.abc import Iterator
from functools import partial
from itertools import groupby, pairwise

from cellblock.egress.decoded import LEAST, Decoded, Decoding, Found, Part, as_text, replaced

#: Each alternative begins with a sign of its own, because `re` looks for such signs quickly.
_ESCAPES = re.compile(
    r"\\(?:x[0-9A-Fa-f]{2}(?:\\x[0-9A-Fa-f]{2})*|[0-7]{3}(?:\\[0-7]{3})*"
    r"|u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|u\{[0-9A-Fa-f]{1,6}\}|U[0-9A-Fa-f]{8}"
    r"|[nrt\"'/\\]|N\{[A-Z -]{1,60}\})"
    r"|%(?:[0-9A-Fa-f]{2}(?:%[0-9A-Fa-f]{2})*|u[0-9A-Fa-f]{4})"
    r"|&(?:#\d{1,7};|#[xX][0-9A-Fa-f]{1,6};|[a-zA-Z]{2,6};)"
)
#: The length of two escapes that together are one character beyond the first 65,536.
_PAIR_CHARS = 12
_PLAIN_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "'": "'", "/": "/", "\\": "\\"}
#: Encoders break lines at 76 characters.
_SOFT_BREAK = re.compile(r"(?m)^.{72,75}[^=\n]=$")
_QUOTED_PRINTABLE = re.compile(r"=(?:[0-9A-F]{2}(?:=[0-9A-F]{2})*|\r?\n)")
_QUOTED_SIGN = re.compile(r"=(?:[0-9A-F]{2}|\r?\n)")
_ALL_QUOTED = re.compile(r"=[0-9A-F]{2}(?:=[0-9A-F]{2}){5}")
_INVISIBLE = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]|"
    "[\u00ad\u0300-\u036f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd]+"
)
#: The ASCII characters that _INVISIBLE never begins with.
_SHOWN = b"\t\n\r" + bytes(range(0x20, 0x7F))
#: A text that hides something behind control characters has few of them.
_CONTROL, _CONTROLS_MOST = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f\ufffd]"), 8
#: Bounds for text that was broken up to hide it: short equal lines, or equally spaced blanks.
_WRAPPED_MOST, _EQUAL_LINES, _BLANKS_LEAST = 40, 2, 4
_SWAPPED = str.maketrans({letter: letter.swapcase() for letter in string.ascii_letters})
_FANCY = re.compile(
    "[\u00aa-\u00ba\u02b0-\u02e4\u1d2c-\u1d6a\u2070-\u209c\u2100-\u214f\u2460-\u24ff\uff01-\uff5e\U0001d400-\U0001d7ff]"
)
_LETTER = r"(?>'[ -~\u00a1-\uffff]'|\"[ -~\u00a1-\uffff]\"|[ -~\u00a1-\uffff])"
_SPELLED = re.compile(
    rf"{_LETTER}(?P<between>[^A-Za-z0-9]{{1,6}}?)(?>{_LETTER}(?P=between)){{6,}}+(?:{_LETTER})?"
)
#: Four letters or digits that stand alone: all spelled text has them, and this is cheaper to search.
_ALONE = re.compile(r"(?:(?<![A-Za-z0-9])[A-Za-z0-9][^A-Za-z0-9]{1,12}){4}(?![A-Za-z0-9]{2})")
#: Stretches in which no two letters or digits (a) stand together. Every match of _ALONE and of _SPELLED lies
#: in such a stretch and the character on each side of it, because its letters have other signs between them.
_PARTED = re.compile(rb"[a.]{8,}")
_CLASSES = bytes(97 if chr(byte) in string.ascii_letters + string.digits else 46 for byte in range(256))
#: A plus between two quotations joins them in programs, so it is left out.
_UNBROKEN = re.compile(r"(?!\+[\s\"'`])[^\s\"'`,;|\[\]()\\]+")
_NUMBERED = re.compile(r"(?m)^[ \t]{0,12}\d{1,9}[ \t]{0,3}[:.)|\]\t -][ \t]?")
_PREFIXED = re.compile(r"(?m)^[ \t]{0,12}(?:[>#*|+-]|//)[ \t]?")


def _invisible(text: str, near: int) -> Decoded | None:
    """The text without invisible characters, and with letters in their plain form."""
    if text.isascii() and not text.encode().translate(None, _SHOWN):
        return None
    plain = text if text.isascii() else _FANCY.sub(_plain_letter, text)
    found = [(m.start(), m.end(), "") for m in _INVISIBLE.finditer(plain)]
    if (
        len(found) > _CONTROLS_MOST and len({*_CONTROL.findall(plain)}) > _CONTROLS_MOST
    ):  # bytes of a file, not text
        found = []
    if found:
        return replaced(plain, found, near)
    return None if plain == text else _same_places(plain)


def _plain_letter(fancy: re.Match[str]) -> str:
    """The ASCII letter for a mathematical, circled or full-width one; the length does not change."""
    plain = unicodedata.normalize("NFKC", fancy[0])
    return plain if len(plain) == 1 and plain < "\x80" else fancy[0]


def _escaped(text: str, near: int) -> Decoded | None:
    if not any(sign in text for sign in "\\%&"):
        return None
    found = ((m.start(), m.end(), _unescape(m[0])) for m in _ESCAPES.finditer(text))
    return replaced(text, found, near)


def _unescape(escape: str) -> str:
    sign, rest = escape[0], escape[1:]
    try:
        if sign == "%" and rest[0] == "u":
            return chr(int(rest[1:], 16))
        if sign == "%":
            return as_text(bytes.fromhex(escape.replace("%", "")))
        if sign == "&":
            return html.unescape(escape)
        if rest[0] == "x":
            return as_text(bytes.fromhex(escape.replace("\\x", "")))
        if len(escape) == _PAIR_CHARS and rest[0] == "u":
            return json.loads(f'"{escape}"')  # type: ignore[no-any-return]  # one escape gives one character
        if rest[0] in "uU":
            return chr(int(rest[1:].strip("{}"), 16))
        if rest[0] in "01234567":
            return as_text(bytes(int(code, 8) & 255 for code in escape.split("\\")[1:]))
        if rest[0] == "N":
            return unicodedata.lookup(rest[2:-1])
        return _PLAIN_ESCAPES[rest[0]]
    except (ValueError, KeyError, OverflowError):
        return escape


def _quoted_printable(text: str, near: int) -> Decoded | None:
    broken = "=\n" in text or text.endswith("=")  # a soft break is the end of a line
    if "=3D" not in text and not _ALL_QUOTED.search(text) and not (broken and _SOFT_BREAK.search(text)):
        return None
    if 2 * len(_QUOTED_SIGN.findall(text)) < text.count("="):  # most "=" are in digests or assignments
        return None
    found = ((m.start(), m.end(), _unquoted(m[0])) for m in _QUOTED_PRINTABLE.finditer(text))
    return replaced(text, found, near)


def _unquoted(quoted: str) -> str:
    return "" if quoted[1] in "\r\n" else as_text(bytes.fromhex(quoted.replace("=", "")))


def _spelled(text: str, near: int) -> Decoded | None:
    """The text with spelled words joined: single characters with equal separators, as in a list."""
    if not any(_ALONE.search(text, start, end + 2) for start, end in _parted(text)):
        return None
    found = (one for start, end in _parted(text) for one in _spellings(text, start, end))
    return replaced(text, found, near)


def _parted(text: str) -> Iterator[tuple[int, int]]:
    classes = text.encode("latin-1", "replace").translate(_CLASSES).replace(b"aa", b"##")
    for match in _PARTED.finditer(classes):
        yield max(0, match.start() - 1), match.end() + 1


def _spellings(text: str, start: int, end: int) -> Iterator[Found]:
    for match in _SPELLED.finditer(text, start, end):
        step = len(match["between"])
        spelled = match[0]
        quoted = spelled[0] in "'\"" and spelled[2:3] == spelled[0]
        word = spelled[1 :: 3 + step] if quoted else spelled[:: 1 + step]
        if 2 * sum(map(str.isalnum, word)) >= len(word) >= LEAST:
            yield match.start(), match.end(), word


def _numbered(text: str, near: int) -> Decoded | None:
    """The text without the beginnings of its lines: numbers, or the signs of quotations."""
    for sign in (_NUMBERED, _PREFIXED):
        found = [(m.start(), m.end(), "") for m in sign.finditer(text)]
        if len(found) >= 3 and 2 * len(found) > text.count("\n"):
            return replaced(text, found, near)
    return None


def unwrapped(text: str, near: int) -> Decoded | None:
    """The text without line breaks or blanks that stand at equal distances."""
    return replaced(
        text, ((at, at + 1, "") for at in sorted({*_even_breaks(text), *_even_blanks(text)})), near
    )


def _even_breaks(text: str) -> Iterator[int]:
    """The ends of lines in groups of equally long lines, whose last line can be shorter."""
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
        blanks = line.count(" ")
        # Before indented text there are empty words, and no other length is that of half of the words.
        indented = blanks >= _BLANKS_LEAST and 2 * (len(line) - len(line.lstrip(" "))) > blanks + 1
        lengths = list(map(len, line.split(" "))) if blanks >= _BLANKS_LEAST and not indented else []
        # With many different lengths, no length is that of half of the words.
        even = bool(lengths) and 2 * len(set(lengths)) <= len(lengths) + 2
        width = max(dict.fromkeys(lengths), key=lengths.count) if even else 0
        times = lengths.count(width)
        if 0 < width <= _WRAPPED_MOST and times >= _BLANKS_LEAST and 2 * times >= len(lengths):
            for match in re.finditer(rf"(?:.{{{width}}} ){{{_BLANKS_LEAST},}}", line):
                yield from range(start + match.start() + width, start + match.end(), width + 1)
        start += len(line) + 1


def joined(text: str) -> Decoded | None:
    """The text without blanks, quotation marks, commas and brackets; its places are computed on request."""
    joined = "".join(unbroken(text))
    if len(joined) == len(text) or len(joined) < LEAST:
        return None
    return Decoded(joined, partial(_places, text))


def unbroken(text: str) -> list[str]:
    """The pieces that a joined text consists of."""
    return _UNBROKEN.findall(text)


def _places(text: str) -> list[Part]:
    parts, at = [], 0
    for match in _UNBROKEN.finditer(text):
        parts.append(Part(at, match.start(), match.end(), whole=False))
        at += match.end() - match.start()
    return parts


def rot13(text: str) -> Decoded:
    """The text with every letter moved thirteen places on in the alphabet."""
    return _same_places(codecs.encode(text, "rot13"))


def swapped(text: str) -> Decoded:
    """The text with upper and lower case exchanged, in ASCII only, where each letter has both cases."""
    return _same_places(text.translate(_SWAPPED))


def _same_places(text: str) -> Decoded:
    return Decoded(text, lambda: [Part(0, 0, len(text), whole=False)])


#: Steps that do not join separate words.
CLEANINGS: dict[str, Decoding] = {
    "invisible": _invisible,
    "escaped": _escaped,
    "quoted-printable": _quoted_printable,
    "spelled": _spelled,
    "numbered": _numbered,
}
