"""The wide corpus measures what it says: its secrets are in its texts, and its judges read what is there."""

from __future__ import annotations

import random

import pytest

from bench.egress.wide.disguises import WRITERS, survives
from bench.egress.wide.honest import honest
from bench.egress.wide.kinds import GROUPS, secrets
from bench.egress.wide_score import measured, unchanged

SECRETS = list(secrets(random.Random(1)))


def test_each_class_has_kinds_and_each_text_its_core() -> None:
    assert {made.group for made in SECRETS} == set(GROUPS)
    assert len({(made.group, made.kind) for made in SECRETS}) > 600
    for made in SECRETS:
        assert len(made.core) >= 3, made
        assert made.core in made.text, made
        assert not set("\u2039\u203a\u00ab\u00bb") & set(made.text), made


@pytest.mark.parametrize("disguise", sorted(WRITERS))
def test_who_knows_a_disguise_reads_it(disguise: str) -> None:
    rng = random.Random(disguise)
    for made in rng.sample(SECRETS, 6):
        written = WRITERS[disguise](made.text, rng)
        assert survives(disguise, written, made.core, f"{written}\n"), made
        assert not survives(disguise, written, made.core, "nothing is left"), made


def test_honest_outputs_are_of_many_families_and_many() -> None:
    found = list(honest(random.Random(1)))
    assert len(found) >= 5_000
    assert len({family for family, _ in found}) >= 60


def test_a_filter_that_does_nothing_scores_nothing_and_one_that_withholds_all_everything() -> None:
    def all_of_it(text: str) -> str:
        return text

    def nothing(text: str) -> str:
        return ""

    groups = ("codes", "passphrases")
    left, taken = (
        measured(one, groups=groups, parts=("secrets",), repeats=1) for one in (all_of_it, nothing)
    )
    assert {tally.share() for tally in left.recall.values()} == {0.0}
    assert {tally.share() for tally in taken.recall.values()} == {1.0}


def test_only_control_characters_may_go_from_an_honest_output() -> None:
    assert unchanged("a\x1b[31mred\x1b[0m\x07", "ared")
    assert not unchanged("key: maple", "key: [REDACTED]")
