"""Does the suite run enough of each part? ``PYTHONPATH=tests python -m suite.floors``, after a measured run.

Adds up what all processes and guests have left in ``build/coverage``, prints a line for each part, and ends
with 1 where one is below its floor (``[tool.cellblock.coverage-floors]`` in pyproject.toml).
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections import Counter
from contextlib import chdir
from pathlib import Path

from coverage import Coverage
from coverage.exceptions import NoDataError

from suite.guest_arcs import FOLDER, save_as_coverage

_REPOSITORY = Path(__file__).resolve().parents[2]
_CORE = "producer/cellblock"
#: The files and folders of each part.
_PARTS = {
    "ledger": (f"{_CORE}/ledger/",),
    "admission": (f"{_CORE}/admission/",),
    "launcher": ("workers/cellblock_workers/launcher/",),
    "guest": ("workers/cellblock_workers/guest/", "workers/cellblock_workers/zygote/"),
    "egress": (f"{_CORE}/egress/",),
}
_COUNTED = ("num_statements", "num_branches", "covered_lines", "covered_branches")


class NotMeasured(Exception):
    """There are no figures for this; the message says what to do."""


def figures_of_files() -> dict[str, Counter[str]]:
    """What coverage.py counts, by file of the product. Raises :class:`NotMeasured`."""
    report = FOLDER / "report.json"
    with chdir(_REPOSITORY):  # the paths in its settings are from here
        save_as_coverage()
        found = Coverage()
        if (FOLDER / "data").exists():  # what was added up before
            found.load()
        try:
            found.combine()
            found.save()
            found.json_report(outfile=str(report))
        except NoDataError as error:
            raise NotMeasured(f"{error}: run the tests under coverage first (make test-all)") from error
    files = json.loads(report.read_text())["files"]
    return {name: Counter({key: file["summary"][key] for key in _COUNTED}) for name, file in files.items()}


def figures_of_part(part: str, files: dict[str, Counter[str]]) -> Counter[str]:
    """The sum of a part's files. Raises :class:`NotMeasured` for a path that none of them has."""
    total: Counter[str] = Counter()
    for path in _PARTS[part]:
        chosen = [figures for name, figures in files.items() if name == path or _is_in(name, path)]
        if not chosen:
            raise NotMeasured(
                f"{part}: there is no {path}: has it moved? Then _PARTS in floors.py has to follow"
            )
        for figures in chosen:
            total.update(figures)
    return total


def percent_of(figures: Counter[str]) -> float:
    """What has run of statements and branches, as coverage.py reckons it."""
    return 100 * (figures["covered_lines"] + figures["covered_branches"]) / _size_of(figures)


def main() -> int:
    """Print the table; the exit code."""
    settings = tomllib.loads((_REPOSITORY / "pyproject.toml").read_text())
    floors: dict[str, int] = settings["tool"]["cellblock"]["coverage-floors"]
    try:
        files = figures_of_files()
        parts = {part: figures_of_part(part, files) for part in _PARTS}
    except NotMeasured as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{'part':<10} statements  branches  percent  floor")
    for part, figures in parts.items():
        print(_row(part, figures, str(floors[part])))
    print(_row("total", sum(files.values(), Counter()), ""))
    low = [part for part, figures in parts.items() if percent_of(figures) < floors[part]]
    for part in low:
        print(f"{part} is below its floor of {floors[part]} % (pyproject.toml)", file=sys.stderr)
    return 1 if low else 0


def _is_in(name: str, folder: str) -> bool:
    return folder.endswith("/") and name.startswith(folder)


def _size_of(figures: Counter[str]) -> int:
    return figures["num_statements"] + figures["num_branches"]


def _row(name: str, figures: Counter[str], floor: str) -> str:
    percent = int(percent_of(figures) * 10) / 10  # 89.96 is below 90, and has to look like it
    return (
        f"{name:<10} {figures['num_statements']:>10} {figures['num_branches']:>9} {percent:>8.1f} {floor:>6}"
    )


if __name__ == "__main__":
    sys.exit(main())
