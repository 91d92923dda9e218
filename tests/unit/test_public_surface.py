"""The public names: exactly ``__all__``, and the error tree that the docstring draws."""

from __future__ import annotations

import inspect
import re
from types import ModuleType

import pytest

import cellblock
import cellblock.errors
import cellblock_config
from cellblock.errors import CellblockError


@pytest.mark.parametrize("package", [cellblock, cellblock_config])
def test_all_is_sorted_and_without_repeats(package: ModuleType) -> None:
    names = list(package.__all__)
    assert len(set(names)) == len(names)
    # Constants first, then the rest by name: the order ruff keeps.
    assert names == sorted(names, key=lambda name: (not name.isupper(), name))


@pytest.mark.parametrize("package", [cellblock, cellblock_config])
def test_all_promises_nothing_that_is_not_there(package: ModuleType) -> None:
    assert [name for name in package.__all__ if not hasattr(package, name)] == []


def test_every_error_is_public() -> None:
    assert set(_classes()) <= set(cellblock.__all__)


def _classes() -> dict[str, type[CellblockError]]:
    return {
        name: value
        for name, value in vars(cellblock.errors).items()
        if inspect.isclass(value) and issubclass(value, CellblockError)
    }


def test_the_drawn_error_tree_is_the_real_one() -> None:
    drawn: dict[str, str | None] = {}
    path: list[str] = []
    for line in (cellblock.errors.__doc__ or "").splitlines():
        branch = re.match(r"    ((?:[│ ]   )*)(?:[├└]── )?([A-Z]\w+)(?:\s{2,}\S|$)", line)
        if not branch:
            continue
        depth = len(branch[1]) // 4 + ("── " in line)
        path[depth:] = [branch[2]]
        drawn[branch[2]] = path[depth - 1] if depth else None
    ours = _classes()
    real = {
        name: next((base.__name__ for base in cls.__bases__ if base in ours.values()), None)
        for name, cls in ours.items()
    }
    assert drawn == real


def test_every_error_belongs_to_one_who_must_act() -> None:
    for name, cls in _classes().items():
        if name not in {"CellblockError", "CallerError", "OperatorError"}:
            assert issubclass(cls, cellblock.CallerError) != issubclass(cls, cellblock.OperatorError), name


def test_the_client_for_asyncio_lacks_what_it_says_and_nothing_else() -> None:
    def methods(cls: type) -> set[str]:
        return {name for name in vars(cls) if not name.startswith("_")}

    lacking = methods(cellblock.Client) - methods(cellblock.AsyncClient)
    said = set(re.findall(r"``(\w+)``", cellblock.AsyncClient.__doc__ or ""))
    assert lacking == said
