"""Finds secrets in command lines: short flags after a user's, here-strings, input for password readers.

No product is named: if one flag gives a user, the value of the next flag is a password.
"""

# ruff: noqa: E501

from __future__ import annotations

import re
from collections.abc import Iterator

from cellblock.egress.places.assessment import Setting
from cellblock.egress.places.lexicon import Promise
from cellblock.egress.places.place import Place

_LINE_CHARS = 600
# The dash comes before the check of the blank to its left, because `re` finds a first sign quickly.
#: ``-u name … -p value``; also glued to the flag.
_USER = re.compile(
    r"-(?<=[ \t]-)(?:[uUlDa]|-?user(?:name)?|-login|D)[ =]?[\"']?[\w.@\\,=-]{1,80}[\"']?(?=\s)"
)
_SECRET = re.compile(
    r"[ \t]-(?:[pPwWkKxXAN])[ =]?(?P<quote>[\"']?)(?P<value>[^\s\"'-][^\n\"']{4,120}?)(?:(?P=quote)(?=[\s;|&)]|$))"
)
#: ``x -psecret``: a flag with one dash that is too long and too mixed to be the name of a flag.
_GLUED = re.compile(
    r"-(?<=[ \t]-)p(?=\S*[!@#$%^&*]|\S*\d\S*[A-Z]|\S*[A-Z]\S*\d)(?P<value>[^\s\"'=-][^\s\"']{7,80})(?=\s|$)"
)
#: A short flag and a value that looks neither like a file nor like a number.
_SURE = re.compile(
    r"-(?<=[ \t]-)[pPkKwWcCsx][ =]?[\"']?(?=[^\s\"']*[a-z])(?=[^\s\"']*[A-Z])(?=[^\s\"']*\d)(?P<value>[^\s\"'/.-][^\s\"'/]{9,120})(?=[\s\"']|\Z)"
)
_USER_PAIR = re.compile(
    r"-(?<=[ \t]-)(?:\w{0,3}u|-user|-proxy-user|U)[ =]?[\"']?[\w.@-]{1,60}[:%](?P<value>[^\s\"']{5,120})"
)
_HERE = re.compile(r"<<<[ \t]?(?P<quote>[\"']?)(?P<value>[^\n\"']{5,200})(?P=quote)")
#: The first line of a here-document whose command reads a password.
_HERE_DOCUMENT = re.compile(
    r"(?m)^(?P<before>[^\n]{0,200}<<[-~]?[ \t]?[\"'\\]?\w{1,40}[^\n]{0,160})\n[ \t]{0,20}(?P<value>[^\s]{5,200})[ \t]{0,8}$"
)
_PIPED = re.compile(r"\b(?:echo|printf|print)\b(?P<said>[^\n|]{5,300})\|(?P<into>[^\n]{0,200})")
_READER = re.compile(
    r"passw|stdin|\bpass\b|sudo[^\n]*-S|login|cryptsetup|gpg|openssl|secret|credential|age\b|kinit|mount"
)
_SAID = re.compile(r"[\"']?(?:[\w.@-]{1,40}:)?(?P<value>[^\s\"'%:]{5,200})[\"']?(?=\s|\Z)")


_FLAGS = (
    *(f" -{letter}" for letter in "uUDlapPkKwWcCsx"),
    *(" --user", " --login", " --proxy-user"),
)


def find(text: str) -> Iterator[Place]:  # noqa: C901
    """The places in all command lines of a text."""
    if " -" in text and any(flag in text for flag in _FLAGS):
        for user in _USER.finditer(text):
            end = min(user.end() + _LINE_CHARS, len(text))
            line_end = text.find("\n", user.end(), end)
            for secret in _SECRET.finditer(text, user.end(), end if line_end < 0 else line_end):
                setting = Setting.QUOTED if secret["quote"] else Setting.BARE
                yield Place(*secret.span("value"), Promise.CHOSEN, setting)
        for sure in _SURE.finditer(text):
            yield Place(*sure.span("value"), Promise.DRAWN, Setting.SPACED)
        for glued in _GLUED.finditer(text):
            yield Place(*glued.span("value"), Promise.CHOSEN, Setting.SPACED)
        for pair in _USER_PAIR.finditer(text):
            yield Place(*pair.span("value"), Promise.CHOSEN, Setting.BARE)
    if "<<" in text:
        for document in _HERE_DOCUMENT.finditer(text):
            if _READER.search(document["before"]):
                yield Place(*document.span("value"), Promise.CHOSEN, Setting.LINE)
    if "<<<" in text:
        for here in _HERE.finditer(text):
            before = text[max(0, here.start() - 120) : here.start()].rsplit("\n", 1)[-1]
            if _READER.search(before):
                yield Place(*here.span("value"), Promise.CHOSEN, Setting.QUOTED)
    if "|" in text and ("echo" in text or "print" in text):
        for piped in _PIPED.finditer(text):
            if _READER.search(piped["into"]):
                for said in _SAID.finditer(text, *piped.span("said")):
                    yield Place(*said.span("value"), Promise.CHOSEN, Setting.BARE)
