"""Habits of language that docs/writing.md asks to avoid do not come back."""

from __future__ import annotations

import pytest

from parts import REPOSITORY
from suite.structure import HABITS, habits

#: How many lines have each now: quotations, and where the words mean what they say.
MOST = {
    "may not": 1,
    "can not": 0,
    "so many": 4,
    "what of": 1,
    "whoever": 1,
    "a sentence that begins with Of": 0,
    "is none": 1,
}


@pytest.fixture(scope="module")
def found() -> dict[str, int]:
    return habits(REPOSITORY)


@pytest.mark.parametrize("habit", HABITS)
def test_a_habit_does_not_come_back(found: dict[str, int], habit: str) -> None:
    assert found[habit] <= MOST[habit]
