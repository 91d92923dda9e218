"""Hashes of passwords, by how they say of themselves what they are: a scheme, a salt, a long rest.

A bare digest says nothing and stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cellblock.egress.values.scorer import score

KIND = "password_hash"
_TAIL = r"[./A-Za-z0-9+=_-]"
_FORMS = re.compile(
    # $scheme$…$rest, as crypt(3) and its relatives write it
    rf"(?<![A-Za-z0-9_$.)])\$[A-Za-z0-9][A-Za-z0-9_.-]{{0,24}}\$(?:[^\s:\"'$,;<>|]{{0,120}}\$){{0,6}}{_TAIL}{{16,}}(?:\$[A-Fa-f0-9]{{16,}})?"
    # {SCHEME}rest, of LDAP and its relatives
    r"|\{(?:[A-Z][A-Z0-9._-]{2,20}|x-[a-z0-9-]{3,20})\}[A-Za-z0-9+/=.$]{20,}"
    # scheme:…$salt$rest of web frameworks
    r"|\b(?:pbkdf2|scrypt|bcrypt|argon2|sha1|sha256|sha512|md5|hmac|django|crypt|yescrypt|sha)[\w:.,=-]{0,60}\$[^\s$\"']{1,80}\$[A-Za-z0-9./+=$-]{16,}"
    r"|\b(?:pbkdf2|scrypt)[\w-]{0,20}(?::[\w.,=+/-]{1,100}){1,6}\$[A-Za-z0-9+/=.-]{1,100}\$[A-Za-z0-9+/=]{20,}"
    r"|\bgrub\.pbkdf2\.[a-z0-9]{3,8}\.\d{2,7}\.[0-9A-F]{32,}\.[0-9A-F]{32,}"
    r"|\bSCRAM-SHA-\d{1,3}\$\d{3,6}:[A-Za-z0-9+/=]{8,}\$[A-Za-z0-9+/=]{20,}:[A-Za-z0-9+/=]{20,}"
    r"|\b(?:sha\d{1,3}|md5|pbkdf2)[\w-]{0,16}:\d{3,8}:[A-Za-z0-9+/=]{6,}:[A-Za-z0-9+/=]{16,}"
    # databases
    r"|(?<![A-Za-z0-9])md5[0-9a-f]{32}(?![0-9a-f])|(?<![\w*])\*[0-9A-F]{40}(?![0-9A-F])|\b0x0[12]00[0-9A-Fa-f]{48,}|\b[ST]:[0-9A-F]{60,160}(?=[;\s\"',]|$)"
    # pwdump and challenges
    r"|(?<=:)[0-9A-Fa-f]{32}:[0-9A-Fa-f]{32}(?=:)|(?<=:)[0-9A-Fa-f]{16}:[0-9A-Fa-f]{32}:[0-9A-Fa-f]{32,}"
)
#: ``user:hash:…`` of thirteen signs, and ``user:realm:digest``.
_LINES = re.compile(
    r"(?m)^[\w.@-]{1,60}:(?P<des>[./0-9A-Za-z]{13})(?=:|\r?$)|^[\w.@-]{1,60}:[^:\n]{1,60}:(?P<digest>[0-9a-f]{32})\r?$"
)
_BEGINNINGS = ("$", "{", "md5", "*", "0x0", "S:", "T:", "SCRAM", "pbkdf2", "grub", "sha", ":")
_DES_SURE = 2.0


def find(text: str) -> Iterator[tuple[str, int, int]]:
    """Kind and place of each."""
    if not any(beginning in text for beginning in _BEGINNINGS):
        return
    for match in _FORMS.finditer(text):
        if sum(map(str.isalnum, match[0])) >= 20 and any(map(str.isdigit, match[0])):
            yield KIND, *match.span()
    for match in _LINES.finditer(text):
        name = "des" if match["des"] else "digest"
        if name == "digest" or (any(map(str.isupper, match[name])) and score(match[name]) > _DES_SURE):
            yield KIND, *match.span(name)
