"""Finds secrets in sentences: "the password for the staging box is …", "log in with … as password", in any
language.

Words stand between the name and the value, so the value must be different from normal words.
"""

# ruff: noqa: E501, RUF001

from __future__ import annotations

import re
from collections.abc import Iterator

from cellblock.egress.places.assessment import Setting
from cellblock.egress.places.lexicon import Name, Promise
from cellblock.egress.places.place import Place

_REACH_CHARS, _WORDS_MOST = 110, 12
_WORD = re.compile(r"[^\s，。、；]+")
#: Words between a name and its value, in many languages.
_IS = frozenset(
    [
        "is",
        "was",
        "are",
        "be",
        "being",
        "=",
        ":",
        "-",
        "–",
        "—",
        "→",
        "->",
        "to",
        "ist",
        "lautet",
        "lauten",
        "war",
        "sei",
        "est",
        "était",
        "es",
        "era",
        "sera",
        "será",
        "é",
        "è",
        "jest",
        "brzmi",
        "je",
        "bude",
        "on",
        "oli",
        "er",
        "var",
        "är",
        "este",
        "e",
        "είναι",
        "είναι",
        "είναι",
        "это",
        "есть",
        "стал",
        "є",
        "це",
        "е",
        "הוא",
        "היא",
        "هو",
        "هي",
        "است",
        "है",
        "は",
        "が",
        "を",
        "는",
        "은",
        "이",
        "가",
        "是",
        "为",
        "為",
        "như",
        "là",
        "adalah",
        "ialah",
        "olarak",
        "şu",
        "currently",
        "changed",
        "set",
        "reads",
        "equals",
        "with",
        "als",
        "как",
        "como",
        "comme",
    ]
)
_OPENING, _CLOSING = "\"'`*“‘„«「(<[|_~", "\"'`*”’“»」)>]|_~,.;:!?。，"
_QUOTED = re.compile(r"[\"`“„«「']([^\"`”“»」'\n]{5,200})[\"`”“»」']|\*\*([^*\n]{5,200})\*\*")
_BEFORE = re.compile(
    r"(?P<value>[^\s\"'`]{6,200})[\"'`*]{0,2}[ ,]{1,3}(?:\(?(?:is|as|for|are|was|ist|als|est|comme|es|como|é|is now|=|—|-)[ ]){1,2}"
    r"(?:[^\W\d_]{1,12}[ ]){0,4}\Z"
)
#: Signs of structured text: a sentence does not continue across them.
_STRUCTURE = re.compile(r"[\"'\]})]{1,2}[:,=]|[={}\[\]<>]{2}|^[={}\[\]<>]$|\w=[\w\"']|^[\"'{\[(]{2}")
#: A sentence that ends in a colon, and the value on the next line.
_BELOW = re.compile(
    r"[^\n]{0,160}:[ \t]{0,4}\r?\n(?:[ \t]{0,8}\r?\n)?[ \t>]{0,24}(?P<value>[^\s:]{6,200})[ \t]{0,8}(?:\r?\n|\Z)"
)
#: Those of them that a word never has, whether it is a secret or not.
_JOINT = re.compile(r"[\"'\]})]{1,2}[:,=]\S|[={}\[\]<>]{2}|^[={}\[\]<>]$|^[\"'{\[(]{2}")
#: A question, and the answer on the next line.
_ANSWERED = re.compile(
    r"[^\n?]{0,40}\?[ \t]{0,4}\r?\n[ \t]{0,8}(?:[<\[(]?[\w .-]{1,24}[>\]):]{1,2}[ \t]{1,4})?(?P<value>\S{6,100})[ \t]{0,4}(?:\r?\n|\Z)"
)
#: A colon further on in the line, with a single word after it.
_PROMPTED = re.compile(r"[^\n,{}]{1,80}?[\"')\w]:[ \t](?P<value>[^\s\"'][^\s]{5,199})[ \t]{0,4}(?:\r?\n|\Z)")
#: ``admin / Passw0rd!`` after a word for both.
_CREDENTIALS = re.compile(
    r"[ \t]{0,4}[:=–-]?\s{0,4}[(\[]?[\"'`]?[\w.@+-]{2,64}[\"'`]?(?:[ ]?[/:|,][ ]?|[ ]{1,4})[\"'`]?(?P<value>[^\s\"'`,)]{6,100})"
)
_BOTH = ("cred", "login", "zugang", "identifiant", "inlog", "anmelde", "logowania", "přihlašovací")


def said(text: str, name: Name) -> Iterator[Place]:
    """Values that follow a name in a sentence, or stand before it."""
    if name.promise < Promise.DRAWN:
        return
    for form, setting in ((_BELOW, Setting.BARE), (_ANSWERED, Setting.SPACED), (_PROMPTED, Setting.SPACED)):
        if match := form.match(text, name.end):
            yield Place(*match.span("value"), name.promise, setting)
    if text[name.start : name.end].lower() == "pass":  # in sentences it is a verb
        return
    yield from _in_sentence(text, name)


def _in_sentence(text: str, name: Name) -> Iterator[Place]:
    line_end = text.find("\n", name.end, name.end + _REACH_CHARS)
    line_end = min(len(text), name.end + _REACH_CHARS) if line_end < 0 else line_end
    told = text[name.end : name.end + 1] not in {" ", "\n", ""} and text[name.end - 1 : name.end] > "\u0e00"
    for number, word in enumerate(_WORD.finditer(text, name.end, line_end)):
        signed = not word[0].isalnum()  # only then can it have signs of structure or quotation marks
        if number > _WORDS_MOST or (signed and (_JOINT if told else _STRUCTURE).search(word[0])):
            break
        bare = word[0].strip(_OPENING + _CLOSING) if signed else word[0]
        if word[0].lower().strip(",") in _IS or (
            word[0].endswith((":", "：")) and number < 8 and bare.isalpha()
        ):
            told = True
            quoted = _QUOTED.search(text, word.end(), min(line_end, word.end() + 6))
            quoted = quoted or _QUOTED.match(text, word.end() + 1, min(len(text), line_end + 1))
            if quoted:
                group = 1 if quoted[1] else 2
                yield Place(*quoted.span(group), name.promise, Setting.QUOTED)
                return
            continue
        if not told and word[0].endswith((".", ";", "!", "?")) and bare.isalpha():
            break
        if len(bare) < 6 or (number == 0 and not told):
            continue
        start = word.start() + len(word[0]) - len(word[0].lstrip(_OPENING))
        kept = text[start : word.end()].rstrip("\"'`*”’“»」)>]|_~,.;:。，")
        yield Place(start, start + len(kept), name.promise, Setting.SPACED if told else Setting.PROSE)
    blank = text[name.start - 1 : name.start] == " "  # what stands before ends in a blank
    before = _BEFORE.search(text, max(0, name.start - 80), name.start) if blank else None
    if before:
        kept = before["value"].lstrip(_OPENING).rstrip(_CLOSING)
        start = before.start("value") + before["value"].find(kept) if kept else before.start("value")
        yield Place(start, start + len(kept), name.promise, Setting.PROSE)
    if text[name.start : name.end].lower().startswith(_BOTH) and (both := _CREDENTIALS.match(text, name.end)):
        yield Place(*both.span("value"), Promise.CHOSEN, Setting.SPACED)
