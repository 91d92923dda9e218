"""Compares what a program printed with the answer: here, where no program can reach the decision."""

from __future__ import annotations

import math
import re

from cellblock.contract.evaluations import StdioCheck

#: Numbers as programs print them. ``float()`` takes more: underscores and words. Each part can be read in one
#: way only, so that matching takes no longer than the length of the word.
_NUMBER = re.compile(rb"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(rb"[+-]?\d+", re.ASCII)
_WORD = re.compile(rb"\S+")
#: A longer word is not taken as a number: it is compared letter for letter.
_NUMBER_BYTES = 400
_SHOWN_BYTES = 120


def difference(check: StdioCheck, expected: str, printed: bytes) -> str | None:
    """What is wrong with the output; None if it is right.

    ``exact``: byte for byte. ``whitespace``: the same words, with any blanks and lines between them.
    ``float``: the same words, but two numbers may differ by ``tolerance``, absolute or relative to the
    expected one; two integers must be equal.
    """
    wanted = expected.encode()
    if check.compare == "exact":
        return None if printed == wanted else _shown(wanted, printed)
    tolerance = check.tolerance if check.compare == "float" else None
    answers = (found[0] for found in _WORD.finditer(printed))  # one at a time: a program prints many
    for number, found in enumerate(_WORD.finditer(wanted), start=1):
        word, answer = found[0], next(answers, None)
        if answer is None:
            return f"printed {number - 1} words, and more are expected"
        if word != answer and (tolerance is None or not _close(word, answer, tolerance)):
            return f"word {number}: {_shown(word, answer)}"
    more = next(answers, None)
    return None if more is None else f"printed {_cut(more)} after all that is expected"


def _close(word: bytes, answer: bytes, tolerance: float) -> bool:
    if max(len(word), len(answer)) > _NUMBER_BYTES:
        return False
    if _INTEGER.fullmatch(word) and _INTEGER.fullmatch(answer):
        return int(word) == int(answer)
    if not (_NUMBER.fullmatch(word) and _NUMBER.fullmatch(answer)):
        return False
    one, other = float(word), float(answer)
    if not (math.isfinite(one) and math.isfinite(other)):
        return False  # too large to be compared except letter for letter
    return abs(one - other) <= max(tolerance, tolerance * abs(one))


def _shown(wanted: bytes, printed: bytes) -> str:
    return f"expected {_cut(wanted)}, printed {_cut(printed)}"


def _cut(text: bytes) -> str:
    shown = text[:_SHOWN_BYTES].decode("utf-8", "replace")
    return repr(shown) + (f" and {len(text) - _SHOWN_BYTES} bytes more" if len(text) > _SHOWN_BYTES else "")
