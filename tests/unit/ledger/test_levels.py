"""How far each tenant has to go down so that the store has room again."""

from __future__ import annotations

import pytest

from cellblock.ledger.retention import _Held, level_of


@pytest.mark.parametrize(
    ("totals", "wanted", "level"),
    [
        ([100], 30, 70),
        ([100, 10], 30, 70),
        ([100, 90], 30, 80),
        ([100, 100, 1], 60, 70),
        ([100, 50, 50], 80, 40),
        ([10, 10], 100, 0),
        ([], 5, 0),
    ],
)
def test_level_takes_from_those_that_hold_most(totals: list[int], wanted: int, level: int) -> None:
    held = {f"t{number}": _Held(total, total) for number, total in enumerate(totals)}
    assert level_of(held, wanted) == level
    freed = sum(max(0, total - level) for total in totals)
    assert freed >= min(wanted, sum(totals))


def test_level_is_not_kept_up_by_what_waits() -> None:
    held = {"waits": _Held(1000, 1), "keeps": _Held(100, 100), "little": _Held(10, 10)}
    assert level_of(held, 50) == 51
