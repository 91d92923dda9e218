"""Is what a program printed the answer? Decided here, out of the reach of any program."""

from __future__ import annotations

import math
import re

from cellblock.trials import StdioCheck

#: Numbers as programs print them. Not all that ``float()`` takes: no underscores, no words.
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SHOWN_BYTES = 120


def difference(check: StdioCheck, expected: str, printed: bytes) -> str | None:
    """What is wrong with it; None where it is right.

    ``exact``: byte for byte. ``whitespace``: the same words, whatever blanks and lines there are between
    them. ``float``: the same, and words that are numbers on both sides may differ by ``tolerance``, absolute
    or relative to the expected one.
    """
    wanted = expected.encode()
    if check.compare == "exact":
        return None if printed == wanted else _shown(wanted, printed)
    words, answers = wanted.split(), printed.split()
    tolerance = check.tolerance if check.compare == "float" else None
    for number, (word, answer) in enumerate(zip(words, answers, strict=False), start=1):
        if word != answer and (tolerance is None or not _close(word, answer, tolerance)):
            return f"word {number}: {_shown(word, answer)}"
    if len(words) != len(answers):
        return f"expected {len(words)} words, printed {len(answers)}"
    return None


def _close(word: bytes, answer: bytes, tolerance: float) -> bool:
    if not (_NUMBER.fullmatch(word) and _NUMBER.fullmatch(answer)):
        return False
    one, other = float(word), float(answer)
    if not (math.isfinite(one) and math.isfinite(other)):
        return False  # too large to be compared but letter for letter
    return abs(one - other) <= max(tolerance, tolerance * abs(one))


def _shown(wanted: bytes, printed: bytes) -> str:
    return f"expected {_cut(wanted)}, printed {_cut(printed)}"


def _cut(text: bytes) -> str:
    shown = text[:_SHOWN_BYTES].decode("utf-8", "replace")
    return repr(shown) + (f" and {len(text) - _SHOWN_BYTES} bytes more" if len(text) > _SHOWN_BYTES else "")
