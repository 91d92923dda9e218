"""Secrets that are known by what stands before them: a name, a header, the user of an address.

A name such as ``password`` says little by itself: source code and tables are full of them. What is given to
it has to look like a secret and not like code, a word or a placeholder.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

#: What the names of secrets are made of. Of the shorter ones there are too many that name something else.
_STEM = re.compile(
    r"passw(?:or)?d|pass(?:phrase|_?code)|pass|pwd|secret|token|credential|auth(?!or|enti)"
    r"|key(?!word|board|stone|frame)|sas|dsn"
)
_WEAK = {"key", "pass", "sas", "dsn"}
_BEFORE_WEAK = re.compile(
    r"[a-z0-9]_$|"
    r"(?:api|access|private|secret|auth|sign(?:ing)?|encrypt(?:ion)?|account|service|master|license|client|shared"
    r"|session|app(?:lication)?|admin|root|deploy|webhook|hmac|jwt|aes|rsa|ssh|gpg|storage|subscription|host|user"
    r"|primary|secondary|security|consumer|integration|write|read|ingest|server|cookie|sentry|db|database|smtp|mail"
    r"|pg|mysql|redis|rabbit|ftp|ssl|tls|cert|keystore|truststore|vault|bot|stripe|azure|aws|gcp|openai|model)"
    r"[_ .-]?$"
)
_BEFORE_REACH = 16
_REFUSED_MOST, _JUDGED_CHARS = 4, 256
_ASSIGNED = re.compile(
    r"(?P<more>[A-Za-z0-9_.-]{0,40})(?P<sign>\\?[\"'`]?\]?[ \t]{0,4}(?:=>|:=|={1,2}|:|>|[ \t])[ \t]{0,4})"
    r"(?P<quote>(?:[bruf]{1,2}(?=[\"']))?\\?[\"'`]?)(?P<value>[^\s\"'`\\]{6,4096})"
)
#: Where another field of a query, a cookie or a connection string begins.
_NEXT_FIELD = re.compile(r"[&;,](?=[A-Za-z][A-Za-z0-9_. -]{0,40}=)")
_QUOTED_REST = re.compile(r"[^\"'`\n\\]{6,200}(?=[\"'`\\])")
_NO_SECRET = re.compile(
    r"public|publishable|fingerprint|_id$|_ids$|name$|type$|count$|length$|len$|url$|uri$|path$|file$"
    r"|version$|expir|_at$|index$|size$|limit|format$|field|hash$|algorithm",
    re.IGNORECASE,
)

#: scheme://user:password@host
_ADDRESS = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s:@/\"'<>]{0,128}:(?P<password>[^\s\"'<>]{2,256}?)"
    r"@(?=\[?[A-Za-z0-9_.:-]{1,255}\]?(?:[/?,\s\"'`)<;\\]|\Z))"
)
_HEADER = re.compile(
    r"\b(?:Basic\s{1,4}(?P<basic>[A-Za-z0-9+/_-]{8,}={0,2})|(?:Bearer|Token|token|bearer|ApiKey|apikey|SSWS)\s{1,4}(?P<bearer>[A-Za-z0-9._~+/:=-]{16,}))"
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
_COMMANDS = ("mysql", "mariadb", "mongo", "sshpass", "redis-cli", "curl", "wget", "http")

_PLACEHOLDER = re.compile(
    r"(?:your|my|the|some|example|sample|dummy|test|fake|changeme|change[-_]me|placeholder|insert|replace|redacted|none|null"
    r"|true|false|undefined|secret|password|passwd|token|xxx+|todo|string|value|default|empty|optional|required|str|int"
    r"|bytes|hidden|masked|user|username|admin|root|guest|pass|pwd|key)",
    re.IGNORECASE,
)
_MASKED = re.compile(
    r"[*x.•#_-]{3,}|\[[A-Z :_-]+|<[^>]*>?|\$\{?\w+\}?|\{\{?.*|%\(?\w.*|.*\.\.\.$|(.)\1+", re.IGNORECASE
)
_CODE = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*[(\[].*|.*[()].*|https?:.*|\w+\[.*|@.*")
#: Shorter values without a digit are words.
_WITHOUT_DIGITS = 20
_DIGEST = re.compile(r"(?:sha\d{1,3}|md5)[:=-]")
#: What people put between a word and a year when they are told to.
_PEOPLES_SIGNS = re.compile(r"[!@#$%^&*~?]")
_PASSWORD_NAMES = re.compile(r"pass(?!ive|age|ing|enger|es$)|pwd|secret", re.IGNORECASE)


def find(text: str) -> Iterator[tuple[str, int, int]]:
    """Kind and place of what was assigned; names and users stay readable."""
    yield from find_named(text)
    lowered = text.lower()
    for words, look in _SOURCES:
        if any(word in lowered for word in words):
            yield from look(text)


def find_named(text: str) -> Iterator[tuple[str, int, int]]:
    """The same of names alone: not of addresses, headers and commands."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a few letters of other scripts grow when they are lowered
        lowered = "".join(c.lower() if c < "\x80" else c for c in text)
    yield from _assignments(text, lowered)


def _addresses(text: str) -> Iterator[tuple[str, int, int]]:
    for match in _ADDRESS.finditer(text):
        password = match["password"]
        if not (_is_placeholder(password) or _MASKED.fullmatch(password)):
            yield "connection_string", *match.span("password")


def _cookies(text: str) -> Iterator[tuple[str, int, int]]:
    for match in _COOKIES.finditer(text):
        for cookie in _COOKIE.finditer(text, *match.span("cookies")):
            if _is_drawn(cookie[0], quoted=False):
                yield "cookie", *cookie.span()


def _commands(text: str) -> Iterator[tuple[str, int, int]]:
    for match in _COMMAND.finditer(text):
        name = "word" if match["word"] else "user_word"
        if _looks_like_secret(match[name], quoted=True, password=True):
            yield "assigned_secret", *match.span(name)


def _netrc(text: str) -> Iterator[tuple[str, int, int]]:
    for match in _NETRC.finditer(text):
        yield "netrc", *match.span("password")


def _pgpass(text: str) -> Iterator[tuple[str, int, int]]:
    for match in _PGPASS.finditer(text):
        if _is_drawn(match["password"], quoted=True):
            yield "pgpass", *match.span("password")


def _headers(text: str) -> Iterator[tuple[str, int, int]]:
    for match in _HEADER.finditer(text):
        name = "basic" if match["basic"] else "bearer"
        value = match[name]
        if len(set(map(_class, value))) >= 2 and _is_drawn(value, quoted=False):
            yield "authorization", *match.span(name)


def _assignments(text: str, lowered: str) -> Iterator[tuple[str, int, int]]:
    done = refused_end = refused = 0
    for stem in _STEM.finditer(lowered):
        if stem.start() < done or (stem.start() < refused_end and refused >= _REFUSED_MOST):
            continue
        match = _ASSIGNED.match(text, stem.end())
        if match is None or not _names_a_secret(lowered, stem, match["more"]):
            continue
        value = _assigned_value(text, match)
        if value is not None:
            done = value[1]
            yield "assigned_secret", *value
        else:  # within it another name may stand, but not any number of them
            refused = refused + 1 if stem.start() < refused_end else 1
            refused_end = max(refused_end, match.end())


def _names_a_secret(lowered: str, stem: re.Match[str], more: str) -> bool:
    before = lowered[max(0, stem.start() - _BEFORE_REACH) : stem.start()]
    if _NO_SECRET.search(before + stem[0] + more.lower()):
        return False
    return stem[0] not in _WEAK or _BEFORE_WEAK.search(before) is not None


def _assigned_value(text: str, match: re.Match[str]) -> tuple[int, int] | None:
    """Where the value stands, if it looks like a secret."""
    start, end = match.span("value")
    quoted = bool(match["quote"])
    spaced = not match["sign"].strip(" \t\"'`]\\")  # "password hunter2": nothing but a blank between
    if quoted:
        whole = _QUOTED_REST.match(text, start)
        end = whole.end() if whole else end
    else:
        value = _NEXT_FIELD.split(match["value"], maxsplit=1)[0]
        end = start + len(value.partition("<")[0] if match["sign"].endswith(">") else value.rstrip(",;.)]}>"))
    password = _PASSWORD_NAMES.search(match.string, max(0, match.start() - 10), match.end("more")) is not None
    judged = text[start : min(end, start + _JUDGED_CHARS)]
    if _looks_like_secret(judged, quoted=quoted and not spaced, password=password):
        return start, end
    return None


def _looks_like_secret(value: str, *, quoted: bool, password: bool) -> bool:
    if _DIGEST.search(value) or not (
        password or len(value) >= _WITHOUT_DIGITS or any(map(str.isdigit, value))
    ):
        return False
    if len(value) < 6 or _is_placeholder(value) or _MASKED.fullmatch(value):
        return False
    if not quoted and _CODE.fullmatch(value):
        return False
    if password and len(value) >= 8:
        if _PEOPLES_SIGNS.search(value) and any(map(str.isdigit, value)) and any(map(str.isalpha, value)):
            return True
        if quoted and len({*map(_class, value)}) >= 2 and not _is_written(value):
            return True
    return _is_drawn(value, quoted=quoted)


def _is_drawn(value: str, *, quoted: bool) -> bool:
    """Whether a value is no name, number, date or word: letters and digits in an order nobody writes."""
    kinds = {*map(_class, value)}
    if len(value) < 8 or not kinds & {"l", "u"} or _is_written(value):
        return False
    if "d" not in kinds:
        return len(value) >= _WITHOUT_DIGITS and {"l", "u"} <= kinds and _turns(value) * 4 >= len(value)
    return len(kinds) >= 2 and (len(value) >= 12 or quoted or len(kinds) >= 3) and _turns(value) >= 3


def _is_written(value: str) -> bool:
    """Words and short numbers: an identifier, a path, a version, a date, a sentence."""
    if " " in value and all(part.strip(".,!?;:()").isalpha() for part in value.split()):
        return True
    parts = re.split(r"[^A-Za-z0-9]+", value)
    return all(_is_word(part) for part in parts)


def _is_word(part: str) -> bool:
    if part.isdigit():
        return True
    pieces = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", part)
    if any(piece.isdigit() and len(piece) > 4 for piece in pieces):
        return False
    return len(pieces) <= 1 + len(part) // 5 and (
        len(pieces) <= 2 or all(len(p) > 2 for p in pieces if p.isalpha())
    )


def _is_placeholder(value: str) -> bool:
    words = [word for word in re.split(r"[^A-Za-z]+", value) if len(word) > 2]
    return bool(words) and all(map(_PLACEHOLDER.fullmatch, words)) and not any(map(str.isdigit, value))


def _turns(value: str) -> int:
    """How often the class of characters changes."""
    kinds = [*map(_class, value)]
    return sum(1 for before, after in itertools.pairwise(kinds) if before != after)


def _class(char: str) -> str:
    return "d" if char.isdigit() else "u" if char.isupper() else "l" if char.islower() else "o"


#: What has to be in a text for the others to be worth a look.
_SOURCES = (
    (("://",), _addresses),
    (("basic ", "bearer ", "token ", "apikey ", "ssws "), _headers),
    (("cookie",), _cookies),
    (_COMMANDS, _commands),
    (("machine", "default"), _netrc),
    ((":",), _pgpass),
)
