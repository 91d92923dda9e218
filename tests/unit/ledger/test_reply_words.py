"""The words that scripts return are those of their replies: a script's head says them all."""

from __future__ import annotations

import re
from typing import Any, get_type_hints

import pytest

from cellblock.ledger import replies, upkeep_replies
from cellblock.ledger.declarations import script_names, source_of
from cellblock.ledger.replies import PulseWord

REPLIES: dict[str, Any] = {
    script: one
    for module in (replies, upkeep_replies)
    for one in vars(module).values()
    if isinstance(script := vars(one).get("script") if isinstance(one, type) else None, str)
}


def test_every_script_has_a_reply() -> None:
    assert set(REPLIES) == set(script_names())


@pytest.mark.parametrize("script", sorted(set(script_names()) - {"beat"}))
def test_a_script_returns_the_words_of_its_reply(script: str) -> None:
    reply, head = REPLIES[script], source_of(script).partition("\nlocal ")[0]
    words = getattr(reply, "words", None) or get_type_hints(reply)["word"]
    first = re.findall(r'\{("[\w ]+"(?:\|"[\w ]+")*)', head.partition("Returns")[2])
    assert set(re.findall(r'"([\w ]+)"', " ".join(first))) == {str(word) for word in words}


def test_a_beat_returns_the_words_of_its_pulses() -> None:
    head = source_of("beat").partition("\nlocal ")[0].partition("The word is ")[2]
    assert {word for word in PulseWord if re.search(rf"\b{word}\b", head)} == set(PulseWord)
