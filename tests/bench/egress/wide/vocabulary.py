"""Words that the wide corpus is made of, read from words.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

_LISTS = tomllib.loads((Path(__file__).parent / "words.toml").read_text())
COMMON: list[str] = _LISTS["common"].split()
FIRST_NAMES: list[str] = _LISTS["first_names"].split()
USERS: list[str] = _LISTS["users"].split()
HOSTS: list[str] = _LISTS["hosts"].split()
#: Some of the 2,048 words of BIP-39; the checksum of a phrase, which needs all of them, is left to chance.
WALLET_WORDS: list[str] = _LISTS["wallet"].split()
