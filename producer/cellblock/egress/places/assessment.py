"""Decides whether a value is a secret, given its place: a place that promises more allows a weaker value.

In the same way, a value that cannot be anything else needs no promise (rules.py).
"""

from __future__ import annotations

import re
from enum import IntEnum

from cellblock.egress.places.lexicon import Promise, promised
from cellblock.egress.values import forms, words
from cellblock.egress.values.scorer import score


class Setting(IntEnum):
    """How well the borders of a value are known, the least known first."""

    PROSE = 0  #: words stand between the name and the value
    SPACED = 1  #: a blank stands between the name and the value
    BARE = 2  #: after a sign, up to a blank
    LINE = 3  #: after a sign, up to the end of its line
    CELL = 4  #: in a cell of a table
    QUOTED = 5


_JUDGED_CHARS = 256
_LEAST_CHARS = 5
#: The signs that people put between a word and a year where a password needs one.
_PEOPLES_SIGNS = re.compile(r"[!@#$%^&*~?+=_.-]")
_STRONG_SIGNS = re.compile(r"[!@#$%^&*~?]")
_PASSPHRASE = re.compile(
    r"(?:[^\W\d_]{2,12}\d{0,4}(?P<sep>[ ._+,:/-]|, )){1,11}(?:[^\W\d_]{2,12}\d{0,4}|\d{1,4})[!?.]?"
)
#: ``Copper.Marble93``: capitals where names have none.
_TITLED = re.compile(r"[A-Z][a-z]+[._-][A-Z][a-z]+\d{1,4}\W?")
#: Groups of digits, the usual form of recovery keys.
_NUMBERED = re.compile(r"(?:\d{4,6}[ -]){3,11}\d{4,6}")
_CAMEL = re.compile(r"(?:[A-Z][a-z]{2,9}){3,8}\d{0,4}")
#: Beyond Cyrillic, a text without blanks is a sentence.
_SPELLED_MOST = "\u052f"
_SURE, _LIKELY, _DOUBTFUL = 6.0, 1.5, 0.0


def is_secret(value: str, promise: Promise, setting: Setting) -> bool:
    """Whether this value looks like a secret, given the promise and the borders of its place."""
    value = value.strip()[:_JUDGED_CHARS]
    if len(value) < _LEAST_CHARS or not promise or _is_nothing(value, setting):
        return False
    if promise is Promise.FAINT:
        return is_sure(value) or is_seed(value) or (setting is Setting.QUOTED and forms.is_bytes(value))
    if len(value) > 60 and _is_long_number(value):
        return True
    if setting >= Setting.BARE and (forms.is_bytes(value) or _is_long_number(value)):
        return True
    if is_drawn(value, setting) or is_seed(value):
        return True
    return promise is Promise.CHOSEN and is_chosen(value, setting)


def _is_nothing(value: str, setting: Setting) -> bool:
    if (
        not value.isprintable()
        or forms.is_placeholder(value)
        or forms.is_masked(value)
        or forms.is_digest(value)
    ):
        return True
    if setting < Setting.CELL and forms.is_code(value):
        return True
    if forms.is_something_else(value):
        return True
    return (
        forms.is_path(value)
        and score(value) < (0 if "/" in value or "\\" in value else 2.5)
        and not (
            setting >= Setting.BARE
            and (is_passphrase(value, setting) or _TITLED.fullmatch(value) is not None)
        )
    )


def is_sure(value: str) -> bool:
    """Whether it is so random that a name like "key" is enough. Digests and identifiers in hex are not."""
    if len(value) < 20 or forms.is_hex(value) or forms.is_something_else(value) or " " in value:
        return False
    classes = {*map(forms.char_class, value)}
    return {"l", "u", "d"} <= classes and forms.turns(value) * 4 >= len(value) and score(value) > _SURE


def is_seed(value: str) -> bool:
    """Whether these are twelve or more short words without a sentence: the seed phrase of a wallet."""
    found = value.replace(",", " ").split()
    if not 12 <= len(found) <= 33 or not all(word.isalpha() and 2 < len(word) < 10 for word in found):
        return False
    return not any(word in words.SENTENCES for word in found)


def _is_long_number(value: str) -> bool:
    """Whether this can be a private exponent or factor in decimal digits."""
    return len(value) >= 30 and value.isdigit() and len(set(value)) > 6


def is_drawn(value: str, setting: Setting) -> bool:
    """Whether this looks as if a program drew it at random."""
    if len(value) < 8 or any(map(str.isspace, value)):
        return False
    classes = {*map(forms.char_class, value)}
    if not classes & {"l", "u"}:
        return False
    if forms.is_hex(value):
        return setting > Setting.SPACED or (
            setting is Setting.SPACED and not value.isupper() and "-" not in value
        )
    surely = score(value)
    if "d" not in classes and len(value) < 14:
        both = {"l", "u"} <= classes and forms.turns(value) * 2 >= len(value)
        signed = both and "o" in classes and setting >= Setting.SPACED
        return len(value) >= 10 and surely > _LIKELY and (signed or (both and setting >= Setting.BARE))
    if setting <= Setting.SPACED:
        if setting is Setting.PROSE and (len(value) < 12 or "d" not in classes or not {"l", "u"} <= classes):
            return False
        return surely > _LIKELY + 1 and len(classes) > 1 and not forms.is_written(value)
    if surely > _LIKELY:
        return True
    drawn = len(value) >= 12 or setting >= Setting.CELL or len(classes) >= 3
    return (
        surely > _DOUBTFUL - 2
        and "d" in classes
        and len(classes) >= 2
        and drawn
        and forms.turns(value) >= 3
        and not forms.is_written(value)
    )


def is_chosen(value: str, setting: Setting) -> bool:
    """Whether this looks like a person's password: words and signs, or a phrase of plain words."""
    if is_passphrase(value, setting) or is_seed(value) or _NUMBERED.fullmatch(value):
        return True
    if any(map(str.isspace, value)) or max(value) > _SPELLED_MOST:
        return False
    letters, digits = any(map(str.isalpha, value)), any(map(str.isdigit, value))
    signs = _PEOPLES_SIGNS.search(value) is not None
    strong = _STRONG_SIGNS.search(value) is not None
    if not letters or len(value) < 6:
        return False
    if setting <= Setting.SPACED and _is_identifier(value):
        return False
    if setting is Setting.PROSE:
        return digits and strong and not value.isupper() and score(value) > -3
    if setting is Setting.SPACED:
        return (digits and (strong or (len({*map(forms.char_class, value)}) >= 3 and score(value) > -4))) or (
            digits and len(value) >= 7 and setting is Setting.SPACED and not signs and score(value) > -3
        )
    if digits and (strong or not _is_identifier(value)):
        return True
    return strong and not value.isupper() and value.strip("!?.,:;*&") != value.lower().strip("!?.,:;*&")


_IDENTIFIER = re.compile(
    r"[a-z]{2,}(?:[_.-][a-z]{2,}|[A-Z][a-z]+)*(?:[_.-]?\d{1,3})?|(?:[A-Z][a-z]+)+\d{0,2}|[A-Z][A-Z0-9_]+|[a-z][a-z0-9]*(?:_[a-z0-9]+)+"
)


def _is_identifier(value: str) -> bool:
    parted = any(sign in value for sign in "_-.")
    return _IDENTIFIER.fullmatch(value) is not None and score(value) < (0 if parted else -3.5)


def is_passphrase(value: str, setting: Setting) -> bool:  # noqa: C901
    """Whether these are several plain words that are neither a sentence nor an identifier."""
    if setting < Setting.LINE and " " in value:
        return False
    camel = _CAMEL.fullmatch(value) is not None
    if not camel and (_PASSPHRASE.fullmatch(value) is None or len(value) < 10):
        return False
    found = [word.lower() for word in re.findall(r"[A-Z][a-z]+" if camel else r"[^\W\d_]+", value)]
    if " " in value and not (value.isascii() and (value.islower() or value.istitle())):
        return False
    if "_" in value and value.isupper():
        return False
    if any(word in words.SENTENCES or word in words.CONFIGURATION or promised(word) for word in found):
        return False
    if camel:
        return len(found) >= 4 and not any(word in words.CONFIGURATION or promised(word) for word in found)
    separators = set(re.findall(r"[^\w]+|_", value.rstrip("!?.")))
    if len(separators) > 1:
        return False
    if len(found) < 3:
        return separators == {"-"} and setting in {Setting.BARE, Setting.QUOTED} and min(map(len, found)) > 3
    if "_" in separators and (len(found) < 4 or setting is not Setting.QUOTED):  # the form of identifiers
        return False
    if len(value) < 14 or (setting is Setting.SPACED and len(found) < 4):
        return False
    if separators & {".", ":", "/"} and len(found) < 4:
        return False
    return len(found) >= 4 or setting >= Setting.LINE or "-" in separators
