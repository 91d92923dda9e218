"""Removes characters that control a terminal, a reader's eye or a model instead of being read.

Stops output from moving the cursor, recolouring or renaming a terminal, reversing the visible order of text
(bidirectional overrides and isolates) and carrying invisible text (tag characters, runs of variation
selectors or of marks without width). A picture or an escape stands in place of each removed character, so
that output stays readable and nothing is hidden.

Marks of direction and without width that stand alone are part of honest text, as in Hebrew and Arabic, and
so are the tags of a flag: they stay. A secret that they divide is found in a reading without them
(cleanings.py).
"""

from __future__ import annotations

import re

KIND = "control"

#: Colours and weights (ESC [ … m) only change how text looks: they are removed without a sign.
_CONTROL = re.compile(
    r"(?P<flag>\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f)|\x1b\[[0-9;:]{0,64}m|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2061-\u206f"
    r"\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]|[\ufe00-\ufe0f]{2,}|[\u061c\u200b\u200e\u200f\u2060\ufeff]{8,}|\r(?!\n)"
)

_WITHOUT_WIDTH = frozenset({0x061C, 0x200B, 0x200E, 0x200F, 0x2060, 0xFEFF})


def clean(text: str) -> tuple[str, int]:
    """The text without such characters, and their number. Line ends and tabs stay."""
    if text.isascii() and text.isprintable():
        return text, 0
    count = 0

    def shown(match: re.Match[str]) -> str:
        nonlocal count
        if match["flag"]:
            return match[0]
        count += 1
        return _shown(match)

    return _CONTROL.sub(shown, text), count


def _shown(match: re.Match[str]) -> str:
    found = match[0]
    if len(found) > 1 and found[0] == "\x1b":
        return ""
    if found == "\r":  # a progress bar: show its states one after the other
        return "\n"
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return (
        ""
        if code in _WITHOUT_WIDTH or 0xFE00 <= code <= 0xFE0F
        else f"\\u{code:04x}"
        if code <= 0xFFFF
        else f"\\U{code:08x}"
    )
