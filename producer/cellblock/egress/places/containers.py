"""Finds containers whose type shows a key: frames, members of a JWK, fields of a printed key, lists of bytes.

The name of the frame or member is decisive; the value only has to have the form of bytes.
"""

# ruff: noqa: E501

from __future__ import annotations

import re
from collections.abc import Iterator

from cellblock.egress.places.lexicon import Promise, names
from cellblock.egress.values import seeds

KIND = "private_key"
_FRAME = re.compile(
    r"-{4,5} ?BEGIN (?P<label>[A-Za-z0-9 ]{2,50}?) ?-{4,5}(?P<body>[^\n]{0,100}\n?(?:[^-]|-(?!-{3})){16,20000}?)-{4,5} ?END "
)
_PUBLIC = re.compile(
    r"CERTIFICATE|PUBLIC|REQUEST|CRL|SIGNATURE|PARAMETERS|PKCS7|CMS|MESSAGE|SIGNED|TEXT|ARMORED FILE|NEW",
    re.IGNORECASE,
)
_CODED = re.compile(r"[A-Za-z0-9+/=_:\s,.\"'\\-]{32,}")
_MEMBER = re.compile(
    r"[\"'](?P<name>d|p|q|dp|dq|qi|k)[\"']\s{0,4}:\s{0,4}[\"'](?P<value>[A-Za-z0-9_-]{16,1400})=*[\"']"
)
_XML_MEMBER = re.compile(
    r"<(?P<name>D|P|Q|DP|DQ|InverseQ)>\s{0,8}(?P<value>[A-Za-z0-9+/=\s]{16,1400})</(?P=name)>"
)
_SEXP = re.compile(r"\((?:d|p|q|u|x) #(?P<value>[0-9A-Fa-f]{16,2000})#\)")
#: The exponents and factors of an RSA key as numbers, with its public exponent beside them.
_NUMBERS_OF = re.compile(
    r"\b(?:d|p|q|dp|dq|dmp1|dmq1|iqmp|qinv|phi)\b[\"']?\s{0,4}[=:]\s{0,4}[\"']?(?P<value>\d{40,2000}|0[xX][0-9A-Fa-f]{32,2000})"
)
#: Fields of a key as tools print it, with lines of bytes below or beside them.
_FIELD = re.compile(
    r"(?mi)^[ \t]{0,8}(?P<name>priv(?:ate[ -]?(?:exponent|value|key|part)?)?|prime[12p]?|exponent[12]|coefficient|secret|master[ -]?key|mk dump|dek|kek|seed"
    r"|[\w ]{0,24}key(?: data| material| bytes| dump)?)[ \t]{0,8}[:=][ \t]{0,8}(?:\n)?"
    r"(?P<value>(?:[ \t]{0,24}(?:[0-9A-Fa-f]{2}[: ]){7,31}[0-9A-Fa-f]{0,2}:?[ \t]*\n?){1,400})"
)
#: Bytes in the middle of such a line, which are searched first.
_FIELD_BYTES = re.compile(r"[: ][0-9A-Fa-f]{2}[: ][0-9A-Fa-f]{2}[: ](?:[0-9A-Fa-f]{2}[: ]){3}")
_LIST = re.compile(
    r"(?P<value>(?:\b(?:\d{1,3}|0[xX][0-9A-Fa-f]{2})(?:u8)?\b[\s,;]{1,16}){15,4096}(?:\d{1,3}|0[xX][0-9A-Fa-f]{2})(?:u8)?\b)"
)
#: Runs of the signs of _LIST that are long enough for a match. It is shown some characters behind them, because
#: its end depends on what follows: too few for another match.
_LIST_SIGNS, _BEHIND = re.compile(r"\d[\da-fA-FxXu\s,;]{30,}"), 24
_NUMBERS = re.compile(r"\b(?:0[xX][0-9A-Fa-f]{2}|\d{1,3})")
_BEFORE = 90
_BYTES_LEAST, _DISTINCT_LEAST = 16, 10
#: The first bytes of private keys (ASN.1) and of a PKCS#12 container.
_DER = re.compile(
    rb"0\x82..\x02\x01[\0\x01\x03](?:\x02\x82|0\r|0\x82)|0[\x20-\x80]\x02\x01[\0\x01](?:\x04|0)|0\x81.\x02\x01[\0\x01]",
    re.DOTALL,
)
_KEYPAIR_BYTES = 64


def find(text: str) -> Iterator[tuple[str, int, int]]:  # noqa: C901
    """Kind and place of the contents of such containers."""
    if "BEGIN " in text:
        yield from _frames(text)
    if '"kty"' in text or "'kty'" in text:
        for match in _MEMBER.finditer(text):
            yield KIND, *match.span("value")
    if "<Modulus>" in text or "KeyValue>" in text:
        for match in _XML_MEMBER.finditer(text):
            yield KIND, *match.span("value")
    if " #" in text and "private-key" in text:
        for match in _SEXP.finditer(text):
            yield KIND, *match.span("value")
    if "65537" in text or "0x10001" in text:
        for match in _NUMBERS_OF.finditer(text):
            yield KIND, *match.span("value")
    for match in _FIELD.finditer(text) if _FIELD_BYTES.search(text) else ():
        if "pub" not in match["name"].lower():
            yield KIND, *match.span("value")
    for signs in _LIST_SIGNS.finditer(text):
        for match in _LIST.finditer(text, signs.start(), signs.end() + _BEHIND):
            if _is_key(text, match):
                yield KIND, *match.span("value")
    for start, end in seeds.find(text):
        yield "seed_phrase", start, end


def _frames(text: str) -> Iterator[tuple[str, int, int]]:
    for match in _FRAME.finditer(text):
        body = match["body"]
        coded = sum(len(run) for run in _CODED.findall(body))
        if not _PUBLIC.search(match["label"]) and 10 * coded >= 8 * len(body) and any(map(str.isdigit, body)):
            yield KIND, match.start(), match.end("body")


def _is_key(text: str, match: re.Match[str]) -> bool:
    """Whether bytes under a telling name have the structure of a key, or the length of a pair of keys."""
    try:
        data = bytes(int(number, 0) for number in _NUMBERS.findall(match["value"]))
    except ValueError:
        return False
    if len(data) < _BYTES_LEAST or len(set(data)) < min(_DISTINCT_LEAST, len(data) // 2) or _is_text(data):
        return False
    if _DER.match(data):
        return True
    start = max(0, match.start() - _BEFORE)
    before = text[start : match.start()]
    if any(name.promise >= Promise.FAINT and not _ends_clause(before[name.end :]) for name in names(before)):
        return max(data) > 100
    alone = (
        before.rstrip(" \t").endswith("[")
        and before.rstrip(" \t[").endswith(("\n", ""))
        and text[match.end() : match.end() + 1] == "]"
    )
    return alone and len(data) == _KEYPAIR_BYTES and len(set(data)) > 40 and len(before.strip(" \t[\n")) == 0


def _ends_clause(between: str) -> bool:
    return ";" in between.rstrip(";")[:-1] and "]" not in between


def _is_text(data: bytes) -> bool:
    return sum(32 <= byte < 127 or byte in {9, 10, 13} for byte in data) * 20 >= 19 * len(data)
