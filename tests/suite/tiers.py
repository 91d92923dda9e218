"""Which cases run. A pytest plugin that is always on.

A case's *way* is what it is parametrised with (a parameter that is called ``host`` or ends in ``way``), or
what the marker ``way`` says. From it follows the tier:

* ``fast``: no way, or one of :data:`suite.ways.FAST_WAYS` (of a parameter ``evaluation_way``, one of
  :data:`suite.ways.FAST_EVALUATION_WAYS`); besides, of every other way the first case of each suite and of
  each group of attacks. A case marked ``long`` is not among them.
* ``rest``: all others.
"""

from __future__ import annotations

import pytest

from suite.ways import EVERY_WAY, FAST_EVALUATION_WAYS, FAST_WAYS

TIERS = ("all", "fast", "rest")
_MARKERS = (
    "way(name): the case runs in this way of making sandboxes, though it is not parametrised with it",
    "long(reason): the case is not in the fast tier",
    "whole_host: the case looks at things of the host that other cases may change",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the suite's own."""
    group = parser.getgroup("cellblock")
    group.addoption("--tier", choices=TIERS, default="all", help="what to run, see docs/testing.md")
    group.addoption("--way", choices=list(EVERY_WAY), help="only cases of this way of making sandboxes")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what was not asked for."""
    way, tier = config.getoption("--way"), config.getoption("--tier")
    chosen = _of_the_way(items, way) if way else list(items)
    if tier != "all":
        fast = _fast(chosen)
        chosen = [item for item in chosen if (item.nodeid in fast) == (tier == "fast")]
    kept = {item.nodeid for item in chosen}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = chosen


def way_of(item: pytest.Item) -> str | None:
    """The way in which a case makes sandboxes, if it has one."""
    if (marker := item.get_closest_marker("way")) is not None:
        return str(marker.args[0])
    return _parameter(item)[1]


def _parameter(item: pytest.Item) -> tuple[str, str | None]:
    """The name and the value of the parameter that says the way."""
    callspec = getattr(item, "callspec", None)
    for name, value in callspec.params.items() if callspec else ():
        if (name == "host" or name.endswith("way")) and value in EVERY_WAY:
            return name, str(value)
    return "", None


def _is_fast(item: pytest.Item) -> bool:
    way = way_of(item)
    ways = FAST_EVALUATION_WAYS if _parameter(item)[0] == "evaluation_way" else FAST_WAYS
    return way is None or way in ways


def _of_the_way(items: list[pytest.Item], way: str) -> list[pytest.Item]:
    """Where no case has a way, naming one leaves none out."""
    if not any(map(way_of, items)):
        return list(items)
    return [item for item in items if way_of(item) == way]


def _fast(items: list[pytest.Item]) -> set[str]:
    found = set()
    tasted: set[tuple[str, str, str]] = set()
    for item in items:
        if item.get_closest_marker("long"):
            continue
        if _is_fast(item):
            found.add(item.nodeid)
            continue
        callspec = getattr(item, "callspec", None)
        attack = callspec.params.get("attack") if callspec else None
        taste = (way_of(item) or "", item.path.parent.name, getattr(attack, "group", ""))
        if taste not in tasted:
            tasted.add(taste)
            found.add(item.nodeid)
    return found
