"""ARCHITECTURE.md: a walk has at most eight files; every file of a walk or of the index has its function."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from parts import REPOSITORY

ROOTS = (REPOSITORY / "producer/cellblock", REPOSITORY / "workers/cellblock_workers")
INDEX = re.compile(r"^```decided (\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DRAWN = re.compile(r"^```walk (\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WALKS = {
    name: [re.split(r"  +", line) for line in lines.splitlines()]
    for name, lines in DRAWN.findall((REPOSITORY / "ARCHITECTURE.md").read_text())
}

INDEXED = {
    name: [re.split(r"  +", line) for line in lines.splitlines()]
    for name, lines in INDEX.findall((REPOSITORY / "ARCHITECTURE.md").read_text())
}


def functions(path: Path) -> Iterator[str]:
    """Its functions and classes, and its methods with their class."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.ClassDef):
            yield node.name
            yield from (f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef))


def test_there_are_the_walks_and_tables_that_are_promised() -> None:
    assert set(WALKS) == {"submit", "run", "sandbox", "evaluation"}
    assert set(INDEXED) == {"jobs", "sandboxes", "evaluations", "ends"}


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_has_six_to_eight_files_and_they_are_as_named(name: str) -> None:
    assert 6 <= len(WALKS[name]) <= 8
    for file, function, *_ in WALKS[name]:
        check_is_there(file, function)


@pytest.mark.parametrize(
    ("what", "file", "function"),
    [(row[0], row[1], row[2] if len(row) > 2 else "") for rows in INDEXED.values() for row in rows],
)
def test_what_decides_is_where_the_index_says(what: str, file: str, function: str) -> None:
    check_is_there(file, function)


def check_is_there(file: str, function: str) -> None:
    (path,) = (root / file for root in ROOTS if (root / file).exists())
    if path.suffix == ".py":
        assert function in set(functions(path)), f"{file} has no {function}"
