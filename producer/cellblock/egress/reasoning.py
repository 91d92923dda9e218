"""Hidden reasoning of models (requirement D16): what a program got from one and passes on unread.

Intermediate steps stay inside. They are known by the names that providers' answers give them, in JSON as
printed or returned, and by the tags that open models write them between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

KIND = "hidden_reasoning"

#: Models open it on a line of its own; elsewhere it is a mention.
_OPEN = re.compile(r"(?m)^[ \t]{0,8}<(think|thinking|reasoning|scratchpad)>")


def find(text: str, fields: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where it stands in a text. ``fields`` are names of JSON members that hold it."""
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
