"""Finds tokens that begin with a word of their issuer: a few small letters, a sign, and random text.

It does not matter which issuer it is. Identifiers have the same form, so the words they begin with are
excluded, and the rest has to be random beyond doubt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cellblock.egress.values import forms
from cellblock.egress.values.scorer import score
from cellblock.egress.values.words import IDENTIFIERS, TOKENS

KIND = "prefixed_token"
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9_/.+=@%-])(?P<prefix>[A-Za-z][A-Za-z0-9]{1,11}(?:[_.-][A-Za-z0-9]{1,12}){0,3}?[_.-])"
    r"(?P<body>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[A-Za-z0-9]{20,}(?:[_.-][A-Za-z0-9_-]{4,}){0,3})(?![A-Za-z0-9/+@])"
)
#: All of them contain this, and it is cheaper to search.
_BODY = re.compile(r"[_.-](?:[A-Za-z0-9]{20}|[0-9a-f]{8}-[0-9a-f]{4}-)")
_DRAWN_LEAST = 24
_SURELY_DRAWN = 3.0
#: The lengths of 16, 32 or 64 bytes in base64url: there, the apparent prefix is random like the rest.
_WHOLE_CHARS = {22, 43, 86}
_WORD = re.compile(r"(?:[a-z]{2,}|[A-Z]{2,})\d{0,2}|[A-Za-z]?\d{1,2}|[A-Z][a-z]+|[A-Z]{2,}[a-z]")
_WORD_LEAST = 3
_PARTS = re.compile(r"[_.-]")


def find(text: str) -> Iterator[tuple[str, int, int]]:
    """Kind and place of each token."""
    for match in _TOKEN.finditer(text) if _BODY.search(text) else ():
        words = re.findall(r"[a-z]+|[A-Z]+", match["prefix"])
        first, said = words[0].lower(), any(word.lower() in TOKENS for word in words)
        if first in IDENTIFIERS or any(len(word) > 8 for word in words):
            continue
        if not all(map(_WORD.fullmatch, _PARTS.split(match["prefix"].rstrip("_.-")))):
            continue  # part of a random text, such as base64url
        if not said and (len(match[0]) in _WHOLE_CHARS or len(words[0]) < _WORD_LEAST):
            continue
        body = match["body"]
        if forms.is_hex(body):
            if said and len(body) >= 32:
                yield KIND, *match.span()
            continue
        body = _PARTS.split(body)[0]  # dotted names have digits in their other parts
        if score(body) < _SURELY_DRAWN:
            continue
        classes = {*map(forms.char_class, body)}
        if (
            {"l", "u", "d"} <= classes
            and forms.turns(body) * 3 >= len(body)
            and len(body) >= (20 if said else _DRAWN_LEAST)
        ):
            yield KIND, *match.span()
