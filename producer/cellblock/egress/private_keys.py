"""Finds private keys: with any armour or without, whole or cut in half.

A key is found by its first line, by its last line, or by its first bytes. The find includes all of the key
that is there, up to where no more of it can follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

KIND = "private_key"

# Blanks are optional, because some readings of a text have none.
_WORDS = r"(?:[A-Z0-9]{2,12} ?){0,3}PRIVATE ?KEY(?: ?BLOCK)?"
_FIRST = re.compile(rf"-{{0,5}} ?BEGIN ?{_WORDS} ?-{{0,5}}")
_LAST = re.compile(rf"-{{0,5}} ?END ?{_WORDS} ?-{{0,5}}")
#: PuTTY's files have no armour.
_PUTTY = re.compile(r"Private-Lines: ?\d{1,4}")
#: The first bytes of keys, by ASN.1 (RFC 8017 A.1.2, RFC 5208, RFC 5915, RFC 8410) or by OpenSSH's own
#: magic, in base64 and in hex.
_BARE = re.compile(
    r"MII[A-Za-z0-9+/_-]{3}IBA[A-Za-z0-9+/_-]{40}"
    r"|MII[A-Za-z0-9+/_-]{4,8}BgkqhkiG9w0B(?:BQ0|DAE)"
    r"|MHcCAQEEI|MHQCAQEEI|MIGkAgEBBD|MIHcAgEBBEI|MIGHAgEAM|MIGEAgEAM|MIG2AgEAM|MIG/AgEAM|MIHuAgEAM|MFECAQ"
    r"|MC4CAQAwBQYDK2V|MEYCAQAwBQYDK2V|MEcCAQAwBQYDK2V|MIGTAgEAM|MFQCAQE"
    r"|b3BlbnNzaC1rZXktdjE"
    r"|3082[0-9A-Fa-f]{4}020100(?:028[12]|300[dD])[0-9A-Fa-f]{40}"
)
_BARE_LITERALS = ("MII", "CAQ", "AgEAM", "AgEB", "b3BlbnNzaC1rZXktdjE", "3082")

#: Lines of base64, in any list or quotation, and the headers that old armours have between them.
_LINE = r"[A-Za-z0-9+/=_-]"
_BETWEEN = r"[\s\"',\[\]()|>\\*#;:]"
_BODY = re.compile(
    rf"(?:{_BETWEEN}{{0,16}}(?:(?:Proc-Type|DEK-Info|Version|Comment|Subject|Hash|X-[A-Za-z]{{1,20}}):[^\n\\]{{0,200}}"
    rf"|(?:\\?[nr]|b['\"])?{_LINE}{{16,}}+))*+(?:{_BETWEEN}{{0,16}}[A-Za-z0-9+/]{{1,63}}={{1,2}})?+(?:{_BETWEEN}{{0,4}}=[A-Za-z0-9+/]{{4}}(?![A-Za-z]))?+"
)
_SHORT_REST = re.compile(rf"{_BETWEEN}{{0,16}}[A-Za-z0-9+/=]{{1,80}}{_BETWEEN}{{0,8}}")
_HEADERS = re.compile(r"(?:Proc-Type|DEK-Info|Version|Comment|Subject|Hash|X-[A-Za-z]{1,20}):[^\n\\]{0,200}")
_RUNS = re.compile(rf"{_LINE}{{12,}}")
#: Random text has small letters, capitals and digits within this many characters; words do not.
_MIXED = re.compile(r"[a-z][A-Za-z+/]{0,40}[0-9+/]|[0-9+/][A-Za-z]{0,40}[a-z]|[A-Z0-9+/=]{12}")
_BODY_CHARS = 12
_REACH_CHARS = 40_000


def find(text: str) -> Iterator[tuple[int, int]]:
    """The places of private keys; they can overlap."""
    if "PRIVATE" in text:
        yield from _by_first_line(text)
        yield from _by_last_line(text)
    if "Private-Lines" in text:
        for match in _PUTTY.finditer(text):
            yield match.start(), _body_end(text, match.end(), match.end() + _REACH_CHARS)
    if any(literal in text for literal in _BARE_LITERALS):
        end = 0
        for match in _BARE.finditer(text):
            if match.start() >= end:
                end = _body_end(text, match.start(), match.start() + _REACH_CHARS)
                if end - match.start() >= 40:
                    yield match.start(), end


def _by_first_line(text: str) -> Iterator[tuple[int, int]]:
    firsts = list(_FIRST.finditer(text))
    for match, following in zip(firsts, [*firsts[1:], None], strict=False):
        border = min(following.start() if following else len(text), match.end() + _REACH_CHARS)
        last = _LAST.search(text, match.end(), border)
        if last is not None and _is_body(text[match.end() : last.start()]):
            yield match.start(), last.end()
            continue
        end = _body_end(text, match.end(), border)
        if _is_body(text[match.end() : end]):
            yield match.start(), end


def _by_last_line(text: str) -> Iterator[tuple[int, int]]:
    border = 0
    for match in _LAST.finditer(text):
        start, border = max(border, match.start() - _REACH_CHARS), match.end()
        before = text[start : match.start()][::-1]
        rest = _SHORT_REST.match(before)
        skipped = rest.end() if rest else 0
        found = _BODY.match(before, skipped)
        end = found.end() if found else skipped
        # A short last line alone is a word before a mention of the marker, and not a key.
        if end > skipped and _is_body(before[:end]):
            yield match.start() - end, match.end()


def _body_end(text: str, start: int, border: int) -> int:
    found = _BODY.match(text, start, border)
    return found.end() if found else start


def _is_body(between: str) -> bool:
    """Whether this is long enough, and nearly all of it is base64 in runs longer than words."""
    runs = _RUNS.findall(between)
    coded = sum(len(run) for run in runs if _MIXED.search(run))
    headers = sum(len(line) for line in _HEADERS.findall(between))
    return coded >= _BODY_CHARS and 10 * coded >= 8 * (len("".join(between.split())) - headers)
