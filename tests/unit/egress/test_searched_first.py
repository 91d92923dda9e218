"""What is searched before an expression or a decoder skips nothing that they would find.

Each search below is replaced by one that lets everything through: then every text has the same readings and
the same findings as before. An example shows that the search is used: with one that lets nothing through,
the example is read otherwise.
"""

from __future__ import annotations

import base64
import gzip
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import pytest

from bench.egress.wide.disguises import WRITERS
from bench.egress.wide.kinds import secrets as wide_secrets
from cellblock.egress import bases, cleanings, encodings, layouts, readable, secrets, views
from cellblock.egress.alternation import Stems, alternation
from cellblock.egress.literals import LiteralSearch
from cellblock.egress.places import calls, codes, containers, lexicon, lines, tables
from cellblock.egress.places.lexicon import lower
from cellblock.egress.rules import RULES
from cellblock.egress.values import seeds

EVERYWHERE, NOWHERE = re.compile(""), re.compile("(?!)")
IN_BYTES, NOT_IN_BYTES = re.compile(b""), re.compile(b"(?!)")
WHOLE, WHOLE_BYTES = re.compile("(?s).+"), re.compile(b"(?s).+")
SECRET = "password: hunter2-Zebra"
HEX = SECRET.encode().hex()
PHRASE = "legal winner thank year wave sausage worth useful legal winner thank yellow"
MORE = "\u00e4\u00f6\u00fc \U0001f511 \u0130stanbul \u017fecret"


@dataclass(frozen=True)
class Within:
    """In the place of stems or literals that are searched in a text."""

    within: Callable[[str], Any]


@dataclass(frozen=True)
class Search:
    """A search of a module, the ones that let everything and nothing through, and what needs it."""

    module: ModuleType
    name: str
    all: Any
    none: Any
    example: str


def _finds(pattern: re.Pattern[str]) -> Callable[[str], Iterator[re.Match[str]]]:
    return pattern.finditer


def _none(*_: Any) -> Iterator[Any]:
    return iter(())


LITERALS = {rule.literal for rule in RULES}
SEARCHES = [
    Search(encodings, "_HEX_SIGNS", WHOLE, NOWHERE, HEX),
    Search(encodings, "_may_be_text", lambda _: True, lambda _: False, HEX),
    Search(encodings, "_NUMBER_SIGNS", WHOLE, NOWHERE, " ".join(map(str, SECRET.encode()))),
    Search(encodings, "_NO_WORD", EVERYWHERE, NOWHERE, base64.b32encode(SECRET.encode()).decode()),
    Search(
        encodings,
        "_BASE85_SIGNS",
        [(WHOLE, base64.b85decode), (WHOLE, base64.a85decode)],
        [],
        base64.b85encode(SECRET.encode()).decode(),
    ),
    Search(readable, "_IN_UTF8", IN_BYTES, NOT_IN_BYTES, "\u0447\u0442\u043e".encode().hex() * 3),
    Search(readable, "_PACKED_FIRST", bytes(range(256)), b"", gzip.compress(SECRET.encode()).hex()),
    Search(bases, "_DIGIT", EVERYWHERE, NOWHERE, str(int.from_bytes(SECRET.encode(), "big"))),
    Search(bases, "_LETTERS_LEAST", EVERYWHERE, NOWHERE, str(int.from_bytes(SECRET.encode(), "big"))),
    Search(bases, "_SIGNED_LEAST", EVERYWHERE, NOWHERE, WRITERS["z85"](SECRET, random.Random(1))),
    Search(bases, "_digit_runs", _finds(bases._RUN), _none, str(int.from_bytes(SECRET.encode(), "big"))),
    Search(cleanings, "_PARTED", WHOLE_BYTES, NOT_IN_BYTES, " ".join(SECRET)),
    Search(cleanings, "_SHOWN", b"", bytes(range(256)), "pass\x01word: hunter2-Zebra"),
    Search(layouts, "_may_have", lambda *_: True, lambda *_: False, SECRET[::-1].replace(" ", "\n")),
    Search(
        secrets,
        "_LITERALS",
        Within(lambda text: {one for one in LITERALS if one in text}),
        Within(lambda _: set()),
        "ghp_" + "aB3dE6gH9j" * 4,
    ),
    Search(secrets, "_CHECKED", EVERYWHERE, NOWHERE, "5HueCGU8rMjxEXxiPuD5BDku4MkFqeZyd4dZ1jvhTVqvbTLvyTJ"),
    Search(lexicon, "_IN_NAMES", Within(lambda _: True), Within(lambda _: False), SECRET),
    Search(calls, "_calls", _finds(calls._CALL), _none, "connect(host, 'admin', 'hunter2-Zebra')"),
    Search(containers, "_FIELD_BYTES", EVERYWHERE, NOWHERE, "priv:\n    " + ":".join(re.findall("..", HEX))),
    Search(
        containers,
        "_LIST_SIGNS",
        WHOLE,
        NOWHERE,
        "key = [" + ", ".join(map(str, random.Random(1).randbytes(32))) + "]",
    ),
    Search(seeds, "_runs", _finds(seeds._RUN), _none, PHRASE),
    Search(lines, "_addresses", _finds(lines._ADDRESS), _none, "see ftp://ann:hunter2@host.org/x"),
    Search(codes, "_names", _finds(codes._NAME), _none, "Your verification code is 482913\n"),
    Search(lines, "_FLAG", EVERYWHERE, NOWHERE, "sshpass -p sword7fish ssh root@host"),
    Search(
        tables,
        "_JSON_HEADS",
        EVERYWHERE,
        NOWHERE,
        '{"columns": ["user", "password"], "rows": [["ann", "hunter2-Zebra"]]}',
    ),
]


@cache
def _texts() -> list[str]:
    rng = random.Random(20261129)
    made = rng.sample(list(wide_secrets(rng)), 16)
    written = [rng.choice(list(WRITERS.values()))(one.text[:200], rng) for one in made]
    glued = ["".join(rng.choices("aB3_-. :/=\n'\"(,\u00e9", k=120)) + text[:80] for text in written[:6]]
    return [
        *(search.example for search in SEARCHES),
        *written,
        *glued,
        *(f"{MORE} {text}" for text in glued[:2]),
    ]


def _read(text: str) -> object:
    return [(view.how, view.text) for view in views.views(text)], secrets.find(text)


@cache
def _before(text: str) -> object:
    return _read(text)


def _replace(monkeypatch: pytest.MonkeyPatch, search: Search, by: object) -> None:
    monkeypatch.setattr(search.module, search.name, by)
    lexicon.promised.cache_clear()


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    lexicon.promised.cache_clear()


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.name)
def test_a_search_skips_nothing(monkeypatch: pytest.MonkeyPatch, search: Search) -> None:
    before = [_before(text) for text in _texts()]
    _replace(monkeypatch, search, search.all)
    for text, found in zip(_texts(), before, strict=True):
        assert _read(text) == found, text


@pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.name)
def test_its_example_needs_it(monkeypatch: pytest.MonkeyPatch, search: Search) -> None:
    before = _before(search.example)
    _replace(monkeypatch, search, search.none)
    assert _read(search.example) != before


WORDS = ["key", "keys", "keyring", "token", "to", "a", "pass", "passwd", "p.w", "\u043a\u043b\u044e\u0447"]


def test_one_expression_for_many_words_finds_the_longest_of_them() -> None:
    listed = re.compile("|".join(map(re.escape, sorted(WORDS, key=len, reverse=True))))
    rng = random.Random(1)
    for _ in range(300):
        text = "".join(rng.choices([*WORDS, " ", "k", "e"], k=8))
        assert re.findall(alternation(WORDS), text) == listed.findall(text)
        assert Stems(WORDS).within(text) is (listed.search(text) is not None)


def test_literals_are_found_wherever_they_are() -> None:
    search, rng = LiteralSearch(LITERALS), random.Random(2)
    for literal in LITERALS:
        others = rng.sample(sorted(LITERALS), 2)
        text = rng.choice(("{}", "x{}", "{} y", "\n{}_")).format(literal) + "".join(others)
        assert search.within(text) == {one for one in LITERALS if one in text}


def test_words_are_found_with_or_without_compiling_an_expression(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["keykey token-key passwd_keys", "tokey to keyring key.pass", "akeyring passwds"]
    hits = [list(lexicon._hits(text, WORDS)) for text in texts]
    monkeypatch.setattr(lexicon, "_HITS_MOST", 0)
    assert hits == [list(lexicon._hits(text, WORDS)) for text in texts]


def test_text_in_lower_case_keeps_its_length_and_each_letter_stands_alone() -> None:
    rng = random.Random(3)
    assert [code for code in range(0x110000) if len(chr(code).lower()) != 1] == [0x130]
    for _ in range(500):
        text = "".join(rng.choices("A\u03a3\u0130\u00df k\u212a.'", k=9)) + "\u0130"
        assert lower(text) == "".join(low if len(low := char.lower()) == 1 else char for char in text)
