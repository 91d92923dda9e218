"""What of a text is secret: known forms, private keys, what is assigned to telling names, registered values.

Every reading of the text is searched (views.py), and what is found in one is a place in the text itself.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from cellblock.egress import assignments, private_keys
from cellblock.egress.rules import RULES, Rule, drawn_at_random
from cellblock.egress.views import View, views

#: Secrets are unbroken, so that all rules need to look at is what is this long.
_RUN = re.compile(r"[^\s\"'`<>(){},]{16,}")
_REGISTERED_LEAST = 6


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A stretch of the text, what it holds, and how it was read (nothing: as it stands)."""

    start: int
    end: int
    kind: str
    how: tuple[str, ...] = ()


def find(text: str, registered: Mapping[str, str] | None = None) -> list[Finding]:
    """Every secret in the text, in its order; places may overlap.

    ``registered`` are values that are secret by themselves, by the name to report them under.
    """
    needles = _needles(tuple((registered or {}).items()))
    found: list[Finding] = []
    loose: list[Finding] = []
    for view in views(text):
        for kind, start, end in _in_view(view, needles):
            place = view.locate(start, end)
            if place[0] < place[1]:
                (loose if view.loose else found).append(Finding(*place, kind, view.how))
    # With the borders gone a secret seems to go on into what follows it: where it was seen exactly, that counts.
    return sorted({*found, *_beside(loose, found)})


def _beside(loose: Iterable[Finding], exact: list[Finding]) -> Iterator[Finding]:
    for finding in loose:
        if not any(known.start < finding.end and finding.start < known.end for known in exact):
            yield finding


def _in_view(view: View, needles: list[tuple[str, str]]) -> Iterator[tuple[str, int, int]]:
    text = view.text
    yield from _known_forms(text, loose=view.loose)
    for start, end in private_keys.find(text):
        yield private_keys.KIND, start, end
    if not view.loose:
        yield from assignments.find(text)
    if needles:
        folded = text.casefold() if text.isascii() else text.lower()
        for name, needle in needles:
            yield from _occurrences(folded if len(folded) == len(text) else text, name, needle)


def _known_forms(text: str, *, loose: bool) -> Iterator[tuple[str, int, int]]:
    long = text if loose else " ".join(_RUN.findall(text))
    if not long:
        return
    for rule in RULES:
        if rule.literal in long:
            yield from _by_rule(rule, text, loose=loose)


def _by_rule(rule: Rule, text: str, *, loose: bool) -> Iterator[tuple[str, int, int]]:
    for match in rule.pattern.finditer(text):
        start, end = match.span()
        if rule.border and not loose and start and text[start - 1].isalnum():
            continue
        if (rule.mixed or loose) and not drawn_at_random(text[start + len(rule.literal) : end][:64]):
            continue
        yield rule.kind, start, end


@lru_cache(maxsize=8)
def _needles(registered: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    """Each value in the forms that no reading of a text undoes when it is short or stands within others."""
    needles = []
    for name, value in registered:
        if len(value) < _REGISTERED_LEAST:
            continue
        raw = value.encode()
        forms = {value, "".join(value.split()), raw.hex(), quote(value, safe=""), value[::-1]}
        for shift in range(3):  # base64 of it, however it stands within what was encoded
            coded = base64.b64encode(b"\0" * shift + raw).decode()
            inner = coded[(0, 2, 3)[shift] : len(coded) - (0 if (shift + len(raw)) % 3 == 0 else 4)]
            forms |= {inner, inner.replace("+", "-").replace("/", "_")}
        needles += [(f"registered:{name}", form.lower()) for form in forms if len(form) >= _REGISTERED_LEAST]
    return needles


def _occurrences(text: str, kind: str, needle: str) -> Iterator[tuple[str, int, int]]:
    start = text.find(needle)
    while start >= 0:
        yield kind, start, start + len(needle)
        start = text.find(needle, start + len(needle))
