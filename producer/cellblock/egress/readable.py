"""Tells which bytes are text: as they stand, compressed, or in UTF-16.

Decoders make many bytes that are not text. Tests that are cheaper than to decode such bytes come first.
"""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Iterator

from cellblock.egress.decoded import BORDER, LEAST

#: So long a run is not an accident, whatever stands around it.
_SURE = 16
#: The first bytes of gzip's and zlib's streams.
_COMPRESSED = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_BZIP2, _XZ = b"BZh", (b"\xfd7zXZ\0", b"\x5d\0\0")
#: The first bytes of every stream that can be unpacked.
PACKED = (*_COMPRESSED, _BZIP2, *_XZ)
_PACKED_FIRST = bytes({sign[0] for sign in PACKED})
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
#: A whole stretch of such bytes that is UTF-8; without one, only printable bytes can be text.
_IN_UTF8 = re.compile(
    rb"(?<!%b)(?:%b|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}){2,}(?!%b)"
    % (_TEXTLIKE, _PRINTABLE, _TEXTLIKE)
)


def readable(raw: bytes) -> list[tuple[int, int, str]]:
    """The stretches of bytes that are text, also compressed text and UTF-16."""
    if raw[:1] in _PACKED_FIRST and (content := unpacked(raw)) is not None:
        return [(0, len(raw), content)]
    if raw.count(0) * 3 > len(raw) and (wide := raw.replace(b"\0", b"")).isascii() and len(wide) >= LEAST:
        return [(0, len(raw), wide.decode())]
    textlike, printable = _IN_FEW_BYTES if 3 * len(raw) < 5 * _SURE else _IN_MANY_BYTES
    if textlike.search(raw) is None or (printable.search(raw) is None and _IN_UTF8.search(raw) is None):
        return []
    return [
        (start, end, piece)
        for start, end, piece in _stretches(raw, textlike, printable)
        if end - start >= _SURE or 5 * (end - start) >= 3 * len(raw)
    ]


def _stretches(
    raw: bytes, textlike: re.Pattern[bytes], printable: re.Pattern[bytes]
) -> Iterator[tuple[int, int, str]]:
    for match in textlike.finditer(raw):
        try:
            yield match.start(), match.end(), match[0].decode()
        except UnicodeDecodeError:
            for plain in printable.finditer(raw, *match.span()):
                yield plain.start(), plain.end(), plain[0].decode()


def unpacked(raw: bytes) -> str | None:
    """The content of bytes compressed by gzip, zlib, bzip2 or xz; a sign if it would be far longer than they;
    None if they are not compressed."""
    if not raw.startswith(PACKED):
        return None
    most = _UNPACKED_LEAST + _UNPACKED_FACTOR * len(raw)
    try:
        if raw.startswith(_COMPRESSED):
            stream = zlib.decompressobj(wbits=47)
            content, more = stream.decompress(raw, most), bool(stream.unconsumed_tail)
        elif raw.startswith(_BZIP2):
            bunzip = bz2.BZ2Decompressor()
            content, more = bunzip.decompress(raw, most), not bunzip.needs_input and not bunzip.eof
        else:
            unxz = lzma.LZMADecompressor(memlimit=_LZMA_BYTES)
            content, more = unxz.decompress(raw, most), not unxz.needs_input and not unxz.eof
    except (zlib.error, OSError, lzma.LZMAError, EOFError):
        return None
    return TOO_LONG if more else content.decode("utf-8", "replace") or None


def deflated(raw: bytes) -> str | None:
    """The content of a bare deflate stream, which has no marker: only if it is text to its end."""
    kind = raw[0] >> 1 & 3
    if kind == 3 or (kind == 0 and raw[1] ^ raw[3] != 0xFF):  # no such block, or one with a wrong length
        return None
    stream = zlib.decompressobj(wbits=-15)
    try:
        content = stream.decompress(raw, _UNPACKED_LEAST + _UNPACKED_FACTOR * len(raw))
        shown = content.decode()
    except (zlib.error, UnicodeDecodeError):
        return None
    whole = stream.eof and len(stream.unused_data) < 4 and len(content) >= LEAST
    return shown if whole and all(char.isprintable() or char.isspace() for char in shown) else None
