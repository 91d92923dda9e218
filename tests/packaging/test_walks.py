"""The walks of ARCHITECTURE.md: at most eight files each, and every file has the function it is named for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from parts import REPOSITORY

ROOTS = (REPOSITORY / "producer/cellblock", REPOSITORY / "workers/cellblock_workers")
DRAWN = re.compile(r"^```walk (\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WALKS = {
    name: [re.split(r"  +", line) for line in lines.splitlines()]
    for name, lines in DRAWN.findall((REPOSITORY / "ARCHITECTURE.md").read_text())
}


def functions(path: Path) -> Iterator[str]:
    """Its functions, and its methods with their class."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef))


def test_there_are_the_walks_that_are_promised() -> None:
    assert set(WALKS) == {"submit", "run", "sandbox", "evaluation"}


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_has_at_most_eight_files_and_they_are_as_named(name: str) -> None:
    assert len(WALKS[name]) <= 8
    for file, function, *_ in WALKS[name]:
        (path,) = (root / file for root in ROOTS if (root / file).exists())
        if path.suffix == ".py":
            assert function in set(functions(path)), f"{file} has no {function}"
