"""Finds secrets in lines of a fixed form: addresses, headers, cookies, commands, .netrc and .pgpass."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cellblock.egress.places import codes
from cellblock.egress.places.assessment import Setting, is_drawn, is_secret, is_sure
from cellblock.egress.places.lexicon import Promise
from cellblock.egress.places.place import KIND
from cellblock.egress.values import forms

#: scheme://user:password@host
_ADDRESS = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s:@/\"'<>]{0,128}:(?P<password>[^\s\"'<>]{2,256}?)"
    r"@(?=\[?[A-Za-z0-9_.:-]{1,255}\]?(?:[/?,\s\"'`)<;\\]|\Z))"
)
#: user:password@host and user/password@host without a scheme, and mail:password.
_BEFORE_AT = re.compile(
    r"(?:^|(?<=[\s\"'=,(<]))(?:[\w.-]{1,20}:){0,3}[\w.-]{2,40}[:/](?P<password>[!#-&(-.0-9;=?A-~]{6,80})@\Z"
)
_HOST = re.compile(r"(?:tcp\(|//)?[\w.-]{2,80}(?:[:/)\s.,\"']|$)")
_MAILED = re.compile(r"[\w-]{1,60}\.[a-z]{2,12}:(?P<password>[!#-&(-.0-9=?A-{}~]{6,80})")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,30}\Z")
_SCHEME_CHARS = 31
_ADDRESS_REACH = 150
#: Parameters that sign an address, recognised by the ends of their names.
_QUERY = re.compile(
    r"(?i)[?&;](?:amp;)?[\w.-]{0,30}?(?:sig|signature|sign|hmac|mac|token|ticket|auth|policy|credential|secret|jwt|sas|hdnea|hdnts|wstoken|signed|invite|seal|assertion|samlresponse|passwd|pwd"
    r"|key|code|st|hash)=(?P<value>[A-Za-z0-9%+/_.~=*:-]{16,4096})"
)
_LINK = re.compile(
    r"(?i)://[^\s\"'<>?#]{3,120}?/(?:[a-z]{0,12}(?:verify|reset|magic|invit|confirm|activat|hook|token|secret|login|join|share)[a-z-]{0,12}/|private-)"
    r"(?P<value>[A-Za-z0-9_-]{20,200})(?![A-Za-z0-9_/-]*\.(?:js|css|png|jpg|html|py)\b)"
)
_LINK_HEX = 32
_RESPONSE = re.compile(r"[Dd]igest [^\n]{0,600}?\bresponse=\"(?P<value>[0-9a-f]{32,128})\"")
_HASHLIKE = re.compile(r"(?i)(?:[?&;]|amp;)(?:key|hash|code|st)=")
_HEADER = re.compile(
    r"\b(?:[Bb]asic\s{1,4}(?P<basic>[A-Za-z0-9+/_-]{8,}={0,2})|(?:Bearer|Token|token|bearer|ApiKey|apikey|SSWS)\s{1,4}(?P<bearer>[A-Za-z0-9._~+/:=-]{16,}))"
)
_NETRC = re.compile(
    r"\b(?:machine\s{1,8}\S{1,200}|default)\s{1,8}login\s{1,8}\S{1,200}\s{1,8}(?:account\s{1,8}\S{1,200}\s{1,8})?"
    r"password\s{1,8}(?P<password>\S{1,200})"
)
_PGPASS = re.compile(
    r"(?m)^[A-Za-z0-9_.*-]{1,200}:(?:\d{2,5}|\*):[^:\s]{1,64}:[^:\s]{1,64}:(?P<password>[^\s:]{6,200})$"
)
_COOKIES = re.compile(r"(?i)\b(?:set-)?cookie2?[\"']?:[ \t\"']{0,4}(?P<cookies>[^\n\"']{8,4096})")
_COOKIE = re.compile(r"(?<==)[^;\s]{16,}")
_COMMAND = re.compile(
    r"\b(?:mysql\w{0,12}|mariadb|mongo\w{0,8}|sshpass|redis-cli)\b[^\n|]{0,160}?[ \t](?:-p|-a)[ \t]{0,2}"
    r"[\"']?(?P<word>[^\s\"'-][^\s\"']{5,200})"
    r"|\b(?:curl|wget|http)\b[^\n|]{0,400}?[ \t](?:-u|--user)[ =]{0,2}[\"']?[^\s:\"']{1,100}:"
    r"(?P<user_word>[^\s\"']{4,200})"
)
#: Every match has one of these flags, and most texts have none.
_FLAG = re.compile(r"[ \t]-(?:[pau]|-user)")
_COMMANDS = ("mysql", "mariadb", "mongo", "sshpass", "redis-cli", "curl", "wget", "http")


def find(text: str) -> Iterator[tuple[str, int, int]]:
    """Kind and place of each secret; names and users stay readable."""
    lowered = text.lower()
    for words, look in SOURCES:
        if any(word in lowered for word in words):
            yield from look(text)


def addresses(text: str) -> Iterator[tuple[str, int, int]]:
    """The passwords in addresses with a scheme."""
    for match in _addresses(text):
        password = match["password"]
        if not (forms.is_placeholder(password) or forms.is_masked(password)):
            yield "connection_string", *match.span("password")


def _addresses(text: str) -> Iterator[re.Match[str]]:
    """The matches of _ADDRESS. The sign is searched first, because `re` tries _ADDRESS at every letter."""
    done, sign = 0, text.find("://")
    while sign >= 0:
        scheme = _SCHEME.search(text, max(done, sign - _SCHEME_CHARS), sign)
        match = _ADDRESS.match(text, scheme.start()) if scheme else None
        if match:
            yield match
            done = match.end()
        sign = text.find("://", match.end() if match else sign + 1)


def _bare_addresses(text: str) -> Iterator[tuple[str, int, int]]:
    for sign in re.finditer("@", text):
        at = sign.start()
        before = (
            _BEFORE_AT.search(text, max(0, at - _ADDRESS_REACH), at + 1)
            if _HOST.match(text, at + 1)
            else None
        )
        for match, setting in ((before, Setting.PROSE), (_MAILED.match(text, at + 1), Setting.SPACED)):
            if match and is_secret(match["password"], Promise.CHOSEN, setting):
                yield "connection_string", *match.span("password")


def _queries(text: str) -> Iterator[tuple[str, int, int]]:
    for match in _QUERY.finditer(text):
        value = match["value"]
        common = _HASHLIKE.match(match[0]) is not None
        if (
            (is_sure(value) and len(value) >= 30)
            if common
            else (is_drawn(value, Setting.BARE) or forms.is_hex(value))
        ):
            yield "signed_url", *match.span("value")


def _links(text: str) -> Iterator[tuple[str, int, int]]:
    """The secret part of a personal link, after a telling word in its path."""
    for match in _LINK.finditer(text):
        value = match["value"]
        if is_sure(value) or (forms.is_hex(value) and len(value) >= _LINK_HEX):
            yield "signed_url", *match.span("value")


def _digests(text: str) -> Iterator[tuple[str, int, int]]:
    for match in _RESPONSE.finditer(text):
        yield "authorization", *match.span("value")


def _cookies(text: str) -> Iterator[tuple[str, int, int]]:
    for match in _COOKIES.finditer(text):
        for cookie in _COOKIE.finditer(text, *match.span("cookies")):
            if is_drawn(cookie[0], Setting.BARE):
                yield "cookie", *cookie.span()


def _commands(text: str) -> Iterator[tuple[str, int, int]]:
    for match in _COMMAND.finditer(text) if _FLAG.search(text) else ():
        name = "word" if match["word"] else "user_word"
        if is_secret(match[name], Promise.CHOSEN, Setting.QUOTED):
            yield KIND, *match.span(name)


def _netrc(text: str) -> Iterator[tuple[str, int, int]]:
    for match in _NETRC.finditer(text):
        yield "netrc", *match.span("password")


def _pgpass(text: str) -> Iterator[tuple[str, int, int]]:
    for match in _PGPASS.finditer(text):
        if is_secret(match["password"], Promise.CHOSEN, Setting.CELL):
            yield "pgpass", *match.span("password")


def _headers(text: str) -> Iterator[tuple[str, int, int]]:
    for match in _HEADER.finditer(text):
        name = "basic" if match["basic"] else "bearer"
        value = match[name]
        if len(set(map(forms.char_class, value))) >= 2 and is_drawn(value, Setting.BARE):
            yield "authorization", *match.span(name)


#: For each source, the words of which a text must have one before it is searched.
SOURCES = (
    (("://",), addresses),
    (("=",), _queries),
    (("://",), _links),
    (("digest ",), _digests),
    (("otp", "pin", "puk", "cvc", "cvv", "passkey", "code", "key", "serial", "number"), codes.find),
    (("@",), _bare_addresses),
    (("basic ", "bearer ", "token ", "apikey ", "ssws "), _headers),
    (("cookie",), _cookies),
    (_COMMANDS, _commands),
    (("machine", "default"), _netrc),
    ((":",), _pgpass),
)
