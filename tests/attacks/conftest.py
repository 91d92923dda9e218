"""Launchers for the attacks, and the table of attacks itself."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sandbox.harness import ISOLATIONS, Host, hosts


@dataclass(frozen=True)
class Attack:
    """One attack: what it does, how it may end, and what must and must not be seen of it."""

    group: str
    name: str
    code: str
    outcomes: list[str]
    exit_code: int | None = None
    image: str | None = None
    limits: dict[str, float] = field(default_factory=dict)
    must_appear: list[str] = field(default_factory=list)
    must_not_appear: list[str] = field(default_factory=lambda: ["ESCAPED", "SyntaxError", "NameError"])
    isolations: list[str] = field(default_factory=lambda: list(ISOLATIONS))


def load_attacks() -> list[Attack]:
    """Every attack of every group; a group's prelude comes before each of its codes."""
    found = []
    for path in sorted((Path(__file__).parent / "cases").glob("*.toml")):
        table: dict[str, Any] = tomllib.loads(path.read_text())
        prelude = table.get("prelude", "")
        for case in table["attack"]:
            found.append(Attack(**{**case, "group": path.stem, "code": prelude + case["code"]}))
    return found


ATTACKS = load_attacks()


@pytest.fixture(scope="package")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Host]]:
    """A launcher of each isolation, to be attacked."""
    with hosts(tmp_path_factory.mktemp) as started:
        yield started
