"""The frames that attacks forge are what a guest would say: one that nobody could believe proves nothing."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from attacks.cheats import CHEATS
from cellblock_workers.worker.session import Ending
from parts import REPOSITORY

pytestmark = pytest.mark.no_rerun


def test_the_end_that_attacks_forge_is_one() -> None:
    cases = tomllib.loads((REPOSITORY / "tests/attacks/cases/forgery.toml").read_text())
    names: dict[str, Any] = {}
    exec(cases["prelude"], names)
    Ending.model_validate(json.loads(names["END"][5:]))


def test_the_end_that_cheats_forge_is_one() -> None:
    forging = [source for name, source in CHEATS.items() if "a report of the end" in name]
    assert forging
    for source in forging:
        said = source[source.index("dict(code=") :]
        Ending.model_validate(eval(said[: said.index("))") + 1]))
