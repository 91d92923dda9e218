"""Rooms import downwards only: ARCHITECTURE.md draws them from the top, and the code is held to it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from parts import REPOSITORY
from suite.structure import circles, imports, modules

DRAWN = re.compile(r"^```rooms (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: By folder, the floor of each of its rooms. Two blanks end the rooms of a line, and begin what they are.
FLOORS = {
    folder: {
        room: -number
        for number, line in enumerate(lines.splitlines())
        for room in line.split("  ")[0].split()
    }
    for folder, lines in DRAWN.findall((REPOSITORY / "ARCHITECTURE.md").read_text())
}
WHOLE = ("cellblock", "cellblock_workers")  #: of the others, only what has a floor is held to it


def room_in(folder: str, module: str) -> str | None:
    """The room of a folder in which a module lies; None if it lies elsewhere."""
    if module == folder:
        return "__init__"
    return module[len(folder) + 1 :].split(".")[0] if module.startswith(f"{folder}.") else None


def arrows_in(folder: str, tree: Path) -> set[tuple[str, str]]:
    """Which rooms of a folder import which others."""
    pairs = {(room_in(folder, importer), room_in(folder, imported)) for importer, imported in imports(tree)}
    return {(upper, lower) for upper, lower in pairs if upper and lower and upper != lower}


def test_these_folders_are_drawn() -> None:
    assert set(FLOORS) == {*WHOLE, "cellblock_workers.launcher", "cellblock_workers.worker"}


@pytest.mark.parametrize("folder", FLOORS)
def test_every_room_imports_from_lower_floors_only(folder: str) -> None:
    floors, arrows = FLOORS[folder], arrows_in(folder, REPOSITORY)
    rooms = {room_in(folder, module) for module in modules(REPOSITORY)} - {None}
    assert set(floors) <= rooms, "ARCHITECTURE.md draws rooms that there are not"
    assert folder not in WHOLE or rooms == set(floors), "ARCHITECTURE.md leaves rooms out"
    assert {
        (upper, lower)
        for upper, lower in arrows
        if upper in floors and lower in floors and floors[lower] >= floors[upper]
    } == set()


FOLDERS = sorted(name for name, path in modules(REPOSITORY).items() if path.name == "__init__.py")


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_two_rooms_of_a_folder_import_each_other(folder: str) -> None:
    inside = {arrow for arrow in arrows_in(folder, REPOSITORY) if "__init__" not in arrow}
    assert circles(inside) == []


def test_an_import_upwards_is_seen(tmp_path: Path) -> None:
    package = tmp_path / "producer/cellblock"
    (package / "contract").mkdir(parents=True)
    for name, text in {
        "__init__.py": "",
        "errors.py": "def late():\n    from cellblock.contract import models\n",
        "contract/__init__.py": "",
        "contract/models.py": "from ..errors import late\n",
    }.items():
        (package / name).write_text(text)
    arrows = arrows_in("cellblock", tmp_path)
    assert arrows == {("errors", "contract"), ("contract", "errors")}
    assert circles(arrows) == [["contract", "errors"]]
