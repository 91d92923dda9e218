"""Runs of encoded-looking text that are too random to be anything a program says (requirement R6).

Shannon's entropy of a whole output says nothing: a traceback has more of it than a key in hex. So candidates
are runs in one alphabet, each is held to what that alphabet can reach, and what is public or was readable is
left alone.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

#: R6's own words.
NOTICE = "[SECURITY REDACTION: High Entropy Data Detected - Potential Secret Leak]"

_LINE_CHARS = 40
_RUN = re.compile(
    rf"[A-Za-z0-9+/_=-]{{{_LINE_CHARS},}}(?:\r?\n[ \t>]{{0,12}}[A-Za-z0-9+/_=-]{{{_LINE_CHARS},}})*+(?:\r?\n[A-Za-z0-9+/_-]{{1,}}={{1,2}})?"
)
_HEX_RUN = re.compile(r"[0-9a-fA-F]{40,}(?:[:\s]{0,2}[0-9a-fA-F]{2,})*")
_HEX_ONLY = re.compile(r"[0-9a-fA-F\s]+")
_PUBLIC_BEFORE = re.compile(
    r"(?:-----BEGIN (?:CERTIFICATE|PUBLIC KEY|RSA PUBLIC KEY|CERTIFICATE REQUEST|X509 CRL"
    r"|PGP PUBLIC KEY BLOCK|PGP SIGNATURE|PGP MESSAGE|SSH SIGNATURE|TRUSTED CERTIFICATE|NEW CERTIFICATE REQUEST|EC PARAMETERS|DH PARAMETERS)-----\s{0,4}(?:\w{1,20}: [^\n]{0,200}\n){0,5}\s{0,4}"
    r"|(?:ssh-(?:rsa|ed25519|dss)|ecdsa-sha2-nistp\d{3}|sk-\S{1,60}) )$"
)
_PUBLIC_REACH = 400
#: Of a hexadecimal digit there are four bits to know; of random ones this share shows in a few hundred.
_HEX_SHARE = 0.93


def bits_per_char(text: str) -> float:
    """Shannon's entropy of the characters' frequencies: ``-Σ p log2 p``."""
    length = len(text)
    return -sum(n / length * math.log2(n / length) for n in Counter(text).values()) if length else 0.0


def find(text: str, *, least_bits: float, least_chars: int) -> Iterator[tuple[int, int]]:
    """Where runs of at least so many characters have more than so many bits in each.

    Hexadecimal ones are held to the same share of what sixteen digits can reach, within one unbroken run:
    lists of hashes are lines, and no line of them is as long.
    """
    for match in _RUN.finditer(text):
        run = match[0]
        if len(run) < least_chars or _PUBLIC_BEFORE.search(
            text, max(0, match.start() - _PUBLIC_REACH), match.start()
        ):
            continue
        if _HEX_ONLY.fullmatch(run):
            yield from _hex_lines(match.start(), run, least_bits, least_chars)
            continue
        body = "".join(run.split())
        if bits_per_char(body) > least_bits and not _is_list(run):
            yield match.span()


def _hex_lines(start: int, run: str, least_bits: float, least_chars: int) -> Iterator[tuple[int, int]]:
    for line in re.finditer(r"[0-9a-fA-F]+", run):
        random_bits = bits_per_char(line[0].lower()) > 4 * _HEX_SHARE * min(1.0, least_bits / 4.5)
        if len(line[0]) >= least_chars and random_bits:
            yield start + line.start(), start + line.end()


def _is_list(run: str) -> bool:
    """Lines that are each a whole of their own: checksums in base64, names, paths of no folder."""
    lines = run.split()
    padded = sum(line.endswith("=") for line in lines[:-1])
    return len(lines) > 1 and (padded * 2 > len(lines) or all(map(str.isalpha, lines)))
