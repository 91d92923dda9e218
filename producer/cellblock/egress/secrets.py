"""Finds secrets in a text: known forms, private keys, values of telling names, registered values.

Every reading of the text is searched (views.py), and each find is reported as a place in the text itself.
"""

from __future__ import annotations

import base64
import re
import string
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, takewhile
from urllib.parse import quote

from cellblock.egress import places, private_keys
from cellblock.egress.literals import LiteralSearch, words_of
from cellblock.egress.readable import TOO_LONG
from cellblock.egress.rules import RULES, Rule, begins_here, drawn_at_random
from cellblock.egress.values import checksums, forms, prefixed
from cellblock.egress.values.scorer import score
from cellblock.egress.views import JOINED, REVERSED, WRAPPED, ReadingBudget, View, views

#: Secrets are unbroken, so the rules only search runs of this length.
_RUN_CHARS = 16
_RUN = re.compile(rf"[^\s\"'`<>(){{}},]{{{_RUN_CHARS},}}")
_BLANKED = str.maketrans(dict.fromkeys("\"'`<>(){},", " "))
#: Every value with a checksum has this, within such a run.
_CHECKED = re.compile(r"[A-Za-z0-9]{22}")
_REGISTERED_LEAST = 6
#: In normal text, N consecutive words never have equal length: N after the beginning of a known form, and N
#: after a name such as "token", which any value can follow.
_ALIKE, _ALIKE_IN_A_VALUE = 2, 4
#: Shorter literals occur by chance in any text without blanks.
_LITERAL_LEAST = 3
#: After this many refused matches, the beginning of a further one is read: more than any form has at least.
_REFUSED_MOST, _BEGINNING_CHARS = 64, 512
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
#: Lines of checksums are equally regular, but longer than this.
_PIECE_CHARS = 24
_SCORE_LEAST = 0.0
_LITERALS = LiteralSearch(rule.literal for rule in RULES)
#: The literals of forms that do not begin with them.
_AROUND = {rule.literal for rule in RULES if not rule.border}


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A stretch of the text, the kind of its secret, and the steps that made it readable (empty: none)."""

    start: int
    end: int
    kind: str
    how: tuple[str, ...] = ()


def find(
    text: str, registered: Mapping[str, str] | None = None, budget: ReadingBudget | None = None
) -> list[Finding]:
    """Every secret in the text, in its order; places can overlap.

    ``registered``: values that are secret by themselves, keyed by the name to report.
    """
    needles = _needles(tuple((registered or {}).items()))
    found: list[Finding] = []
    loose: list[Finding] = []
    for view in views(text, budget):
        for kind, start, end in _in_view(view, needles):
            place = view.locate(start, end)
            if place[0] < place[1]:
                (found if kind != prefixed.KIND and not {JOINED, WRAPPED} & {*view.how} else loose).append(
                    Finding(*place, kind, view.how)
                )
    # Without borders, a secret seems to continue into the text behind it: where it was also seen exactly,
    # only that counts.
    return sorted({*found, *_beside(loose, found)})


def _beside(loose: Iterable[Finding], exact: list[Finding]) -> Iterator[Finding]:
    known = _merged_places(exact)
    starts = [start for start, _ in known]
    for finding in loose:
        at = max(0, bisect_right(starts, finding.start) - 1)
        seen = 0
        for start, end in islice(known, at, None):
            if start >= finding.end:
                break
            seen += max(0, min(end, finding.end) - max(start, finding.start))
        # One line of a key can be seen exactly, and the whole key only when its lines are joined.
        if not seen or (finding.kind == private_keys.KIND and 2 * seen < finding.end - finding.start):
            yield finding


def _merged_places(findings: Iterable[Finding]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for finding in sorted(findings):
        if merged and finding.start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], finding.end))
        else:
            merged.append((finding.start, finding.end))
    return merged


def _in_view(view: View, needles: list[tuple[str, str]]) -> Iterator[tuple[str, int, int]]:
    text = view.text
    if view.loose:
        yield from _taken_apart(view)
    else:
        if view.how[-1:] in {("rot13",), ("shifted",)}:
            yield from _in_other_letters(text)
        else:
            yield from _known_forms(text)
            if view.how[-1:] != ("swapped",):  # a name has the same meaning in either case
                yield from places.find(text, turned=REVERSED in view.how)
    for start, end in private_keys.find(text):
        yield private_keys.KIND, start, end
    if TOO_LONG in text:
        yield from _occurrences(text, "packed_data", TOO_LONG)
    yield from _registered(text, needles)


def find_registered(text: str, registered: Mapping[str, str]) -> list[Finding]:
    """Every registered value in the text as it stands, in its order."""
    found = _registered(text, _needles(tuple(registered.items())))
    return sorted(Finding(start, end, kind) for kind, start, end in found)


def _registered(text: str, needles: list[tuple[str, str]]) -> Iterator[tuple[str, int, int]]:
    if needles:
        folded = text.lower()
        if len(folded) != len(text):  # a few letters of other scripts become longer in lower case
            folded = text.translate(_LOWER)
        for name, needle in needles:
            yield from _occurrences(folded, name, needle)


def _in_other_letters(text: str) -> Iterator[tuple[str, int, int]]:
    """Secrets in a text with shifted letters: known forms, values of names. Words occur there by chance."""
    for kind, start, end in _known_forms(text):
        if drawn_at_random(text[start:end][_LITERAL_LEAST:]):
            yield kind, start, end
    for kind, start, end in places.find_named(text) if text.isascii() else ():
        value = text[start:end]
        if any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and " " not in value:
            yield kind, start, end


def _known_forms(text: str) -> Iterator[tuple[str, int, int]]:
    long = " ".join(_long_runs(text))
    if not long:
        return
    literals = _LITERALS.within(long)
    literals.update(literal for literal in _AROUND if literal in text)  # in a short word too
    refused = _Refused()
    for rule in _with(literals):
        yield from _by_rule(rule, text, refused)
    if _CHECKED.search(long):
        yield from checksums.find(text)


def _with(literals: set[str]) -> list[Rule]:
    """The rules with these literals, in the order of all rules."""
    return [rule for rule in RULES if rule.literal in literals]


def _long_runs(text: str) -> list[str]:
    """The runs that the rules search. ASCII is faster to split, once its other borders are blanks too."""
    if not text.isascii():
        return _RUN.findall(text)
    return [run for run in words_of(text.translate(_BLANKED)) if len(run) >= _RUN_CHARS]


@dataclass
class _Refused:
    """The number of matches in one text that were not at a border, over all rules."""

    count: int = 0


def _by_rule(rule: Rule, text: str, refused: _Refused) -> Iterator[tuple[str, int, int]]:
    """Every match that begins at a border; within a match that does not, the search goes on."""
    at = 0
    while (match := rule.pattern.search(text, at)) is not None:
        if _is_accepted(rule, text, match):
            yield rule.kind, *match.span()
            at = match.end()
            continue
        refused.count += 1
        if refused.count > _REFUSED_MOST and rule.border:
            yield from _within(rule, text, match)
            at = match.end()
        else:
            at = match.start() + max(1, len(rule.literal))


def _within(rule: Rule, text: str, refused: re.Match[str]) -> Iterator[tuple[str, int, int]]:
    """The same in time proportional to the refused match: only the beginning of a match decides."""
    at = text.find(rule.literal, refused.start() + 1, refused.end())
    while at >= 0:
        done = at + 1
        begun = rule.pattern.match(text, at, at + _BEGINNING_CHARS)
        if begun and _is_accepted(rule, text, begun):
            match = rule.pattern.match(text, at) or begun
            yield rule.kind, *match.span()
            done = match.end()
        at = text.find(rule.literal, done, refused.end())


def _is_accepted(rule: Rule, text: str, match: re.Match[str]) -> bool:
    alone = begins_here(rule, text, match.start())
    sure = _is_drawn(rule, match) if rule.mixed or not alone else not _is_of_words(rule, match)
    return sure and (alone or not rule.weak)


def _taken_apart(view: View) -> Iterator[tuple[str, int, int]]:
    """Secrets that were split by separators.

    In joined words, much looks like a secret. If a program split it, its pieces have one length; otherwise
    its form has to be beyond doubt.
    """
    literals = {literal for literal in _LITERALS.within(view.text) if len(literal) >= _LITERAL_LEAST}
    for rule in _with(literals):
        for match in rule.pattern.finditer(view.text):
            if not _is_sure(rule, match):
                continue
            if _is_in_halves(view, *match.span()):
                yield rule.kind, *match.span()
                continue
            end = _regular_end(view, *match.span(), _ALIKE_IN_A_VALUE if rule.weak else _ALIKE)
            if end is not None:
                yield rule.kind, match.start(), end
            elif not rule.weak:
                yield rule.kind, *match.span()
    values = places.find_named(view.text) if view.is_regular(_ALIKE_IN_A_VALUE, _PIECE_CHARS) else ()
    for kind, start, found_end in values:
        end = _regular_end(view, start, found_end, _ALIKE_IN_A_VALUE)
        if end is not None:
            yield kind, start, end


def _is_drawn(rule: Rule, match: re.Match[str]) -> bool:
    return drawn_at_random(match[0][len(rule.literal) :][:64])


def _is_of_words(rule: Rule, match: re.Match[str]) -> bool:
    """Whether words follow the literal, as in an identifier that begins with it."""
    body = match[0][len(rule.literal) :]
    if not rule.border:
        return False
    parted = "_" in body or "-" in body
    return (body.islower() and not any(map(str.isdigit, body))) or (parted and forms.is_written(body))


def _is_sure(rule: Rule, match: re.Match[str]) -> bool:
    """Whether a match in joined words is random text: joined words have digits and capitals by chance."""
    return _is_drawn(rule, match) and score(match[0][len(rule.literal) :][:64]) > _SCORE_LEAST


def _is_in_halves(view: View, start: int, end: int) -> bool:
    """Whether it was one run with only the end of a line in its middle."""
    pieces = view.pieces(start, end)
    wider = view.pieces(max(0, start - 1), min(len(view.text), end + 1))
    if len(pieces) != 2 or len(wider) != 2 + (start > 0) + (end < len(view.text)):  # within longer words
        return False
    (_, first_end), (second, _) = (view.locate(*piece) for piece in pieces)
    return 0 < second - first_end <= 2


def _regular_end(view: View, start: int, end: int, least: int) -> int | None:
    """The end of the part that had ``least`` or more pieces of one length; None if there were fewer."""
    pieces = [b - a for a, b in view.pieces(start, end)]
    if len(pieces) < 3 or pieces[0] > pieces[1] or pieces[1] > _PIECE_CHARS:
        return None
    alike = sum(1 for _ in takewhile(pieces[1].__eq__, pieces[1:]))
    rest = pieces[1 + alike :]
    if alike < least and (rest[1:] or alike + (pieces[0] == pieces[1]) < least):
        return None
    taken = sum(pieces[: 1 + alike])
    return start + taken + (rest[0] if rest and rest[0] < pieces[1] else 0)


@lru_cache(maxsize=8)
def _needles(registered: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    """Each value in those encoded forms that no reading decodes when they are short or within other text."""
    needles = []
    for name, value in registered:
        if len(value) < _REGISTERED_LEAST:
            continue
        raw = value.encode()
        forms = {value, "".join(value.split()), raw.hex(), quote(value, safe=""), value[::-1]}
        for shift in range(3):  # its base64 at each position within encoded text
            coded = base64.b64encode(b"\0" * shift + raw).decode()
            inner = coded[(0, 2, 3)[shift] : len(coded) - (0 if (shift + len(raw)) % 3 == 0 else 4)]
            forms |= {inner, inner.replace("+", "-").replace("/", "_")}
        forms = {folded for form in forms for folded in (form.lower(), form.translate(_LOWER))}
        needles += [(f"registered:{name}", form) for form in forms if len(form) >= _REGISTERED_LEAST]
    return needles


def _occurrences(text: str, kind: str, needle: str) -> Iterator[tuple[str, int, int]]:
    start = text.find(needle)
    while start >= 0:
        yield kind, start, start + len(needle)
        start = text.find(needle, start + len(needle))
