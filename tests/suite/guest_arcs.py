"""What guests have noted of the lines they ran (guest_tracer.py), as coverage.py counts it: by file and line.

All guests of a run note in one file, the chart. Its name has the digest of their texts, so what another state
of them has left is never read.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from coverage import CoverageData

from suite.guest_texts import FUTURE, table
from suite.guest_tracer import ENTRY, JUMP, ROW, SPAN

FOLDER = Path(__file__).resolve().parents[2] / "build" / "coverage"
Arc = tuple[int, int]


def make_chart() -> Path:
    """The chart of these texts, to which everybody may add."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with _chart().open("ab") as file:
        file.truncate(len(table().lines) * ROW)
        os.fchmod(file.fileno(), 0o666)
    return _chart()


def noted_arcs() -> dict[str, set[Arc]]:
    """By file, all that guests have noted. Raises AssertionError for what does not fit the chart."""
    found: defaultdict[str, set[Arc]] = defaultdict(set)
    noted = _chart().read_bytes() if _chart().exists() else b""
    if any(noted[:ROW]):
        raise AssertionError(f"an arc of a guest is longer than {SPAN} lines: see SPAN in guest_tracer.py")
    at = noted.find(1)
    while at >= 0:
        for file, arc in _arcs(*divmod(at, ROW)):
            found[str(file)].add(arc)
        at = noted.find(1, at + 1)
    for name in found:
        found[name] |= {(-1, number) for number in _left_out(Path(name))}
    return found


def save_as_coverage() -> None:
    """Put what guests have noted beside the data of other processes."""
    if found := noted_arcs():
        data = CoverageData(str(FOLDER / "data"), suffix="guests")
        data.erase()
        data.add_arcs(found)
        data.write()
        data.close()


def _chart() -> Path:
    return FOLDER / f"guest-{table().digest}.chart"


def _arcs(row: int, column: int) -> Iterator[tuple[Path, Arc]]:
    """The arc that one byte stands for."""
    kind, distance = divmod(column, 2 * SPAN)
    line, other = table().lines[row], table().lines[row + distance - SPAN]
    if line.file is None:
        return
    if kind == JUMP:
        yield line.file, (other.number, line.number)
    elif kind == ENTRY:
        yield line.file, (-other.number, line.number)
    else:
        yield line.file, (line.number, -other.number)


def _left_out(file: Path) -> Iterator[int]:
    """Imports that a text does not have, or runs before arcs are noted. They count as run when it runs."""
    for number, text in enumerate(file.read_text().splitlines(), start=1):
        if text.startswith(("from .", FUTURE)):
            yield number
