"""Figures that stand in the scripts and in Python are the same."""

from __future__ import annotations

import re

from cellblock.contract.outcomes import OUR_FAULT
from cellblock.ledger import figures, kept_lists, pressure
from cellblock.ledger.declarations import prelude


def figure(name: str) -> int:
    """A constant of the prelude: whole numbers, perhaps multiplied."""
    (found,) = re.findall(rf"^local {name} = ([\d *]+)$", prelude(), re.MULTILINE)
    product = 1
    for factor in found.split("*"):
        product *= int(factor)
    return product


def test_the_marks_of_a_full_store() -> None:
    assert figure("SHARED_ABOVE") == pressure.SHARED_ABOVE
    assert figure("ADMITS_BELOW") == pressure.ADMITS_BELOW
    assert figure("TAKES_LARGE_BELOW") == pressure.TAKES_LARGE_BELOW
    assert figure("LARGE_BYTES") == pressure.LARGE_BYTES


def test_what_is_our_fault() -> None:
    (found,) = re.findall(r"^local OUR_FAULT = \{(.*)\}$", prelude(), re.MULTILINE)
    assert set(re.findall(r"(\w+) = true", found)) == set(OUR_FAULT)


def test_how_long_redis_waits_for_a_leader_and_accounts_are_kept() -> None:
    assert 1000 * figure("UNLED_S") == kept_lists._UNARCHIVED_MS
    assert figure("ACCOUNT_S") == 86_400 * figures._DAYS_KEPT
