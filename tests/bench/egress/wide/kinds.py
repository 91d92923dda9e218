"""Every kind of secret of the wide corpus, by class: the forms in the TOML files beside this, and the makers.

What is in a file is written from the formats as they are seen in the wild, and not from the filter's rules.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from bench.egress.wide.checked import CHECKED
from bench.egress.wide.key_files import KEY_FILES
from bench.egress.wide.making import Rng, WideSecret, fill, split

#: One filled form of a kind, the core between its two signs, and whether the core tells by itself.
Make = Callable[[Rng], tuple[str, bool]]
PLACES = (
    "keyvalue",
    "tables",
    "languages",
    "chat",
    "commands",
    "network",
    "containers",
    "hashes",
    "signed",
    "cloud",
    "passphrases",
    "wallets",
    "codes",
    "databases",
)
GROUPS = ("providers", *PLACES)
#: Cores of these classes are of a form that no place needs to explain, except for the kinds named.
SPEAKING = {
    "hashes": {"crypt-des", "htdigest", "ntlm-pwdump", "ntlm-labelled", "kerberos-keys", "sha-labelled"}
    | {"net-ntlmv2", "mscache", "mongodb-scram", "hashcat-pot", "ethereum-keystore"},
}


def secrets(rng: Rng, groups: Sequence[str] = GROUPS) -> Iterator[WideSecret]:
    """One of every kind of these classes, different for every state of ``rng``."""
    for group in groups:
        for kind, make in kinds(group).items():
            filled, marked = make(rng)
            text, core = split(filled)
            yield WideSecret(kind=kind, group=group, text=text.strip("\n"), core=core, marked=marked)


@cache
def kinds(group: str) -> dict[str, Make]:
    if group == "providers":
        return _providers()
    speaking = group in SPEAKING
    found: dict[str, Make] = {
        kind: partial(_of_forms, forms=forms, marked=speaking and kind not in SPEAKING[group])
        for kind, forms in _read(group).items()
    }
    return found | (KEY_FILES if group == "containers" else CHECKED if group == "wallets" else {})


def _providers() -> dict[str, Make]:
    tokens, shown = _read("providers"), _read("shown_tokens")
    found: dict[str, Make] = {}
    for kind, (name, form) in tokens["marked"].items():
        layouts = [*shown["named"], *shown["bare"]]
        found[kind] = partial(_token, name=name, form=form, layouts=layouts, marked=True)
    for kind, (name, form) in tokens["named"].items():
        found[kind] = partial(_token, name=name, form=form, layouts=shown["named"], marked=False)
    return found


def _token(rng: Rng, name: str, form: str, layouts: list[str], marked: bool) -> tuple[str, bool]:
    layout = fill(rng, rng.choice(layouts))
    before, after = layout.split("TOKEN", 1)  # first, for names end in this word too
    token = f"\u00ab{fill(rng, form)}\u00bb"
    named = [part.replace("NAME", name).replace("name", name.lower()) for part in (before, after)]
    return token.join(named), marked


def _of_forms(rng: Rng, forms: list[str], marked: bool) -> tuple[str, bool]:
    return fill(rng, rng.choice(forms)), marked


@cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text())
