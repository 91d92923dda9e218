"""Finds hashes of passwords that identify themselves: a scheme, a salt and a long rest.

A bare digest does not identify itself, and is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cellblock.egress.values.scorer import score

KIND = "password_hash"
_TAIL = r"[./A-Za-z0-9+=_-]"
#: Expressions, with the words of which a text must have one before it is searched.
_FORMS: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = (
    (  # $scheme$...$rest, as in crypt(3) and related formats
        ("$",),
        re.compile(
            rf"(?<![A-Za-z0-9_$.)])\$[A-Za-z0-9][A-Za-z0-9_.-]{{0,24}}\$(?:[^\s:\"'$,;<>|]{{0,120}}\$){{0,6}}{_TAIL}{{16,}}"
            r"(?:\$[A-Fa-f0-9]{16,})?"
        ),
    ),
    (  # the formats of password crackers, with other separators
        ("$", "WPA*"),
        re.compile(
            r"(?<![A-Za-z0-9_$])(?:\$[A-Za-z][A-Za-z0-9_.-]{1,24}\$[*#]?[\w*#@./+=:$-]{0,400}?|WPA\*\d\d\*)(?:[0-9a-f]{12,}\*){0,12}[0-9a-f]{32,}[0-9a-f*]*"
        ),
    ),
    (  # {SCHEME}rest, of directories
        ("{",),
        re.compile(r"\{(?:[A-Z][A-Z0-9._-]{2,20}|x-[a-z0-9-]{3,20})\}[A-Za-z0-9+/=.$]{20,}"),
    ),
    (  # scheme:...$salt$rest of web frameworks
        ("pbkdf2", "scrypt", "bcrypt", "argon2", "sha1", "sha256", "sha512", "md5", "yescrypt"),
        re.compile(
            r"\b(?:pbkdf2|scrypt|bcrypt|argon2|sha1|sha256|sha512|md5|yescrypt)(?:[\w:.,=-]{0,60}\$[^\s$\"']{1,80}\$[A-Za-z0-9./+=$-]{16,}"
            r"|[\w-]{0,20}(?::[\w.,=+/-]{1,100}){1,6}\$[A-Za-z0-9+/=.-]{1,100}\$[A-Za-z0-9+/=]{20,}"
            r"|[\w-]{0,16}:\d{3,8}:[A-Za-z0-9+/=]{6,}:[A-Za-z0-9+/=]{16,}|(?<=md5)[0-9a-f]{32}(?![0-9a-f]))"
            r"|\bgrub\.pbkdf2\.[a-z0-9]{3,8}\.\d{2,7}\.[0-9A-F]{32,}\.[0-9A-F]{32,}"
        ),
    ),
    (
        ("SCRAM-SHA-",),
        re.compile(r"SCRAM-SHA-\d{1,3}\$\d{3,6}:[A-Za-z0-9+/=]{8,}\$[A-Za-z0-9+/=]{20,}:[A-Za-z0-9+/=]{20,}"),
    ),
    (("*",), re.compile(r"\*(?<![\w*]\*)[0-9A-F]{40}(?![0-9A-F])")),
    (("0x01", "0x02"), re.compile(r"0x0[12]00[0-9A-Fa-f]{48,}")),
    (("S:", "T:"), re.compile(r"\b[ST]:[0-9A-F]{60,160}(?=[;\s\"',]|$)")),
    (  # pwdump and challenges
        ("::",),
        re.compile(
            r":[0-9A-Fa-f]{32}:[0-9A-Fa-f]{32}(?=:)|:[0-9A-Fa-f]{16}:[0-9A-Fa-f]{32}:[0-9A-Fa-f]{32,}"
        ),
    ),
)
#: ``user:hash:…`` of thirteen signs, and ``user:realm:digest``.
_LINES = re.compile(
    r"(?m)^[\w.@-]{1,60}:(?P<des>[./0-9A-Za-z]{13})(?=:|\r?$)|^[\w.@-]{1,60}:[^:\n]{1,60}:(?P<digest>[0-9a-f]{32})\r?$"
)
_DES_SURE = 2.0


def find(text: str) -> Iterator[tuple[str, int, int]]:
    """Kind and place of each hash."""
    for needed, form in _FORMS:
        for match in form.finditer(text) if any(word in text for word in needed) else ():
            if sum(map(str.isalnum, match[0])) >= 20 and any(map(str.isdigit, match[0])):
                yield KIND, *match.span()
    for match in _LINES.finditer(text) if ":" in text else ():
        name = "des" if match["des"] else "digest"
        if name == "digest" or (any(map(str.isupper, match[name])) and score(match[name]) > _DES_SURE):
            yield KIND, *match.span(name)
