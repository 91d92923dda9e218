"""Every disguise of the wide corpus, the known ones included, and the judge of what survived in each."""

from __future__ import annotations

from bench.egress.disguises import WAYS, Write, survives_undone
from bench.egress.wide.codecs_undone import UNDONE
from bench.egress.wide.codecs_written import WRITTEN

#: Those that only put line breaks or other text between, beside those that write each character otherwise.
WRAPPED = (
    "line numbers",
    "noise lines",
    "labelled parts",
    "base64 under labels",
    "concatenated",
    "columns",
    "soft hyphens",
    "indexed characters",
    "one per line",
    "one per space",
    "lines of a few",
    "spaced every few",
    "dashes between",
    "in prose",
    "base64 in prose",
    "hex in prose",
)
WRITERS: dict[str, Write] = {name: write for name, (write, _) in WAYS.items() if name != "plain"} | WRITTEN


def survives(way: str, written: str, core: str, left: str) -> bool:
    """As in disguises.py, for every way."""
    if left == written:
        return True
    undo = WAYS[way][1] if way in WAYS else lambda text: UNDONE[way](text, written)
    return survives_undone(undo, core, left, drop="-" if way == "dashes between" else "")
