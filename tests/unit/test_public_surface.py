"""The public names: exactly ``__all__``, and the error tree that the docstring draws."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
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


FRESH = """
import cellblock
found = {name: getattr(cellblock, name) for name in cellblock.__all__}
assert set(found) <= set(dir(cellblock))
assert cellblock.errors.RateLimited is cellblock.RateLimited, "a module of the package"
print(cellblock.evaluation.__name__, cellblock.__version__)
"""


def test_every_public_name_is_found_in_a_fresh_process() -> None:
    done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"cellblock.evaluation {version('cellblock')}\n", "")


def test_a_name_that_is_not_public_is_not_found() -> None:
    with pytest.raises(AttributeError, match="module 'cellblock' has no attribute 'Cleint'"):
        getattr(cellblock, "Cleint")  # noqa: B009 - a type checker refuses it too


def test_a_type_checker_knows_the_public_names_and_refuses_others(tmp_path: Path) -> None:
    (tmp_path / "caller.py").write_text(
        "from cellblock import Client, Cleint\n"
        "import cellblock\n"
        "cellblock.whatever\n"
        "cellblock.__version__ + 1\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", "caller.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line.partition(" error: ")[2] for line in done.stdout.splitlines() if " error: " in line]
    assert [line.partition("  [")[2] for line in lines] == ["attr-defined]", "attr-defined]", "operator]"], (
        done.stdout
    )


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
