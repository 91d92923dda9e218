"""Which cases run. A pytest plugin that is always on.

A case's *way* is what it is parametrised with (a parameter that is called ``host`` or ends in ``way``), or
what the marker ``way`` says. From it follows the tier:

* ``fast``: no way, or one of :data:`suite.ways.FAST_WAYS` (of a parameter ``evaluation_way``, one of
  :data:`suite.ways.FAST_EVALUATION_WAYS`); besides, of every other way the first case of each suite and of
  each group of attacks. A case marked ``long`` is not among them.
* ``quiet``: cases marked ``quiet_host``, one after the other: their figures are of a host with no other work.
* ``rest``: all others.

A case marked ``after_attacks`` is in each tier that attacks its way.

What CI runs overlaps with these: ``ci`` is the fast tier and a fixed *sample* of the cases on
:data:`suite.ways.OTHER_WAYS` that are not ``long``: each on exactly one of those that it has, chosen by a
hash of its name.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict

import pytest

from suite.ways import EVERY_WAY, FAST_EVALUATION_WAYS, FAST_WAYS, OTHER_WAYS

TIERS = ("all", "fast", "rest", "quiet", "ci")
_MARKERS = (
    "way(name): the case runs in this way of making sandboxes, though it is not parametrised with it",
    "long(reason): the case is not in the fast tier",
    "whole_host: the case does not run beside others with this mark",
    "quiet_host: the case is in the tier quiet, where nothing runs beside it",
    "after_attacks: the case looks at what the attacks of its way have left",
    "no_rerun: a failure is red at once; that the case passes alone would make nothing good",
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
    for item in items:
        way_of(item)  # a wrong one is an error in every tier
    chosen = _of_the_way(items, way) if way else list(items)
    if tier != "all":
        tiers = _tiers(chosen)
        chosen = [item for item in chosen if tier in tiers[item.nodeid]]
    attacked = {way_of(item) for item in chosen if "attack" in _parameters(item)}
    chosen = [item for item in chosen if not _is_after(item) or way_of(item) in attacked]
    chosen = _that_failed_last(config, chosen)
    kept = {item.nodeid for item in chosen}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = chosen


def way_of(item: pytest.Item) -> str | None:
    """The way in which a case makes sandboxes, if it has one."""
    if (marker := item.get_closest_marker("way")) is not None:
        return str(marker.args[0])
    return _parameter(item)[1]


def _parameters(item: pytest.Item) -> dict[str, object]:
    callspec = getattr(item, "callspec", None)
    return dict(callspec.params) if callspec else {}


def _parameter(item: pytest.Item) -> tuple[str, str | None]:
    """The name and the value of the parameter that says the way.

    Raises ``pytest.UsageError`` for a way that there is not: its case would pass for one without a way.
    """
    for name, value in _parameters(item).items():
        if name.endswith("way") and value not in EVERY_WAY:
            raise pytest.UsageError(f"{item.nodeid}: {name} is {value!r}, none of {', '.join(EVERY_WAY)}")
        if name.endswith("way") or (name == "host" and value in EVERY_WAY):
            return name, str(value)
    return "", None


def _tiers(items: list[pytest.Item]) -> dict[str, set[str]]:
    """The tiers of each case."""
    found: dict[str, set[str]] = {}
    timely = [item for item in items if not _is_marked(item, "long", "quiet_host", "after_attacks")]
    fast, sample = _fast(timely), _sample(timely)
    for item in items:
        if _is_marked(item, "quiet_host"):
            found[item.nodeid] = {"quiet"}
        elif _is_after(item):
            found[item.nodeid] = {"fast", "rest", "ci"}
        else:
            found[item.nodeid] = {"fast" if item.nodeid in fast else "rest"}
            found[item.nodeid] |= {"ci"} if item.nodeid in fast | sample else set()
    return found


def _is_marked(item: pytest.Item, *names: str) -> bool:
    return any(item.get_closest_marker(name) for name in names)


def _is_after(item: pytest.Item) -> bool:
    return _is_marked(item, "after_attacks")


def _is_fast(item: pytest.Item) -> bool:
    way = way_of(item)
    ways = FAST_EVALUATION_WAYS if _parameter(item)[0] == "evaluation_way" else FAST_WAYS
    return way is None or way in ways


def _of_the_way(items: list[pytest.Item], way: str) -> list[pytest.Item]:
    """Where no case has a way, naming one leaves none out."""
    if not any(map(way_of, items)):
        return list(items)
    return [item for item in items if way_of(item) == way]


def _that_failed_last(config: pytest.Config, items: list[pytest.Item]) -> list[pytest.Item]:
    """None, where what failed last is gone: pytest would run everything."""
    failed = config.cache.get("cache/lastfailed", {}) if config.getoption("lf", default=False) else {}
    return items if not failed or any(item.nodeid in failed for item in items) else []


def _fast(items: list[pytest.Item]) -> set[str]:
    found = set()
    tasted: set[tuple[str, str, str]] = set()
    for item in items:
        if _is_fast(item):
            found.add(item.nodeid)
            continue
        attack = _parameters(item).get("attack")
        taste = (way_of(item) or "", item.path.parent.name, getattr(attack, "group", ""))
        if taste not in tasted:
            tasted.add(taste)
            found.add(item.nodeid)
    return found


def _sample(items: list[pytest.Item]) -> set[str]:
    """Each case once, on one of the other ways that it has."""
    others: defaultdict[str, list[str]] = defaultdict(list)
    for item in items:
        if way_of(item) in OTHER_WAYS:
            others[_name_without_way(item)].append(item.nodeid)
    # Python's own hash of a text differs from process to process.
    return {
        sorted(cases)[int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) % len(cases)]
        for name, cases in others.items()
    }


def _name_without_way(item: pytest.Item) -> str:
    """The name of a case, the same on all its ways."""
    function, _, parameters = item.nodeid.partition("[")
    way = re.escape(way_of(item) or "")
    return f"{function}[" + re.sub(rf"^(|.*[^a-z]){way}(?![a-z])", r"\1*", parameters, flags=re.DOTALL)
