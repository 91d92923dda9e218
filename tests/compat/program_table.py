"""The table of programs that people write: ``programs/*.toml``, with what each prints."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Program:
    """One program, and how it ends.

    ``stdout`` is all of it; in its place ``begins``, ``ends`` and ``cut`` (how many bytes it prints) of one
    that prints more than is kept. ``stderr``: what appears there; without it nothing does. ``bare``: why it
    means nothing without a sandbox; ``bare_stdout``: what it prints there, if that differs. ``not_on``: the
    ways that stop it, and the control.
    """

    group: str
    name: str
    code: str
    stdin: str = ""
    stdout: str = ""
    stderr: list[str] = field(default_factory=list)
    outcome: str = "ok"
    exit_code: int = 0
    image: str = "python"
    begins: str = ""
    ends: str = ""
    cut: int = 0
    bare: str = ""
    bare_stdout: str = ""
    not_on: dict[str, str] = field(default_factory=dict)


def load_programs() -> list[Program]:
    """Every program of every group. Outputs are written on lines of their own, below the quotes."""
    found = []
    for path in sorted((Path(__file__).parent / "programs").glob("*.toml")):
        for entry in tomllib.loads(path.read_text())["program"]:
            outputs = {
                name: entry[name].removeprefix("\n") for name in ("stdout", "bare_stdout") if name in entry
            }
            found.append(Program(**{**entry, **outputs, "group": path.stem}))
    return found


PROGRAMS = load_programs()
