"""Steps that decode text: base64 and its relatives, hexadecimal, lists of character codes.

Each takes a text and the number of characters to keep beside a find. It returns a text in which everything of
its encoding is decoded, or None if there is nothing. All run in time proportional to the text.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator

from cellblock.egress.decoded import LEAST, Decoded, Decoding, Found, as_text, replaced
from cellblock.egress.readable import PACKED, deflated, readable, unpacked

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")
#: Base64 in lines, as encoders wrap it and mails quote it.
_BASE64_LINES = re.compile(
    r"(?m)^[ \t>]{0,8}(?:[A-Za-z0-9+/_-]{4,}\r?\n[ \t>]{0,8})+[A-Za-z0-9+/_-]{1,}={0,2}"
    r"(?=[ \t]{0,8}(?:\r?\n|\Z))"
)
_BASE32 = re.compile(r"(?:[A-Z2-7]{16,}|[a-z2-7]{16,})={0,6}")
_BASE32_PADDING, _NO_WORD = 6, re.compile(r"[2-7=]")
_IN_BASE32 = re.compile(r"[A-Z2-7]+")
_BASE32_DIGITS = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", "0123456789ABCDEFGHIJKLMNOPQRSTUV")
#: Possessive, here and below: for backtracking, `re` would remember hundreds of bytes per byte of text.
_HEX = re.compile(r"(?:(?:0[xX]|\\x|%)?[0-9A-Fa-f]{2}(?:,? |[:,;\n-])?){8,}+")
#: Runs of the signs of _HEX that are long enough for a match: `re` finds them far faster. A pattern is shown
#: this many characters behind such a run, because its end depends on what follows: too few for another match.
_BEHIND = 12
_HEX_SIGNS = re.compile(r"[0-9A-Fa-f\\%][0-9A-Fa-fxX\\%,: ;\n-]{15,}")
#: Eight bytes of text in a row, from any digit on, and the first digits of something packed.
_TEXT_HEX = re.compile(rf"(?:[2-9a-eA-E][0-9a-fA-F]|0[9aAdD]|[fF][0-4]){{{LEAST}}}")
_PACKED_HEX, _PACKED_DIGITS = tuple(sign.hex() for sign in PACKED), 13
_NO_HEX_DIGIT = re.compile(r"0[xX]|\\x|[^0-9A-Fa-f]")
#: The first groups of five signs, which show whether a long run is text.
_BASE85_BEGINNING = 5 * 3276
_BASE85 = re.compile(r"[!-~]{20,}")
#: The signs of each base85. Decoders in Python take long to fail at others.
_BASE85_SIGNS = (
    (re.compile(r"[0-9A-Za-z!#$%&()*+;<=>?@^_`{|}~-]*"), base64.b85decode),
    (re.compile(r"[!-uz]*"), base64.a85decode),
)
#: Every run of base85 has some of these signs; paths, names and calls have few.
_SIGNS, _SIGNS_LEAST = re.compile(r"[!#$%&*+;<>?@^`{|}~]"), 3
_NUMBERS = re.compile(r"\b\d{1,3}\b(?:[\s,;|\[\]()']{1,4}\d{1,3}\b){7,}+")
_OCTETS = re.compile(r"(?:[01]{8}[\s,]{0,2}){8,}+")
_OCTAL_LIST = re.compile(r"\b[0-3][0-7]{2}\b(?:[\s,;]{1,2}[0-3][0-7]{2}\b){7,}+")
#: Runs of the signs of these three lists that are long enough for the shortest list.
_NUMBER_SIGNS = re.compile(r"\d[\d\s,;|\[\]()']{14,}")
_DUMP = re.compile(
    r"(?m)^[0-9A-Fa-f]{4,8}:?[ \t]{1,3}(?P<bytes>(?:[0-9A-Fa-f]{2,4}[ \t]{1,2}){1,16})[ \t]?.{0,60}$"
)


def reads_as_text(run: str) -> bool:
    """Whether this base64 or base32 decodes mostly to text, so that the filter has read it."""
    bare = "".join(run.split()).rstrip("=")
    if "=" in bare:
        return False
    return any(
        10 * share * _shown(list(readings(bare))) >= 7 * len(bare)
        for readings, share in ((_base64_readings, 4 / 3), (_base32_readings, 8 / 5))
    )


def reads_as_hex(run: str) -> bool:
    """Whether this run of hexadecimal digits decodes mostly to text."""
    return 10 * 2 * _shown(list(_hex_readings(run))) >= 7 * len(run)


def _base64(text: str, near: int) -> Decoded | None:
    return replaced(text, _in_runs(text, _BASE64, _base64_readings), near, apart=True)


def _base64_lines(text: str, near: int) -> Decoded | None:
    """Decodes base64 that an encoder has wrapped: all lines except the last are equally long."""
    return replaced(text, _wrapped(text), near, apart=True)


def _wrapped(text: str) -> Iterator[Found]:
    for match in _BASE64_LINES.finditer(text):
        lines = [line.strip(" \t\r>") for line in match[0].split("\n")]
        if len({len(line) for line in lines[:-1]}) > 1 or len(lines[-1].rstrip("=")) > len(lines[0]):
            continue
        pieces = [piece for _, _, piece in _base64_readings("".join(lines))]
        if pieces:
            yield match.start(), match.end(), "\n".join(pieces)


def _in_runs(
    text: str, runs: re.Pattern[str], readings: Callable[[str], Iterable[tuple[int, int, str]]]
) -> Iterator[Found]:
    for match in runs.finditer(text):
        for first, last, piece in readings(match[0]):
            yield match.start() + first, match.start() + last, piece


def _base64_readings(run: str) -> list[tuple[int, int, str]]:
    """The parts of a run that decode to text, in the one of four alignments that gives most text."""
    if run.islower() or run.isupper():  # a name: text in base64 has both
        return []
    body = run.rstrip("=").replace("-", "+").replace("_", "/")
    best: list[tuple[int, int, str]] = []
    for shift in range(4):
        found = readable(_of_base64(body[shift:]))
        if not found:
            continue
        readings = [
            (shift + first // 3 * 4, min(len(run), shift + -(-last // 3) * 4), piece)
            for first, last, piece in found
        ]
        if _shown(readings) > _shown(best):
            best = readings
        if 3 * len(body) <= 5 * _shown(readings):  # nearly all of it: no other is better
            break
    if not best and len(body) >= 24:
        bare = deflated(_of_base64(body))
        return [(0, len(run), bare)] if bare is not None else []
    if best and best[-1][1] >= len(body):
        best[-1] = (best[-1][0], len(run), best[-1][2])
    return best


def _of_base64(body: str) -> bytes:
    """The bytes of a run without padding; a single sign in its last group has none."""
    rest = len(body) % 4
    return binascii.a2b_base64(body[:-1] if rest == 1 else body + "="[:rest] * (4 - rest))


def _shown(readings: list[tuple[int, int, str]]) -> int:
    """The total length of these readings."""
    return sum(
        len(piece) if piece.isascii() else len(piece.encode("utf-8", "replace")) for _, _, piece in readings
    )


def _base32(text: str, near: int) -> Decoded | None:
    return replaced(text, _base32_found(text), near, apart=True)


def _base32_found(text: str) -> Iterator[Found]:
    for run in _BASE64.finditer(text):  # its signs are among those of base64, and such runs are found faster
        end = run.end() + _BASE32_PADDING
        if _NO_WORD.search(text, run.start(), end):
            for match in _BASE32.finditer(text, run.start(), end):
                for first, last, piece in _base32_readings(match[0]):
                    yield match.start() + first, match.start() + last, piece


def _base32_readings(run: str) -> Iterator[tuple[int, int, str]]:
    if run.isalpha():  # a word, or words without blanks: text in base32 has digits
        return
    body = run.rstrip("=").upper()
    usable = body[: len(body) - (1 if len(body) % 8 in {1, 3, 6} else 0)]
    if _IN_BASE32.fullmatch(usable) is None:
        return
    bits = 5 * len(usable)
    # A number of five bits a sign, which Python reads many times faster than base64.b32decode decodes.
    number = int(usable.translate(_BASE32_DIGITS), 32) >> bits % 8
    raw = number.to_bytes(bits // 8, "big")
    for first, last, piece in readable(raw):
        yield first // 5 * 8, min(len(run), -(-last // 5) * 8), piece


def _hex(text: str, near: int) -> Decoded | None:
    return replaced(text, _hex_found(text), near, apart=True)


def _hex_found(text: str) -> Iterator[Found]:
    for signs in _HEX_SIGNS.finditer(text):
        for match in _HEX.finditer(text, signs.start(), signs.end() + _BEHIND):
            for start, end, piece in _hex_readings(match[0]):
                yield match.start() + start, match.start() + end, piece


def _hex_readings(run: str) -> Iterator[tuple[int, int, str]]:
    run = run.rstrip(" ,:;\n-")
    digits = _NO_HEX_DIGIT.sub("", run)
    if not _may_be_text(digits):
        return
    best: list[tuple[int, int, str]] = []
    for shift in (0, 1):
        usable = digits[shift:]
        raw = bytes.fromhex(usable[: len(usable) // 2 * 2])
        readings = readable(raw)
        if readings and _shown(readings) > _shown(best):
            best = readings
    if not best:
        return
    if len(digits) == len(run):  # without separators every digit has its place
        yield from ((2 * first, min(len(run), 2 * last + 1), piece) for first, last, piece in best)
    else:
        yield 0, len(run), "\0".join(piece for _, _, piece in best)


def _may_be_text(digits: str) -> bool:
    """Whether these digits, from the first or the second on, can be text: as it stands, packed, or UTF-16."""
    beginning = digits[:_PACKED_DIGITS].lower()
    # In UTF-16, more than a third of the bytes are zero, and eight or more are not.
    wide = len(digits) >= 3 * LEAST and 3 * digits.count("0") > len(digits) - 2
    return (
        wide
        or beginning.startswith(_PACKED_HEX)
        or beginning[1:].startswith(_PACKED_HEX)
        or _TEXT_HEX.search(digits) is not None
    )


def _base85(text: str, near: int) -> Decoded | None:
    return replaced(text, _in_runs(text, _BASE85, _base85_readings), near, apart=True)


def _base85_readings(run: str) -> Iterator[tuple[int, int, str]]:
    if len(_SIGNS.findall(run)) < _SIGNS_LEAST:
        return
    bare = run.strip("\"'").removeprefix("<~").removesuffix("~>")
    for signs, decode in _BASE85_SIGNS:
        if signs.fullmatch(bare) is None:
            continue
        beginning = bare[:_BASE85_BEGINNING]
        if beginning != bare and _base85_text(decode, beginning) is None:
            continue
        if (shown := _base85_text(decode, bare)) is not None:
            yield 0, len(run), shown
            return


def _base85_text(decode: Callable[[str], bytes], run: str) -> str | None:
    """What the run decodes to, if nearly all of that is text."""
    try:
        raw = decode(run)
    except (ValueError, OverflowError):
        return None
    readings = readable(raw)
    if _shown(readings) * 10 < 9 * len(raw) and unpacked(raw) is None:
        return None
    return "".join(piece for _, _, piece in readings)


def _numbers(text: str, near: int) -> Decoded | None:
    """Decodes lists of character codes: decimal, octal, or as eight bits."""
    found: list[tuple[int, int, str, int]] = []
    for signs in _NUMBER_SIGNS.finditer(text):
        start, end = signs.start(), signs.end() + _BEHIND
        found += [(m.start(), m.end(), r"\d+", 10) for m in _NUMBERS.finditer(text, start, end)]
        found += [(m.start(), m.end(), r"\d+", 8) for m in _OCTAL_LIST.finditer(text, start, end)]
        found += [(m.start(), m.end(), "[01]{8}", 2) for m in _OCTETS.finditer(text, start, end)]
    return replaced(text, _codes(text, sorted(found)), near, apart=True)


def _codes(text: str, found: list[tuple[int, int, str, int]]) -> Iterator[Found]:
    done = 0
    for start, end, number, base in found:
        codes = [int(code, base) for code in re.findall(number, text[start:end])] if start >= done else []
        if codes and max(codes) <= 255:
            spelled = as_text(bytes(codes))
            if sum(map(str.isprintable, spelled)) * 10 >= 9 * len(spelled):
                yield start, end, spelled
                done = end


def _dumped(text: str, near: int) -> Decoded | None:
    """Decodes a hex dump, with its lines joined."""
    lines = list(_DUMP.finditer(text))
    if len(lines) < 2:
        return None
    raw = b"".join(bytes.fromhex("".join(line["bytes"].split())) for line in lines if _even(line["bytes"]))
    pieces = [piece for _, _, piece in readable(raw)]
    if not pieces:
        return None
    return replaced(text, [(lines[0].start(), lines[-1].end(), "\n".join(pieces))], near, apart=True)


def _even(digits: str) -> bool:
    return all(len(group) % 2 == 0 for group in digits.split())


#: Steps that decode text. Decoded text gets borders of its own, whatever stood around it.
ENCODINGS: dict[str, Decoding] = {
    "base64": _base64,
    "base64 lines": _base64_lines,
    "hex": _hex,
    "hex dump": _dumped,
    "base32": _base32,
    "base85": _base85,
    "numbers": _numbers,
}
