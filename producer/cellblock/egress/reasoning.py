"""Finds hidden reasoning of models, which a program received and passes on unread.

Intermediate steps must not leave. They are recognised by their field names in providers' answers, in JSON as
printed or returned, and by the tags that open models write around them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

KIND = "hidden_reasoning"

#: Models write the opening tag at the start of a line; elsewhere it is only mentioned.
_OPEN = re.compile(r"(?m)^[ \t]{0,8}<(think|thinking|reasoning|scratchpad)>")


def find(text: str, fields: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The places of hidden reasoning in a text. ``fields``: names of JSON members that hold it."""
    done = 0
    for opened in _OPEN.finditer(text):
        if opened.start() >= done:
            closing = f"</{opened[1]}>"
            end = text.find(closing, opened.end())
            done = len(text) if end < 0 else end + len(closing)
            yield opened.start(), done
    if any(name in text for name in fields):
        for match in _members(fields).finditer(text):
            yield match.span("value")


def _members(fields: Sequence[str]) -> re.Pattern[str]:
    names = "|".join(map(re.escape, fields))
    return re.compile(
        rf"[\"'](?:{names})[\"']\s{{0,8}}:\s{{0,8}}[\"'](?P<value>(?:[^\"'\\]|\\.|(?<=\w)'(?=\w))++)"
    )
