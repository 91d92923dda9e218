"""Finds one-time codes, codes for doors and cards, recovery keys and licence keys, behind their names.

Several codes can follow one name. They are read as an expression would read them, item by item, the first
choice that leads to an end counts; but an expression that divides a run of letters and digits into items tries
every way to divide it, and takes minutes for a run that fits in none.
"""

# ruff: noqa: E501

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from cellblock.egress.places.lexicon import lower

KIND = "access_code"
_NAME = re.compile(
    r"(?<![a-z0-9])(?:otp|pin|puk|cvc|cvv2?|passcode|passkey|(?:use|enter)(?: the)? code|(?:pairing|setup|device|user|verification|security|one-time|login|2fa|mfa|authentication|auth|confirmation|access|door|gate|alarm|unlock|sms|safe|entry)"
    r"[ _-]?(?:code|pin)s?|(?:backup|recovery|scratch|rescue|emergency)[ _-]?(?:code|key)s?|(?:licen[cs]e|serial|product|activation)[ _-]?(?:key|code|number))\b"
    r"(?:[^\n\d:=]{0,30}?(?:\bis\b|[:=»#]|->)|[ \t]{0,3}[:=])?[\s\"'`*(\[=:]{1,12}"
)
#: Every match of _NAME has one of these words, begins at most this far before it and ends this far behind.
_WORD, _BEFORE, _REST = re.compile(r"code|key|number|otp|p(?:in|uk)|cv[cv]"), 24, 120
_ITEMS_MOST = 20
#: An item and the separators behind it are no longer than this.
_ITEM_REACH = 80


class _Groups(NamedTuple):
    """An item of groups: a run that is one sign longer than a group, the length of groups, their number."""

    run: re.Pattern[str]
    least: int
    most: int
    signs: str
    groups: int


_DIGIT_GROUPS = _Groups(re.compile(r"\d{1,5}"), 2, 4, "-", 5)
_CAPITAL_GROUPS = _Groups(re.compile(r"[A-Z0-9]{1,9}"), 3, 8, " -", 8)
_SMALL_GROUPS = _Groups(re.compile(r"[a-z0-9]{1,7}"), 4, 6, "-", 8)
_DIGITS, _DIGITS_LEAST = re.compile(r"\d{3,16}"), 3
_HALVES = re.compile(r"\d{3}[ -]\d{3}")
_MIXED, _MIXED_LEAST = re.compile(r"(?=[A-Za-z]{0,15}\d)[A-Za-z0-9]{8,16}"), 8
#: An item begins so, in any of these forms.
_BEGINNING = re.compile(r"\d\d|[A-Za-z0-9]{3}")
#: Between items, and so are the first signs behind the last one.
_SEPARATORS = re.compile(r"[\s,;|\"']{0,6}")
#: The end: further items in quotation marks, and no part of a word.
_END = re.compile(r"(?:(?<=\")[A-Za-z0-9]{8,16}\"[\s,\"]{0,6}){0,20}(?![\w.-])")


def find(text: str) -> Iterator[tuple[str, int, int]]:
    """Kind and place of the codes behind each name."""
    for name in _names(lower(text)):
        end = _Codes(text, name.end()).end() if _BEGINNING.match(text, name.end()) else None
        codes = "" if end is None else text[name.end() : end]
        if end is None or (name[0].startswith("serial") and "-" not in codes):
            continue  # numbers of certificates and disks are public
        code = codes.rstrip(" \t\r\n,;|\"'")
        if len(code) < (3 if name[0].startswith(("cvc", "cvv")) else 4):
            continue
        if any(map(str.isdigit, code)) or (code.isupper() and "-" in code):
            yield KIND, name.end(), name.end() + len(code)


def _names(lowered: str) -> Iterator[re.Match[str]]:
    """The matches of _NAME, which is searched beside such words only."""
    done = 0
    for word in _WORD.finditer(lowered):
        at = word.start()
        if at >= done:
            name = _NAME.search(lowered, max(done, at - _BEFORE), at + _REST)
            if name and name.start() <= at:
                yield name
                done = name.end()


class _Codes:
    """The codes that begin at one place: up to twenty items, and further ones in quotation marks.

    An item that separators follow can always be the last one, because the last of them can be left out. So
    only runs without separators are searched for a way to divide them, each of their places once.
    """

    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._start = start
        self._reach = start + _ITEMS_MOST * _ITEM_REACH
        self._needed: dict[int, int] = {}

    def end(self) -> int | None:
        """Where they end; None without a code."""
        at, items = self._start, 0
        while (item_end := self._next(at, items)) is not None:
            behind = self._behind(item_end)
            items += 1
            if (
                behind > item_end
                and self._next(behind, items) is None
                and _END.match(self._text, behind) is None
            ):
                return behind - 1
            at = behind
        end = _END.match(self._text, at) if items else None
        return end and end.end()

    def _next(self, at: int, items: int) -> int | None:
        """The end of the next item, of the first choice from which an end can be reached."""
        left = _ITEMS_MOST - items - 1
        if left < 0:
            return None
        return next((end for end in _item_ends(self._text, at) if self._items_needed(end) <= left), None)

    def _behind(self, at: int) -> int:
        """The place behind the separators here."""
        separators = _SEPARATORS.match(self._text, at)
        return separators.end() if separators else at

    def _may_end(self, at: int) -> bool:
        """Whether an item that ends here can be the last one."""
        return self._behind(at) > at or _END.match(self._text, at) is not None

    def _items_needed(self, at: int) -> int:
        """The least number of items that must follow an item that ends here."""
        reached, ends = [at], {}
        for place in reached:
            if place not in self._needed and place not in ends and place <= self._reach:
                ends[place] = () if self._may_end(place) else tuple(_item_ends(self._text, place))
                reached += ends[place]
        for place in sorted(ends, reverse=True):
            following = [self._needed.get(end, _ITEMS_MOST) for end in ends[place]]
            self._needed[place] = 0 if self._may_end(place) else 1 + min(following, default=_ITEMS_MOST)
        return self._needed.get(at, _ITEMS_MOST)


def _item_ends(text: str, at: int) -> Iterator[int]:
    """Every end of an item that begins here, the first choice first."""
    if _BEGINNING.match(text, at) is None:
        return
    yield from _group_ends(text, at, _DIGIT_GROUPS)
    if digits := _DIGITS.match(text, at):
        yield from range(digits.end(), at + _DIGITS_LEAST - 1, -1)
    if halves := _HALVES.match(text, at):
        yield halves.end()
    yield from _group_ends(text, at, _CAPITAL_GROUPS)
    yield from _group_ends(text, at, _SMALL_GROUPS)
    if mixed := _MIXED.match(text, at):
        yield from range(mixed.end(), at + _MIXED_LEAST - 1, -1)


def _group_ends(text: str, at: int, form: _Groups) -> Iterator[int]:
    """The ends of an item of two or more groups. Each but the last is all of its run, so only its end varies."""
    groups: list[tuple[int, int]] = []
    while len(groups) < form.groups and (run := form.run.match(text, at)):
        length = run.end() - at
        if length < form.least:
            break
        groups.append((at + form.least, at + min(length, form.most)))
        if length > form.most or text[run.end() : run.end() + 1] not in (*form.signs,):
            break
        at = run.end() + 1
    for least, most in reversed(groups[1:]):
        yield from range(most, least - 1, -1)
