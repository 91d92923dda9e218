"""The programs of tests/bench can be imported, and what they measure by its name has that name."""

from __future__ import annotations

import importlib

import pytest

from bench.stages import OURS
from bench.timed_worker import STAGES
from parts import REPOSITORY

PROGRAMS = sorted(path.stem for path in (REPOSITORY / "tests/bench").glob("*.py"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_benchmark_can_be_imported(name: str) -> None:
    importlib.import_module(f"bench.{name}")


@pytest.mark.parametrize(("stage", "owner", "function"), [*OURS, *STAGES])
def test_a_stage_is_a_function_of_the_code(stage: str, owner: object, function: str) -> None:
    assert callable(getattr(owner, function)), stage
