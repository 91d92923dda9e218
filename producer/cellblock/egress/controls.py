"""Removes characters that control a terminal, a reader's eye or a model instead of being read.

Stops output from moving the cursor, recolouring or renaming a terminal, reversing the visible order of text
(bidirectional overrides) and carrying invisible text (tag characters, runs of variation selectors). A picture
or an escape stands in place of each removed character, so that output stays readable and nothing is hidden.
"""

from __future__ import annotations

import re

KIND = "control"

#: Colours and weights (ESC [ … m) only change how text looks: they are removed without a sign.
_CONTROL = re.compile(
    r"\x1b\[[0-9;:]{0,64}m|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\u206a-\u206f"
    r"\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]|[\ufe00-\ufe0f]{2,}|\r(?!\n)"
)


def clean(text: str) -> tuple[str, int]:
    """The text without such characters, and their number. Line ends and tabs stay."""
    if text.isascii() and text.isprintable():
        return text, 0
    return _CONTROL.subn(_shown, text)


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
        if code in {0x200B, 0x2060, 0xFEFF} or 0xFE00 <= code <= 0xFE0F
        else f"\\u{code:04x}"
        if code <= 0xFFFF
        else f"\\U{code:08x}"
    )
