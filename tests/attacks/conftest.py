"""Launchers for the attacks, and the table of attacks itself."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from attacks.traces import Traces
from sandbox.harness import hosts
from sandbox.peer import docker_api

TracesOf = Callable[[str], Traces]


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


@pytest.fixture(scope="package")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TracesOf]:
    """Of each way, a launcher to be attacked and a note of every sandbox it lends."""
    with docker_api() as api, hosts(tmp_path_factory.mktemp) as started, ExitStack() as stack:

        @cache
        def of(way: str) -> Traces:
            traces = Traces(started[way], api)
            stack.enter_context(traces.followed())
            return traces

        yield of
