"""Outputs of honest jobs, over 5,000 of every seed: what is changed in one of these was changed wrongly.

Placeholders (``<your-token>``, ``****``, ``${NAME}``, ``changeme``, ``example``) are no secrets here.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from bench.egress.wide.honest_data import DATA
from bench.egress.wide.making import Rng, fill

EACH = 56


def honest(rng: Rng, each: int = EACH) -> Iterator[tuple[str, str]]:
    """Family and text."""
    for family, (head, lines) in _families().items():
        for _ in range(each):
            yield family, _of_lines(rng, head, lines)
    for family, make in DATA.items():
        for _ in range(each):
            yield family, make(rng)


def _of_lines(rng: Rng, head: str, lines: list[str]) -> str:
    """A heading if there is one, then lines of the family; the longer forms stand alone."""
    count = rng.choice((1, 2, 5, 12, 30))
    body = "\n".join(fill(rng, rng.choice(lines)) for _ in range(count))
    return f"{fill(rng, head)}\n{body}\n" if head else f"{body}\n"


@cache
def _families() -> dict[str, tuple[str, list[str]]]:
    found: dict[str, tuple[str, list[str]]] = {}
    for path in sorted(Path(__file__).parent.glob("honest_*.toml")):
        for family, given in tomllib.loads(path.read_text()).items():
            found[family] = (given.get("head", ""), given["lines"])
    return found
