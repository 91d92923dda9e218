"""Finds passwords beside a user, without a name for them: calls that connect, SQL, "log in with".

The name of the call, or the words, show that two values are a login; the second one is the secret.
"""

# ruff: noqa: E501

from __future__ import annotations

import re
from collections.abc import Iterator

from cellblock.egress.places.assessment import Setting
from cellblock.egress.places.lexicon import Promise
from cellblock.egress.places.place import Place

_QUOTED = r"(?:\"[^\"\n]{1,200}\"|'[^'\n]{1,200}')"
_CALLED = (
    r"\b\w{0,30}(?:[cC]onnect(?:ion)?|[lL]ogin|[lL]ogon|[aA]uth(?:enticate)?|[cC]redentials?|PDO|[bB]ind)"
)
_CALLED_CHARS = 42
_CALLED_BEFORE = re.compile(rf"{_CALLED}\Z")
#: The bracket behind such a word. Each of the words ends in one of these.
_BRACKET = re.compile(
    r"\((?:(?<=nect\()|(?<=tion\()|(?<=og[io]n\()|(?<=uth\()|(?<=cate\()|(?<=tial\()|(?<=tials\()|(?<=PDO\()|(?<=ind\())"
)
#: ``connect(host, "user", "…")``; between the last two nothing but a comma.
_CALL = re.compile(
    rf"{_CALLED}\("
    rf"(?:[^()\"'\n,]{{0,80}},\s{{0,8}}|{_QUOTED},\s{{0,8}}){{0,3}}{_QUOTED},\s{{0,8}}[\"'](?P<value>[^\"'\n]{{5,200}})[\"']"
)
#: ``IDENTIFIED BY "…"`` and ``PASSWORD FOR … = '…'``.
_STATEMENT = re.compile(
    r"(?i)\b(?:identified\s{1,8}(?:with\s{1,8}\S{1,40}\s{1,8})?by(?:\s{1,8}password)?|password\s{1,8}for\s{1,8}[^\n=;]{1,80}=)"
    r"\s{0,8}(?:password\()?[\"'](?P<value>[^\"'\n]{5,200})[\"']"
)
_UNQUOTED = re.compile(r"(?i)\bidentified\s{1,8}by\s{1,8}(?P<value>[^\s;\"']{6,200})")
_SAID = re.compile(
    r"(?i)\b(?:log|sign)(?:ged|ging)?[ -]?(?:in|on)[ ](?:with|as|using)[ ](?:the[ ])?[\"'`]?[\w.@+-]{2,64}[\"'`]?"
    r"[ ]{0,2}(?:/|:|,|and|with)[ ]{0,2}[\"'`]?(?P<value>[^\s\"'`]{6,100})"
)
#: For each other form: words of which a text must have one, the expression, and how well it knows the borders.
_FORMS = (
    (("dentified", "DENTIFIED", "assword", "ASSWORD"), _STATEMENT, Setting.QUOTED),
    (("dentified", "DENTIFIED"), _UNQUOTED, Setting.SPACED),
    (("og in", "ogged in", "ign in", "igned in", "og on", "ogin "), _SAID, Setting.SPACED),
)


def find(text: str) -> Iterator[Place]:
    """Places of all forms."""
    for match in _calls(text):
        yield _place(match, Setting.SPACED)
    for needed, form, setting in _FORMS:
        for match in form.finditer(text) if any(word in text for word in needed) else ():
            yield _place(match, setting)


def _calls(text: str) -> Iterator[re.Match[str]]:
    """The matches of _CALL. Brackets are searched first, because `re` tries _CALL at the start of every word."""
    done = 0
    for bracket in _BRACKET.finditer(text):
        at = bracket.start()
        called = _CALLED_BEFORE.search(text, max(done, at - _CALLED_CHARS), at) if at > done else None
        if called and (match := _CALL.match(text, called.start())):
            yield match
            done = match.end()


def _place(match: re.Match[str], setting: Setting) -> Place:
    kept = match["value"].rstrip(".,;:!)")
    return Place(match.start("value"), match.start("value") + len(kept), Promise.CHOSEN, setting)
