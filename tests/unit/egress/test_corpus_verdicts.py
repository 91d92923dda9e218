"""The filter loses no secret of the wide corpus that it found, and changes no more honest outputs.

A part of what ``tests/bench/egress/wide_score.py`` measures, small enough for every run. The corpus is made
from a seed, so a share moves only when the filter does. Who makes the filter better raises the figures.
"""

from __future__ import annotations

import random

import pytest

from bench.egress.wide.honest import honest
from bench.egress.wide_score import by_cellblock, measured, unchanged

#: Of 360 honest outputs with this seed; 0.06 % of all 5,000 are changed (ADR 17).
CHANGED_MOST = 1
#: Percent held back of each class: as it stands, and disguised. Measured on 2026-11-27, rounded down.
HELD = {
    "providers": (98, 92),
    "keyvalue": (93, 87),
    "tables": (100, 82),
    "languages": (96, 91),
    "chat": (81, 81),
    "commands": (84, 78),
    "network": (96, 92),
    "containers": (90, 82),
    "hashes": (92, 81),
    "signed": (89, 85),
    "cloud": (93, 87),
    "passphrases": (75, 59),
    "wallets": (73, 60),
    "codes": (88, 83),
    "databases": (90, 87),
}


@pytest.mark.parametrize("group", HELD)
def test_secrets_that_were_held_back_still_are(group: str) -> None:
    found = measured(by_cellblock, groups=(group,), parts=("secrets",), repeats=1, disguises=2)
    plain, disguised = HELD[group]
    assert 100 * found.recall["plain"].share() >= plain, found.recall["plain"].failed
    assert 100 * found.disguises.share() >= disguised, found.disguises.failed


def test_honest_outputs_of_all_families_leave_as_they_are() -> None:
    changed = [
        (family, text)
        for family, text in honest(random.Random(1), each=4)
        if not unchanged(text, by_cellblock(text))
    ]
    assert len(changed) <= CHANGED_MOST, changed
