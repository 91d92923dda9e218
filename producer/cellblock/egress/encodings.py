"""Steps that decode text: base64 and its relatives, hexadecimal, lists of character codes.

Each takes a text and the number of characters to keep beside a find. It returns a text in which everything of
its encoding is decoded, or None if there is nothing. All run in time proportional to the text.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Iterator

from cellblock.egress.decoded import BORDER, LEAST, Decoded, Decoding, Found, as_text, replaced

#: So long a run is not an accident, whatever stands around it.
_SURE = 16
#: The first bytes of gzip's and zlib's streams.
_COMPRESSED = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
#: Bounds for unpacking: compressed text seldom shrinks to less than a tenth.
_UNPACKED_FACTOR, _UNPACKED_LEAST = 16, 512
_LZMA_BYTES = 64 * 1024 * 1024
#: Stands for a part that grew beyond these bounds and was not read.
TOO_LONG = f"{BORDER}packed{BORDER}"
_PRINTABLE = rb"[\t\n\r -~]"
#: The bytes of UTF-8 text, in any order.
_TEXTLIKE = rb"[\t\n\r -~\x80-\xf4]"
_IN_FEW_BYTES = (re.compile(_TEXTLIKE + b"{%d,}" % LEAST), re.compile(_PRINTABLE + b"{%d,}" % LEAST))
_IN_MANY_BYTES = (re.compile(_TEXTLIKE + b"{%d,}" % _SURE), re.compile(_PRINTABLE + b"{%d,}" % _SURE))
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")
#: Base64 in lines, as encoders wrap it and mails quote it.
_BASE64_LINES = re.compile(
    r"(?m)^[ \t>]{0,8}(?:[A-Za-z0-9+/_-]{4,}\r?\n[ \t>]{0,8})+[A-Za-z0-9+/_-]{1,}={0,2}"
    r"(?=[ \t]{0,8}(?:\r?\n|\Z))"
)
_BASE32 = re.compile(r"(?:[A-Z2-7]{16,}|[a-z2-7]{16,})={0,6}")
#: Possessive, here and below: for backtracking, `re` would remember hundreds of bytes per byte of text.
_HEX = re.compile(r"(?:(?:0[xX]|\\x|%)?[0-9A-Fa-f]{2}(?:,? |[:,;\n-])?){8,}+")
_BASE85_MOST = 16 * 1024
_BASE85 = re.compile(r"[!-~]{20,}")
#: Every run of base85 has some of these signs; paths, names and calls have few.
_SIGNS, _SIGNS_LEAST = re.compile(r"[!#$%&*+;<>?@^`{|}~]"), 3
_NUMBERS = re.compile(r"\b\d{1,3}\b(?:[\s,;|\[\]()']{1,4}\d{1,3}\b){7,}+")
_OCTETS = re.compile(r"(?:[01]{8}[\s,]{0,2}){8,}+")
_OCTAL_LIST = re.compile(r"\b[0-3][0-7]{2}\b(?:[\s,;]{1,2}[0-3][0-7]{2}\b){7,}+")
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
    text: str, runs: re.Pattern[str], readings: Callable[[str], Iterator[tuple[int, int, str]]]
) -> Iterator[Found]:
    for match in runs.finditer(text):
        for start, end, piece in readings(match[0]):
            yield match.start() + start, match.start() + end, piece


def _base64_readings(run: str) -> Iterator[tuple[int, int, str]]:
    """The parts of a run that decode to text, in the one of four alignments that gives most text."""
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
        if readings and 3 * len(body) <= 5 * _shown(readings):  # nearly all of it: no other is better
            break
    if not best and len(body) >= 24:
        raw = binascii.a2b_base64(body[: len(body) // 4 * 4] + _filled(body))
        bare = _deflated(raw)
        return iter([(0, len(run), bare)] if bare is not None else [])
    if best and best[-1][1] >= len(body):
        best[-1] = (best[-1][0], len(run), best[-1][2])
    return iter(best)


def _filled(usable: str) -> str:
    """The run with padding for its last incomplete group."""
    rest = usable[len(usable) // 4 * 4 :]
    return rest + "=" * (4 - len(rest)) if len(rest) > 1 else ""


def _shown(readings: list[tuple[int, int, str]]) -> int:
    """The total length of these readings."""
    return sum(
        len(piece) if piece.isascii() else len(piece.encode("utf-8", "replace")) for _, _, piece in readings
    )


def _readable(raw: bytes) -> Iterator[tuple[int, int, str]]:
    """The stretches of bytes that are text, also compressed text and UTF-16."""
    content = unpacked(raw)
    if content is not None:
        yield 0, len(raw), content
        return
    if raw.count(0) * 3 > len(raw) and (wide := raw.replace(b"\0", b"")).isascii() and len(wide) >= LEAST:
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


def unpacked(raw: bytes) -> str | None:
    """The content of bytes compressed by gzip, zlib, bzip2 or xz; a sign if it would be far longer than they;
    None if they are not compressed."""
    most = _UNPACKED_LEAST + _UNPACKED_FACTOR * len(raw)
    try:
        if raw.startswith(_COMPRESSED):
            stream = zlib.decompressobj(wbits=47)
            content, more = stream.decompress(raw, most), bool(stream.unconsumed_tail)
        elif raw.startswith(b"BZh"):
            bunzip = bz2.BZ2Decompressor()
            content, more = bunzip.decompress(raw, most), not bunzip.needs_input and not bunzip.eof
        elif raw.startswith((b"\xfd7zXZ\0", b"\x5d\0\0")):
            unxz = lzma.LZMADecompressor(memlimit=_LZMA_BYTES)
            content, more = unxz.decompress(raw, most), not unxz.needs_input and not unxz.eof
        else:
            return None
    except (zlib.error, OSError, lzma.LZMAError, EOFError):
        return None
    return TOO_LONG if more else content.decode("utf-8", "replace") or None


def _deflated(raw: bytes) -> str | None:
    """The content of a bare deflate stream, which has no marker: only if it is text to its end."""
    stream = zlib.decompressobj(wbits=-15)
    try:
        content = stream.decompress(raw, _UNPACKED_LEAST + _UNPACKED_FACTOR * len(raw))
        shown = content.decode()
    except (zlib.error, UnicodeDecodeError):
        return None
    whole = stream.eof and len(stream.unused_data) < 4 and len(content) >= LEAST
    return shown if whole and all(char.isprintable() or char.isspace() for char in shown) else None


def _base32(text: str, near: int) -> Decoded | None:
    return replaced(text, _in_runs(text, _BASE32, _base32_readings), near, apart=True)


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
    return replaced(text, _in_runs(text, _HEX, _hex_readings), near, apart=True)


def _hex_readings(run: str) -> Iterator[tuple[int, int, str]]:
    run = run.rstrip(" ,:;\n-")
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
    return replaced(text, _in_runs(text, _BASE85, _base85_readings), near, apart=True)


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
        if _shown(readings) * 10 >= 9 * len(raw) or unpacked(raw) is not None:
            yield 0, len(run), "".join(piece for _, _, piece in readings)
            return


def _numbers(text: str, near: int) -> Decoded | None:
    """Decodes lists of character codes: decimal, octal, or as eight bits."""
    found = [(m.start(), m.end(), r"\d+", 10) for m in _NUMBERS.finditer(text)]
    found += [(m.start(), m.end(), r"\d+", 8) for m in _OCTAL_LIST.finditer(text)]
    found += [(m.start(), m.end(), "[01]{8}", 2) for m in _OCTETS.finditer(text)]
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
    pieces = [piece for _, _, piece in _readable(raw)]
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
