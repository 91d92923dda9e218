"""The table of attacks: ``cases/*.toml``, a file for each group."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Attack:
    """One attack: what it does, how it may end, and what must and must not be seen of it.

    ``before``: another job that ran to its end first, and ``beside``: one that still runs, on the same host;
    either prints PLANTED once it has left what the attack looks for. ``differs``: the attack may print no
    line that they printed. ``cpu_ms``: the least and the most processor time the host may have counted.
    ``truncated``: whether output was cut. ``artifacts``: the globs to ask for, and ``collected``: exactly
    what may come. ``not_on``: isolations the attack means nothing on, and the fact why.
    """

    group: str
    name: str
    code: str
    outcomes: list[str]
    exit_code: int | None = None
    image: str | None = None
    limits: dict[str, float] = field(default_factory=dict)
    before: str = ""
    beside: str = ""
    artifacts: list[str] = field(default_factory=list)
    collected: list[str] | None = None
    differs: bool = False
    cpu_ms: list[int] | None = None
    truncated: bool | None = None
    must_appear: list[str] = field(default_factory=list)
    must_not_appear: list[str] = field(default_factory=lambda: ["ESCAPED", "SyntaxError", "NameError"])
    not_on: dict[str, str] = field(default_factory=dict)

    @property
    def runs_alone(self) -> bool:
        """Whether other attacks of the same way would change what is measured of it."""
        return self.cpu_ms is not None


def load_attacks() -> list[Attack]:
    """Every attack of every group; a group's prelude comes before each of its codes."""
    found = []
    for path in sorted((Path(__file__).parent / "cases").glob("*.toml")):
        table: dict[str, Any] = tomllib.loads(path.read_text())
        prelude = table.get("prelude", "")
        for case in table["attack"]:
            codes = {name: prelude + case[name] for name in ("code", "before", "beside") if name in case}
            found.append(Attack(**{**case, **codes, "group": path.stem}))
    return found


ATTACKS = load_attacks()
