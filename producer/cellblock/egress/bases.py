"""A table of codecs for numbers and rarer bases: the pattern that recognises a run, and its decoder.

A run counts as encoded only if all of it decodes to text: by their alphabets alone, words would match too.
"""

# ruff: noqa: E501

from __future__ import annotations

import base64
import binascii
import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cellblock.egress.decoded import LEAST, Decoded, Found, replaced
from cellblock.egress.readable import unpacked
from cellblock.egress.values.checksums import from_base58

_BASE45 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ $%*+-./:"
_OF_45 = {char: value for value, char in enumerate(_BASE45)}
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_Z85_VALUE = {char: value for value, char in enumerate(_Z85)}
_CROCKFORD = str.maketrans("0123456789ABCDEFGHJKMNPQRSTVWXYZ", "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
#: Numbers of more digits take long to convert; Python refuses longer decimal ones.
_NUMBER_CHARS, _RUN_CHARS = 4000, 16 * 1024
_SWAPPED_CASE = bytes(byte ^ 0x20 for byte in range(256))
_UU = re.compile(
    r"(?m)^begin \d{3,4} \S{1,80}\r?\n(?P<lines>(?:[ -`]{2,62}\r?\n){1,4000})[`]?\r?\n?end|^(?P<bare>(?:M[ -`]{60}\r?\n)+[ -`]{2,62})$"
)


@dataclass(frozen=True, slots=True)
class Codec:
    """``runs`` recognises a run; ``decode`` returns its bytes or raises ValueError.

    ``group``: the characters that are decoded together; of a run longer than ``most``, the first groups show
    whether it is text. 0: all of a run is one number, and a longer one takes too long to convert.
    """

    name: str
    runs: re.Pattern[str]
    decode: Callable[[str], bytes]
    most: int = _RUN_CHARS
    group: int = 0


def _base45(run: str) -> bytes:
    run = run.strip()
    if len(run) % 3 == 1:
        raise ValueError("no length of base45")
    out = bytearray()
    for at in range(0, len(run), 3):
        group = [_OF_45[char] for char in run[at : at + 3]]
        number = sum(value * 45**place for place, value in enumerate(group))
        out += number.to_bytes(len(group) - 1, "big")  # too large: OverflowError
    return bytes(out)


def _z85(run: str) -> bytes:
    if len(run) % 5:
        raise ValueError("no length of Z85")
    out = bytearray()
    for at in range(0, len(run), 5):
        number = 0
        for char in run[at : at + 5]:
            number = number * 85 + _Z85_VALUE[char]
        out += number.to_bytes(4, "big")
    return bytes(out).rstrip(b"\0")


def _number(run: str, base: int) -> bytes:
    number = int(run, base)
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _base32hex(run: str) -> bytes:
    bare = run.rstrip("=").upper()
    return base64.b32hexdecode(bare + "=" * (-len(bare) % 8))


def _crockford(run: str) -> bytes:
    bare = run.upper().translate(_CROCKFORD)
    return base64.b32decode(bare + "=" * (-len(bare) % 8))


def _swapped_hex(run: str) -> bytes:
    return bytes.fromhex(run[: len(run) // 2 * 2]).translate(_SWAPPED_CASE)


CODECS: tuple[Codec, ...] = (
    Codec("base45", re.compile(r"[0-9A-Z][0-9A-Z $%*+\-./:]{22,}"), _base45, group=3),
    Codec(
        "z85",
        re.compile(
            r"(?=(?:[0-9A-Za-z]{0,20}[.\-:+=^!/*?&<>()\[\]{}@%$#]){3})[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{20,}"
        ),
        _z85,
        group=5,
    ),
    Codec(
        "base58", re.compile(r"(?<![A-Za-z0-9])[1-9A-HJ-NP-Za-km-z]{14,}(?![A-Za-z0-9])"), from_base58, 2048
    ),
    Codec(
        "base36",
        re.compile(r"(?<![A-Za-z0-9])(?:[0-9a-z]{16,}|[0-9A-Z]{16,})(?![A-Za-z0-9])"),
        lambda run: _number(run, 36),
        2048,
    ),
    Codec(
        "big integer", re.compile(r"(?<![\d.])\d{24,}(?![\d.])"), lambda run: _number(run, 10), _NUMBER_CHARS
    ),
    Codec("base32 hex", re.compile(r"(?<![A-Za-z0-9])[0-9A-V]{16,}={0,6}"), _base32hex, group=8),
    Codec(
        "crockford",
        re.compile(r"(?<![A-Za-z0-9])[0-9A-HJKMNP-TV-Z]{16,}(?![A-Za-z0-9])"),
        _crockford,
        group=8,
    ),
    Codec("xor", re.compile(r"(?<![A-Za-z0-9])(?:[0-9a-f]{2}){10,}(?![A-Za-z0-9])"), _swapped_hex, group=2),
)
_BOTH = re.compile(r"(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z])")
#: A run must have a digit among its first characters: words have none.
_RUN = re.compile(r"(?=[^\d\s]{0,40}\d)[!-~]{14,}")
_UNBROKEN, _DIGIT, _DIGIT_REACH = re.compile(r"[!-~]{14,}"), re.compile(r"\d"), 41
#: Every run of the second codec has the first of these, and runs of the codecs behind it the other.
_SIGNED_LEAST = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{20}")
_LETTERS_LEAST = re.compile(r"[A-Za-z0-9]{14}")


def others(text: str, near: int) -> Decoded | None:
    """The text with every run decoded that one of these codecs turns into text; None without such a run."""
    found = sorted({*_runs(text), *_uuencoded(text)})
    kept: list[Found] = []
    for one in found:
        if not kept or one[0] >= kept[-1][1]:
            kept.append(one)
    return replaced(text, kept, near, apart=True) if kept else None


def _runs(text: str) -> Iterator[Found]:
    """Decoded runs. One sweep finds unbroken runs with a digit; the codecs search only those."""
    spaced = CODECS[0]
    for match in spaced.runs.finditer(text):
        if _BOTH.match(match[0]) and (shown := _shown(spaced, match[0])) is not None:
            yield *match.span(), shown
    for run in _digit_runs(text):
        for codec in _possible(text, *run.span()):
            for match in codec.runs.finditer(text, *run.span()):
                if (shown := _shown(codec, match[0])) is not None:
                    yield *match.span(), shown


def _possible(text: str, start: int, end: int) -> tuple[Codec, ...]:
    """The codecs with a run in such a stretch: the second one needs its signs, all others letters or digits."""
    signed = CODECS[1:2] if _SIGNED_LEAST.search(text, start, end) else ()
    return signed + CODECS[2:] if _LETTERS_LEAST.search(text, start, end) else signed


def _digit_runs(text: str) -> Iterator[re.Match[str]]:
    """The matches of _RUN. Most unbroken runs have no digit, which is faster to find than that _RUN fails."""
    for unbroken in _UNBROKEN.finditer(text):
        end = unbroken.end() + _DIGIT_REACH
        if _DIGIT.search(text, unbroken.start(), end):
            match = _RUN.search(text, unbroken.start(), end)
            if match and match.start() < unbroken.end():
                yield match


def _shown(codec: Codec, run: str) -> str | None:
    if len(run) > codec.most and not _begins_with_text(codec, run):
        return None
    try:
        raw = codec.decode(run)
    except (ValueError, OverflowError, KeyError):
        return None
    for data in (raw, raw[::-1]) if codec.name == "big integer" else (raw,):
        if (content := unpacked(data)) is not None:
            return content
        if len(data) < LEAST:
            continue
        try:
            shown = data.decode()
        except UnicodeDecodeError:
            continue
        if shown.isprintable() or all(char.isprintable() or char in "\n\t\r" for char in shown):
            return shown
    return None


def _begins_with_text(codec: Codec, run: str) -> bool:
    if not codec.group:
        return False
    try:
        raw = codec.decode(run[: codec.most // codec.group * codec.group])
        return unpacked(raw) is not None or bool(getincrementaldecoder("utf-8")().decode(raw))
    except (ValueError, OverflowError, KeyError):
        return False


def _uuencoded(text: str) -> Iterator[Found]:
    if "begin " not in text and "\nM" not in text and not text.startswith("M"):
        return
    for match in _UU.finditer(text):
        raw = b""
        for line in (match["lines"] or match["bare"]).splitlines():
            try:
                raw += binascii.a2b_uu(line)
            except binascii.Error:
                break
        shown = unpacked(raw) or raw.decode("utf-8", "replace")
        if shown:
            yield match.start(), match.end(), shown
