"""The words of words.toml: words that values consist of."""

from __future__ import annotations

import tomllib
from importlib.resources import files

_HELD: dict[str, str] = tomllib.loads(
    files("cellblock.egress.values").joinpath("words.toml").read_text(encoding="utf-8")
)
SENTENCES = frozenset(_HELD["sentences"].split())
CONFIGURATION = frozenset(_HELD["configuration"].split())
TOKENS = frozenset(_HELD["tokens"].split())
IDENTIFIERS = frozenset(_HELD["identifiers"].split())
