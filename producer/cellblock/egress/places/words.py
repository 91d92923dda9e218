"""The words of words.toml: words of names that promise a secret, and words that show there is no secret."""

from __future__ import annotations

import tomllib
from importlib.resources import files

_HELD: dict[str, str] = tomllib.loads(
    files("cellblock.egress.places").joinpath("words.toml").read_text(encoding="utf-8")
)
#: In the order of the file, because longer words are searched first.
CHOSEN, DRAWN = _HELD["chosen"].split(), _HELD["drawn"].split()
CHOSEN_WHOLE, DRAWN_WHOLE = _HELD["chosen_whole"].split(), _HELD["drawn_whole"].split()
QUALIFIES_KEY = frozenset(_HELD["qualifies_key"].split())
NEVER = frozenset(_HELD["never"].split())
NOT_LAST = frozenset(_HELD["not_last"].split())
HAS_PASS = frozenset(_HELD["has_pass"].split())
SHOWN = frozenset(_HELD["shown"].split())
FAINT = frozenset(_HELD["faint"].split())
