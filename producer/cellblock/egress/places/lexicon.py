"""The promise of a name: no secret, a secret that a program drew, or one that a person chose.

A name is judged by its words and their compounds, not by the product that uses it. Words of scripts without
blanks are searched anywhere in a name, other words only at its borders: "monkey" is not a key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from cellblock.egress.alternation import Stems, alternation
from cellblock.egress.literals import words_of
from cellblock.egress.places import words
from cellblock.egress.values.scorer import score


class Promise(IntEnum):
    """The strength of a promise. A stronger promise allows a weaker value."""

    NONE = 0
    FAINT = 1  #: a bare "key", "sig" or "seed": the value has to be beyond doubt
    DRAWN = 2  #: a token, a key that opens something
    CHOSEN = 3  #: a password


@dataclass(frozen=True, slots=True)
class Name:
    """An identifier or a word of a text that promises a secret."""

    start: int
    end: int
    promise: Promise


#: Longer runs of letters are not names, but the end of such a run can be one.
_WORD_CHARS, _NAME_CHARS = 48, 80
#: A name with at least this score of randomness is part of a value.
_NOT_A_NAME = 2.0
_TOKEN = re.compile(r"[^\W_][\w]*(?:[.-][^\W\d_]\w*)*")
_IDENTIFIER_BEFORE = re.compile(r"[\w.-]+\Z")
_SEGMENTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|[^\W\d_]+")
_FOREIGN_END = re.compile(
    r"[A-Za-z0-9_]{0,12}[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+(?=[!-~])"
)
#: The letter stands before its border, because `re` looks for a first letter quickly.
_TINY = re.compile(r"p(?<=\bp)[wa]\b|m(?<=\bm)dp\b")
#: With more telling words than this in a text, it is cheaper to check every word.
_TELLING_MOST = 64
#: With fewer occurrences of them than this, it is cheaper to find each word than to compile an expression.
_HITS_MOST = 256
#: Words that add nothing to the name before them.
_SAID_AGAIN = re.compile(r" (?:id|value|content|string|text|data)(?=[ \t]{0,40}[:=])")
_LONG_CHARS = 3
_LONG = re.compile(rf"[^\W\d_]{{{_LONG_CHARS},}}")
_SIGNS = "".join(chr(code) for code in range(128) if not chr(code).isalpha())
_WITHOUT_SIGNS, _SIGNS_BLANKED = str.maketrans("", "", _SIGNS), str.maketrans(dict.fromkeys(_SIGNS, " "))


def _phrases(stems: list[str]) -> list[str]:
    return [stem.replace("_", " ") for stem in stems if "_" in stem]


_ALL_CHOSEN = {stem.replace("_", "") for stem in words.CHOSEN}
_ALL_DRAWN = {stem.replace("_", "") for stem in words.DRAWN}
_ASCII_CHOSEN = [stem for stem in _ALL_CHOSEN if len(stem) > 3 and stem.isascii()]
_ASCII_DRAWN = [stem for stem in _ALL_DRAWN if len(stem) > 3 and stem.isascii()]
_WIDE_CHOSEN = [stem for stem in _ALL_CHOSEN if not stem.isascii()]
_WIDE_DRAWN = [stem for stem in _ALL_DRAWN if not stem.isascii()]
#: Stems of other scripts. Latin letters with marks, Greek and Cyrillic are treated like ASCII letters.
_WIDE = re.compile(
    alternation(
        [
            s
            for s in (*_WIDE_CHOSEN, *_WIDE_DRAWN, *(p for p in _phrases(words.CHOSEN) if not p.isascii()))
            if s[0] >= "\u0530"
        ]
    )
)
_WIDE_TAIL = re.compile("[\u0530-\u1fff\u2e80-\ud7ff]{1,8}")
#: Stems that are also parts of other words.
_LOOSE = {
    "parole",
    "parola",
    "parol",
    "sandi",
    "sifra",
    "sifre",
    "lösen",
    "geslo",
    "haslo",
    "heslo",
    "mdp",
    "pword",
}
_IN_CHOSEN = Stems([s for s in _ASCII_CHOSEN if s not in _LOOSE] + _WIDE_CHOSEN)
_IN_DRAWN = Stems(_ASCII_DRAWN + _WIDE_DRAWN)
_CHOSEN_WHOLE = {*words.CHOSEN_WHOLE, *_ALL_CHOSEN}
_DRAWN_WHOLE = {*words.DRAWN_WHOLE, *_ALL_DRAWN}
_WEAK = {"key", "keys"}
_LONGER = "\u0130"
#: Names of several words, searched by their last word.
_PHRASES_CHOSEN, _PHRASES_DRAWN = _phrases(words.CHOSEN), _phrases(words.DRAWN)
_PHRASE = re.compile(alternation([*_PHRASES_CHOSEN, *_PHRASES_DRAWN]))
_PHRASE_LAST = {phrase.split()[-1] for phrase in (*_PHRASES_CHOSEN, *_PHRASES_DRAWN)}
_MAYBE = Stems(
    {*_ASCII_CHOSEN, *_ASCII_DRAWN, *_WIDE_CHOSEN, *_WIDE_DRAWN, "key", "pass", "pwd", "secret"} - _LOOSE
)
_EXACT = {*_CHOSEN_WHOLE, *_DRAWN_WHOLE, *_PHRASE_LAST}
#: A name promises nothing if its letters, without the signs between them, have none of these.
_IN_NAMES = Stems({*_EXACT, *_WEAK, *_ALL_CHOSEN, *_ALL_DRAWN, "pass", "pwd", "secret", "auth", "key"})


def names(text: str) -> Iterator[Name]:  # noqa: C901
    """Every name in the text that promises something, in its order."""
    lowered = lower(text)
    if not text.isascii():
        yield from _in_other_scripts(lowered)
    telling = [word for word in _distinct_words(lowered) if _may_tell(word)]
    if not telling:
        return
    for start, end, token in _tokens(text, lowered, telling):
        if not token.isascii() and (cut := _FOREIGN_END.match(token)):  # scripts without blanks
            end = start + cut.end()
        if end - start > _NAME_CHARS:
            start = end - _NAME_CHARS
        name = text[start:end]
        promise = promised(name)
        low = lowered[start:end]
        if low in _PHRASE_LAST or (promise is Promise.NONE and ("passe" in low or "paso" in low)):
            before = " ".join(lowered[max(0, start - 20) : end].split())
            for phrase in _PHRASE.finditer(before):
                if phrase.end() == len(before):
                    promise = Promise.CHOSEN if phrase[0] in _PHRASES_CHOSEN else Promise.DRAWN
        if promise is Promise.FAINT and low in _WEAK:
            promise = _by_word_before(lowered, start)
        if promise and (end - start < 12 or score(name) < _NOT_A_NAME):
            more = _SAID_AGAIN.match(lowered, end)
            if more and promise is Promise.FAINT and more[0] == " content":
                promise = Promise.DRAWN
            yield Name(start, more.end() if more else end, promise)


def _distinct_words(lowered: str) -> set[str]:
    """All runs of three or more letters, and the shorter ones that can tell."""
    if not lowered.isascii():
        return {*_LONG.findall(lowered), *_TINY.findall(lowered)}
    runs = set(words_of(lowered.translate(_SIGNS_BLANKED)))  # several times faster than an expression
    return {run for run in runs if len(run) >= _LONG_CHARS}.union(_TINY.findall(lowered))


def _tokens(text: str, lowered: str, telling: list[str]) -> Iterator[tuple[int, int, str]]:
    """The identifiers that contain one of these words, with their places."""
    if len(telling) > _TELLING_MOST:
        for match in _TOKEN.finditer(text):
            yield *match.span(), match[0]
        return
    done = 0
    for hit, hit_end in _hits(lowered, telling):
        if hit < done:
            continue
        before = _IDENTIFIER_BEFORE.search(text, max(done, hit - _NAME_CHARS), hit)
        start = before.start() if before else hit
        for match in _TOKEN.finditer(text, start, hit_end + _NAME_CHARS):
            if match.end() > hit:
                done = match.end()
                if match.start() <= hit:
                    yield *match.span(), match[0]
                break


def _hits(lowered: str, telling: list[str]) -> Iterator[tuple[int, int]]:
    """The places of these words from left to right, without overlaps: the longest word at a place counts."""
    found: list[tuple[int, int]] = []
    for word in telling:
        at = lowered.find(word)
        while at >= 0 and len(found) < _HITS_MOST:
            found.append((at, -len(word)))
            at = lowered.find(word, at + 1)
    if len(found) == _HITS_MOST:
        ends = (word[-_NAME_CHARS:] for word in telling)  # of a longer run only its end is a name
        for match in re.compile(alternation(ends)).finditer(lowered):
            yield match.span()
        return
    done = 0
    for start, negated in sorted(found):
        if start >= done:
            done = start - negated
            yield start, done


def _in_other_scripts(text: str) -> Iterator[Name]:
    """Stems of scripts that write marks beside letters or have no blanks, anywhere in the text."""
    for match in _WIDE.finditer(text):
        end = match.end()
        tail = _WIDE_TAIL.match(text, end)
        yield Name(
            match.start(),
            tail.end() if tail else end,
            Promise.CHOSEN if match[0] in _ALL_CHOSEN else Promise.DRAWN,
        )


def lower(text: str) -> str:
    """The text in lower case, with its length unchanged."""
    lowered = text.lower()
    if len(lowered) != len(text):  # one letter becomes longer in lower case
        # Only a sigma depends on what stands beside it.
        lowered = _LONGER.join(part.replace("\u03a3", "\u03c3").lower() for part in text.split(_LONGER))
    return lowered


def _by_word_before(lowered: str, start: int) -> Promise:
    before = re.findall(r"[a-z0-9]+", lowered[max(0, start - 16) : start])
    close = lowered[max(0, start - 1) : start] in {" ", "-", "_"}
    if close and before:
        if before[-1] in words.NEVER:
            return Promise.NONE
        if before[-1] in words.QUALIFIES_KEY:
            return Promise.DRAWN
    return Promise.FAINT


@lru_cache(maxsize=16_384)
def _may_tell(word: str) -> bool:
    return word in _EXACT or word.endswith("auth") or _MAYBE.within(word[-_WORD_CHARS:])


@lru_cache(maxsize=16_384)
def promised(name: str) -> Promise:  # noqa: C901
    """The promise of a name of one or several words."""
    if name.isascii() and not _IN_NAMES.within(name.lower().translate(_WITHOUT_SIGNS)):
        return Promise.NONE
    segments = segments_of(name)
    if not segments:
        return Promise.NONE
    last = segments[-1]
    if segments[-2:] == ["secret", "id"] or segments == ["secretid"]:  # half of a login, and the secret one
        return Promise.DRAWN
    if "".join(segments) in words.NEVER:
        return Promise.NONE
    if segments[-1] == "hash" and _of_segment("".join(segments[:-1])) is Promise.CHOSEN:
        return Promise.DRAWN
    if segments[0] == "hashed" and _of_segment("".join(segments[1:])) is Promise.CHOSEN:
        return Promise.DRAWN
    if any(segment in words.NEVER for segment in segments) or (len(segments) > 1 and last in words.NOT_LAST):
        return Promise.NONE
    found = max(map(_of_segment, segments))
    if found is Promise.FAINT and segments[0] in {"gpg", "pgp"}:  # named by its fingerprint
        return found
    joined = "".join(segments)
    if found < Promise.CHOSEN and len(segments) > 1:
        found = max(found, _of_segment(joined))
    if found is Promise.FAINT:  # a key of something
        if any(segment in words.FAINT for segment in segments):
            return Promise.FAINT
        if len(segments) > 1:
            return Promise.DRAWN
    if found is Promise.DRAWN and (last in words.SHOWN or (len(segments) == 1 and last in _FAINT_ALONE)):
        return Promise.FAINT
    return found


_HAS_PASS = words.QUALIFIES_KEY | words.HAS_PASS
_FAINT_ALONE = {*words.DRAWN_WHOLE} - {
    "authorization",
    "creds",
    "cred",
    "community",
    "totp",
    "otp",
    "cookie",
    "cookies",
}


def segments_of(name: str) -> list[str]:
    """The words that a name consists of, in lower case."""
    if name.isupper() or name.islower():
        return [segment.lower() for segment in re.findall(r"[^\W\d_]+", name)]
    return [segment.lower() for segment in _SEGMENTS.findall(name)]


@lru_cache(maxsize=16_384)
def _of_segment(word: str) -> Promise:
    word = word[-_WORD_CHARS:]
    if word in _CHOSEN_WHOLE:
        return Promise.CHOSEN
    if word in _DRAWN_WHOLE:
        return Promise.DRAWN
    if word in _WEAK:
        return Promise.FAINT
    if _IN_CHOSEN.within(word):
        return Promise.CHOSEN
    if word.endswith(("secret", "secrets", "passwd", "pwd")) and word not in words.NEVER:
        return Promise.CHOSEN
    if word.endswith("pass") and word.removesuffix("pass") in _HAS_PASS:  # "Buypass" is a name
        return Promise.CHOSEN
    if _IN_DRAWN.within(word):
        return Promise.DRAWN
    if word.endswith("auth"):
        return Promise.DRAWN if word.removesuffix("auth") in words.QUALIFIES_KEY | {"aspx"} else Promise.NONE
    if word.endswith(("key", "keys")):
        head = word.removesuffix("s").removesuffix("key")
        return Promise.DRAWN if head in words.QUALIFIES_KEY else Promise.NONE
    return Promise.NONE
