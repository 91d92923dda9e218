"""Undoes layouts that split a text: concatenations, labelled parts, noise, columns, indexes, other orders.

Steps that change a whole text are tried on short texts only, and count only if a telling word comes out: any
text can be read backwards without a meaning.
"""

# ruff: noqa: E501

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise, zip_longest

from cellblock.egress.decoded import Decoded, Decoding, Found, Part, replaced
from cellblock.egress.places.lexicon import Promise, names

_SHORT_CHARS, _SHIFTED_CHARS = 8 * 1024, 2 * 1024
_LINE_CHARS = 4096
_KNOWN = re.compile(
    r"ghp_\w{30}|AKIA[A-Z2-7]{16}|eyJ[A-Za-z0-9_-]{20,}\.|sk_live_\w{16}|xox[bp]-[\w-]{30}|glpat-[\w-]{20}|://[\w.-]+:[^\s@/]{6,}@"
)
_JOINT = re.compile(
    r"(?P<quote>[\"'`])[ \t]*(?:\)[ \t]*)?"
    r"(?:(?:(?:\+|\.|&|\|\||~|<>|\\|\^)[ \t]*)?(?:\r?\n[ \t]*(?:(?:\+|\.|&|\|\||\\)[ \t]*)?)?"
    r"|(?:;[ \t]*)?\r?\n[ \t]*[$\w.\[\]]{1,40}[ \t]*(?:\+=|\.=|<<|&=|:=[ \t]*\w{1,30}[ \t]*\+)[ \t]*)[bfruL]{0,2}(?P=quote)"
)
_JOINED_LIST = re.compile(r"join\((?:\[|[\w.]+)|\.join\(\[|\]\.join|concat\(|implode\(")
_LIST_JOINT = re.compile(r"(?P<quote>[\"'])[ \t]*,\s{0,20}(?P=quote)")
_LABELLED = re.compile(
    r"(?m)^[ \t>*#-]{0,8}(?P<label>[\(\[]?(?:[A-Za-z_][\w-]{0,20})?[ \t_.#\[(-]{0,3}\d{1,4}[\])]?(?:[ \t]{0,2}(?:/|of)[ \t]{0,2}\d{1,4})?[\])]?)"
    r"(?P<sign>[ \t]{0,2}(?:=>|[:=\])>|-]{1,2})?[ \t]{0,4})(?P<piece>[^\n]{1,200}?)(?P<end>[;,]?)\r?$"
)
_NUMBER = re.compile(r"\d+")
_INDEXED = re.compile(
    r"(?m)^[ \t]{0,8}[\[(]?(?P<at>\d{1,5})[\])]?[ \t]{0,2}[:=.>|,-]{0,2}[ \t]?(?P<char>'.'|\".\"|.)?,?\r?$"
)
#: Pieces that are hidden between other lines are at most this long.
_PIECE_CHARS = 24
#: The lines between them are sentences, or repeat themselves.
_SENTENCE_BLANKS, _NOISY_LINES, _NOISE_LEAST = 2, 400, 4
_BLANKS = re.compile(r"(\s+)")
_SIGNS = bytes(code for code in range(128) if not chr(code).isalnum())
_WORD_OR_BLANK = re.compile(r"\S+|\s+")
_LETTERS = string.ascii_lowercase
#: Words that come out when a layout was undone, and that do not occur by chance.
_TELLING = re.compile(
    r"(?i:passw|passphrase|secret|token|api[_-]?key|private|credential|access.?key|bearer |[a-z]_key\b|://[\w.-]+:)|ghp_|AKIA|eyJ[A-Za-z0-9_-]{8}|sk-|xox[bp]-|glpat-|\bpwd\b"
)
#: Each of these words has one of these parts, in lower case. Moving letters does not change the sign of an address.
_ADDRESS = "://"
_TOLD = (
    *("passw", "passphrase", "secret", "token", "api", "private", "credential", "access", "bearer", "_key"),
    *("ghp_", "akia", "eyj", "sk-", "xox", "glpat-", "pwd"),
)
_TOLD_ANYHOW = (*_TOLD, _ADDRESS)
_TOLD_BACKWARDS = [part[::-1] for part in _TOLD_ANYHOW]
#: The letters of other scripts that count as "s", "k" and "i" where case does not matter.
_FOLDED = "\u017f\u212a\u0130\u0131"


def _turned(step: int) -> tuple[dict[int, int], list[str]]:
    """The table that moves letters on by `step` places, and the parts of telling words before it does."""
    on = _LETTERS[step:] + _LETTERS[:step]
    before = [part.translate(str.maketrans(on, _LETTERS)) for part in _TOLD]
    return str.maketrans(_LETTERS + _LETTERS.upper(), on + on.upper()), before


_TURNED = [_turned(step) for step in range(1, len(_LETTERS))]
#: Letters of other scripts that look like ASCII letters (Unicode's confusables) and can disguise words.
_LOOK_ALIKE = str.maketrans(
    "\u0430\u0441\u0435\u043e\u0440\u0445\u0443\u0456\u0458\u0455\u04bb\u0501\u051b\u0261\u0410\u0412\u0421\u0415\u041d\u041a\u041c\u041e\u0420\u0422\u0425\u0423\u0406\u0408\u0405"
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03bf\u03bd\u03c1\u03b1\u03b9\u03ba\u03c4\u03c5\u03c7\u0131\u0432\u043a\u043c\u043d\u0442",
    "aceopxyijshdqgABCEHKMOPTXYIJSABEZHIKMNOPTYXovpaiktuxiBKMHT",
)
_MIXED = re.compile("[A-Za-z0-9][\u0370-\u052f]|[\u0370-\u052f][A-Za-z0-9]")


#: The name of a reading, its text, and a function that computes its parts.
WholeReading = tuple[str, str, Callable[[], list[Part]]]


def _concatenated(text: str, near: int) -> Decoded | None:
    joints = list(_JOINT.finditer(text))
    if _JOINED_LIST.search(text):
        joints += _LIST_JOINT.finditer(text)
    found = sorted((m.start(), m.end(), "") for m in joints if _closes(text, m))
    return replaced(text, found, near) if found else None


def _closes(text: str, joint: re.Match[str]) -> bool:
    """Whether its first quotation mark ends a quotation: an odd number of marks precedes it in the line."""
    line_start = max(text.rfind("\n", 0, joint.start()) + 1, joint.start() - _LINE_CHARS)
    return text.count(joint["quote"], line_start, joint.start()) % 2 == 1


def _labelled(text: str, near: int) -> Decoded | None:
    """The text without labels, where lines have labels that differ only in their number."""
    lines = list(_LABELLED.finditer(text))
    if len(lines) < 2:
        return None
    found: list[Found] = []
    for _, run in groupby(lines, key=lambda m: (_NUMBER.sub("#", m["label"], count=1), m["sign"])):
        parts = list(run)
        numbers = [int(one[0]) for part in parts if (one := _NUMBER.search(part["label"]))]
        row = (
            parts[0]["label"].strip().isdigit() and not parts[0]["sign"].strip() and " " in parts[0]["piece"]
        )
        if row or len(parts) < 2 or any(b - a != 1 for a, b in pairwise(numbers)):  # rows with an index
            continue
        found.append((parts[0].start(), parts[0].start("piece"), ""))
        for before, after in pairwise(parts):
            if after.start() - before.end() > 2:
                break
            found.append((before.end("piece"), after.start("piece"), ""))
    return replaced(text, found, near) if found else None


def _look_alike(text: str, _: int) -> Decoded | None:
    if text.isascii() or not _MIXED.search(text):
        return None
    plain = text.translate(_LOOK_ALIKE)
    return None if plain == text else Decoded(plain, lambda: [Part(0, 0, len(text), whole=False)])


def _indexed(text: str, near: int) -> Decoded | None:
    found: list[Found] = []
    run: list[re.Match[str]] = []
    for match in [*_INDEXED.finditer(text), None]:
        follows = match is not None and (
            not run or (int(match["at"]) == int(run[-1]["at"]) + 1 and match.start() - run[-1].end() <= 2)
        )
        if not follows:
            if len(run) >= 8:
                found.append(
                    (
                        run[0].start(),
                        run[-1].end(),
                        "".join((m["char"] or " ").strip("'\"") or m["char"] for m in run),
                    )
                )
            run = []
        if match is not None:
            run.append(match)
    return replaced(text, found, near) if found else None


def whole(text: str) -> Iterator[WholeReading]:
    """Readings of a whole short text in which a telling word comes out: name, reading, and its parts."""
    if len(text) > _SHORT_CHARS:
        return
    yield from _telling_more(text)
    if "\n" in text:
        yield from _between_noise(text)
    if len(text) <= _SHIFTED_CHARS and not _telling(text):
        for table, parts in _TURNED:
            if _may_have(parts, text) and _TELLING.search(reading := text.translate(table)):
                yield "shifted", reading, partial(_same, text)


def _telling_more(text: str) -> Iterator[WholeReading]:
    told: int | None = None  # counted when a reading has telling words
    for name, reading in _whole(text):
        if comes_out := _telling(reading):
            told = _telling(text) if told is None else told
            if comes_out > told:
                yield name, reading, partial(_words if name == "words backwards" else _all_of, text)


def _between_noise(text: str) -> Iterator[WholeReading]:
    named: int | None = None  # as above
    for reading, parts in _without_noise(text):
        told = _KNOWN.search(reading) is not None
        if not told and (comes_out := _named(reading)):
            named = _named(text) if named is None else named
            told = comes_out > named or _is_repeated(text, reading)
        if told:
            yield "noise", reading, parts


def _named(text: str) -> int:
    """The number of names that promise more than a faint secret."""
    return sum(name.promise > Promise.FAINT for name in names(text))


def _telling(text: str) -> int:
    """The number of telling words. Most readings have no part of one, which is faster to see."""
    return len(_TELLING.findall(text)) if _may_have(_TOLD_ANYHOW, text) else 0


def _may_have(parts: Iterable[str], text: str) -> bool:
    lowered = text.lower()
    folded = not text.isascii() and any(letter in text for letter in _FOLDED)
    return folded or any(part in lowered for part in parts)


def _without_noise(text: str) -> Iterator[tuple[str, Callable[[], list[Part]]]]:
    """Readings of the lines between noise: every second or third line, or the lines that occur once."""
    lines = text.split("\n")
    for step in (2, 3):
        for first in range(step if len(lines) > 2 * step else 0):
            yield from _of_kept(text, lines, range(first, len(lines), step))
    counted = Counter(lines)
    once = [number for number, line in enumerate(lines) if counted[line] == 1]
    short = [number for number in once if lines[number].count(" ") < _SENTENCE_BLANKS]
    for kept in (once, short) if len(lines) <= _NOISY_LINES else ():
        if 3 <= len(kept) <= 2 * (len(lines) - len(kept)):
            yield from _of_kept(text, lines, kept)


def _is_repeated(text: str, reading: str) -> bool:
    """Whether the dropped lines mostly repeat themselves, so that they are probably noise."""
    dropped = [line for line in text.split("\n") if line and line not in reading]
    return len(dropped) >= _NOISE_LEAST and 2 * len(set(dropped)) <= len(dropped)


def _of_kept(
    text: str, lines: list[str], kept: Sequence[int]
) -> Iterator[tuple[str, Callable[[], list[Part]]]]:
    if max(len(lines[number]) for number in kept) <= _PIECE_CHARS:
        yield "".join(lines[number] for number in kept), partial(_lines, text, frozenset(kept))


def _lines(text: str, kept: frozenset[int]) -> list[Part]:
    parts, at, start = [], 0, 0
    for number, line in enumerate(text.split("\n")):
        if number in kept:
            parts.append(Part(at, start, start + len(line), whole=False))
            at += len(line)
        start += len(line) + 1
    return parts


def _words(text: str) -> list[Part]:
    """The parts of a text with each word reversed: each word is one part, and each blank is itself."""
    return [
        Part(m.start(), m.start(), m.end(), whole=m[0].strip() != "") for m in _WORD_OR_BLANK.finditer(text)
    ]


def _same(text: str) -> list[Part]:
    return [Part(0, 0, len(text), whole=False)]


def _all_of(text: str) -> list[Part]:
    return [Part(0, 0, len(text), whole=True)]


def _whole(text: str) -> Iterator[tuple[str, str]]:
    lines = text.split("\n")
    if len(lines) > 2:
        most = max(map(len, lines))
        for first in range(len(lines)):  # lines of a grid, with others before or behind
            grid = [line for line in lines[first : first + 12] if len(line) >= most - 1]
            if len(grid) >= 3:
                yield "columns", "".join("".join(row) for row in zip_longest(*grid, fillvalue=""))
            if first > 3:
                break
    for kept, dropped in ((text[::2], text[1::2]), (text[1::2], text[::2])):
        if 10 * _alnums(dropped) >= 9 * len(dropped):  # else they are separators, which another step removes
            yield "every second", kept
    if not _may_have(_TOLD_BACKWARDS, text):
        return
    pieces = _BLANKS.split(text)
    pieces[::2] = [word[::-1] for word in pieces[::2]]
    yield "words backwards", "".join(pieces)


def _alnums(text: str) -> int:
    """The number of letters and digits."""
    return len(text.encode().translate(None, _SIGNS)) if text.isascii() else sum(map(str.isalnum, text))


#: Steps that do not join separate words.
LAYOUTS: dict[str, Decoding] = {
    "concatenated": _concatenated,
    "labelled": _labelled,
    "look-alike": _look_alike,
    "indexed": _indexed,
}
