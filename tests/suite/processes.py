"""Which cases share a process, and which of them begin first. A pytest plugin that is always on.

Cases of one way of making sandboxes are one group, so that its launcher starts once. Cases marked
``whole_host`` or ``quiet_host`` are one group, and so are those that use the fleet's launcher. All others
are grouped by module.

pytest-xdist's own groups (``--dist loadgroup``) write the group into the case's id, which pytest 9.2 computes
anew each time. So the processes that collect leave the groups in a file, and the one that schedules reads it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from suite import turns
from suite.tiers import way_of

_WHOLE_HOST, _FLEET = "whole host", "fleet"
#: What begins first takes longest: what comes last should be short.
_SLOWEST_FIRST = (
    *("gvisor-oci", _WHOLE_HOST, "namespaces"),
    *("gvisor-docker", "runc-docker", "systemd", "runc-oci"),
    _FLEET,
)
_SUITES_SLOWEST_FIRST = ("faults", "e2e", "sandbox", "attacks", "compat", "packaging", "ledger", "unit")
_FILE = "cellblock_groups"


def group_of(item: pytest.Item) -> str:
    """The cases that have to run in one process."""
    if item.get_closest_marker("whole_host") or item.get_closest_marker("quiet_host"):
        return _WHOLE_HOST
    fixtures: Iterable[str] = getattr(item, "fixturenames", ())
    return way_of(item) or (_FLEET if "launcher_socket" in fixtures else item.nodeid.partition("::")[0])


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Hands out whole groups, in the order of :func:`_rank`."""

    def __init__(self, config: pytest.Config, log: Any, groups: Path) -> None:
        super().__init__(config, log)
        self._file = groups
        self._groups: dict[str, str] = {}

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        """A process has collected, so it has left its groups."""
        self._groups = self._groups or json.loads(self._file.read_text())
        super().add_node_collection(node, collection)

    def remove_node(self, node: WorkerController) -> str | None:
        """A process has ended: at which case, if at any. That is not run again, or it would end the next."""
        left = [
            (cases, name)
            for cases in self.assigned_work[node].values()
            for name, done in cases.items()
            if not done
        ]
        if left:
            cases, crashed = left[0]
            cases[crashed] = True
        super().remove_node(node)
        return crashed if left else None

    def _split_scope(self, nodeid: str) -> str:
        return self._groups[nodeid]


def pytest_configure(config: pytest.Config) -> None:
    """Where cases are scheduled, a place for the groups."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Controller(config))


class _Controller:
    """What the process does that schedules."""

    def __init__(self, config: pytest.Config) -> None:
        folder = tempfile.TemporaryDirectory(prefix="cellblock-groups-")
        config.add_cleanup(folder.cleanup)
        self._groups = Path(folder.name) / "groups.json"

    def pytest_configure_node(self, node: WorkerController) -> None:
        """Tell a process where to leave its groups."""
        node.workerinput[_FILE] = str(self._groups)

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Scheduling:
        """Groups as they are here, whatever ``--dist`` says."""
        return Scheduling(config, log, self._groups)


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """``-n auto``: as many as there are turns; none for one named case."""
    if any("::" in argument for argument in config.args):
        return 0
    return turns.processes()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the cases by group."""
    items.sort(key=_rank)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> Generator[None, Any, None]:
    """Leave the groups before the scheduling process hears of the cases."""
    if path := getattr(session.config, "workerinput", {}).get(_FILE):
        new = Path(f"{path}.{os.getpid()}")
        new.write_text(json.dumps({item.nodeid: group_of(item) for item in session.items}))
        new.replace(path)
    yield


def _rank(item: pytest.Item) -> tuple[int, int, str]:
    """Where a case stands. A group must not be torn apart."""
    group = group_of(item)
    if group in _SLOWEST_FIRST:
        return _SLOWEST_FIRST.index(group), 0, group
    suite = item.nodeid.partition("/")[2].partition("/")[0]
    by_suite = _SUITES_SLOWEST_FIRST.index(suite) if suite in _SUITES_SLOWEST_FIRST else 0
    return len(_SLOWEST_FIRST), by_suite, group
