"""Finds runs of encoded-looking text that are too random for normal output.

Shannon's entropy of a whole output is of no use: a traceback has more of it than a key in hex. So candidates
are runs in one alphabet, compared with the most that this alphabet can reach. Public and decodable runs stay.
"""

from __future__ import annotations

import base64
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterator

from cellblock.egress.encodings import reads_as_hex, reads_as_text

#: The notice in place of such a run.
NOTICE = "[SECURITY REDACTION: High Entropy Data Detected - Potential Secret Leak]"

_LINE_CHARS = 32
#: Lists have short lines; text that is wrapped for people or machines has longer ones.
_ITEM_CHARS = 60
_RUN = re.compile(
    rf"[A-Za-z0-9+/_=-]{{{_LINE_CHARS},}}(?:\r?\n[ \t>]{{0,12}}[A-Za-z0-9+/_=-]{{{_LINE_CHARS},}})*+"
    r"(?:\r?\n[A-Za-z0-9+/_-]{1,}={1,2})?"
)
_HEX_ONLY = re.compile(r"[0-9a-fA-F\s]+")
_HEX_LINE = re.compile(r"[0-9a-fA-F]+")
#: The text before keys and signatures that are meant to be public.
_PUBLIC_BEFORE = re.compile(
    r"(?:-----BEGIN (?:[A-Z0-9]+ ){0,3}(?:CERTIFICATE|PUBLIC KEY|CERTIFICATE REQUEST|CRL|PUBLIC KEY BLOCK"
    r"|SIGNATURE|MESSAGE|PARAMETERS)-----\s{0,4}(?:\w{1,20}: [^\n]{0,200}\n){0,5}\s{0,4}"
    r"|(?:ssh-(?:rsa|ed25519|dss)|ecdsa-sha2-nistp\d{3}|sk-\S{1,60}) )\Z"
)
#: The end of a certificate whose beginning is not in the text.
_PUBLIC_AFTER = re.compile(r"\s{0,4}-----END (?:TRUSTED |X509 )?CERTIFICATE-----")
_PUBLIC_REACH = 400
_SSH_BEGINNINGS = ("AAAAB3NzaC1", "AAAAC3NzaC1", "AAAAE2VjZHNh", "AAAAG", "AAAAI")
_PICTURE = "iVBORw0KGgo"
_PNG = b"\x89PNG\r\n\x1a\n"
#: A hexadecimal digit has four bits; a few hundred random digits show this share of them.
_HEX_SHARE = 0.93


def bits_per_char(text: str) -> float:
    """Shannon's entropy of the characters' frequencies: ``-Σ p log2 p``."""
    length = len(text)
    return -sum(n / length * math.log2(n / length) for n in Counter(text).values()) if length else 0.0


def find(text: str, *, least_bits: float, least_chars: int) -> Iterator[tuple[int, int]]:
    """The places of runs of at least ``least_chars`` characters with more than ``least_bits`` bits in each.

    Hexadecimal runs have to reach the same share of four bits, within one unbroken line: lists of hashes
    consist of lines that are shorter.
    """
    for match in _RUN.finditer(text):
        run, start = match[0], match.start()
        if len(run) < least_chars or _is_public(text, start, run) or _PUBLIC_AFTER.match(text, match.end()):
            continue
        if _HEX_ONLY.fullmatch(run):
            yield from _hex_lines(start, run, least_bits, least_chars)
        elif (
            bits_per_char("".join(run.split())) > least_bits and not _is_list(run) and not reads_as_text(run)
        ):
            yield match.span()


def _is_public(text: str, start: int, run: str) -> bool:
    before = text[max(0, start - _PUBLIC_REACH) : start]
    if _PUBLIC_BEFORE.search(before):
        if "PGP" in before:  # a PGP block does not state its length
            return True
        return (
            run.startswith(_SSH_BEGINNINGS) if before.endswith(" ") else run.startswith("MI")
        )  # a sequence of ASN.1
    return run.startswith(_PICTURE) and _is_picture(run)


def _is_picture(run: str) -> bool:
    """Whether this is exactly one PNG: every chunk with its checksum, and nothing behind the last chunk."""
    try:
        data = base64.b64decode("".join(run.split()), validate=True)
    except ValueError:
        return False
    at, kind = len(_PNG), b""
    while data.startswith(_PNG) and at + 12 <= len(data):
        length, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        body = data[at + 4 : at + 8 + length]
        if zlib.crc32(body) != int.from_bytes(data[at + 8 + length : at + 12 + length], "big"):
            return False
        at += 12 + length
    return kind == b"IEND" and at == len(data)


def _hex_lines(start: int, run: str, least_bits: float, least_chars: int) -> Iterator[tuple[int, int]]:
    for line in _HEX_LINE.finditer(run):
        random_bits = bits_per_char(line[0].lower()) > 4 * _HEX_SHARE * min(1.0, least_bits / 4.5)
        if len(line[0]) >= least_chars and random_bits and not reads_as_hex(line[0]):
            yield start + line.start(), start + line.end()


def _is_list(run: str) -> bool:
    """Whether each line is a whole of its own: checksums in base64, names, identifiers.

    Encoders wrap at a multiple of four, so lines of other lengths are items of a list.
    """
    lines = run.split()
    if len(lines) < 2:
        return False
    padded = sum(line.endswith("=") for line in lines[:-1])
    return padded * 2 > len(lines) or all(map(str.isalpha, lines)) or _is_of_items(lines)


def _is_of_items(lines: list[str]) -> bool:
    length, *others = map(len, lines[1:-1] or lines[:1])  # the first line can begin with other words
    return any(other != length for other in others) or (length < _ITEM_CHARS and length % 4 != 0)
