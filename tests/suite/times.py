"""How long each case took, where, and how much of it was waiting. A pytest plugin: ``-p suite.times``.

Writes ``build/tests/times.json`` (``TIMES`` names another file).
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from suite.census import Census
from suite.warm import forked

_DEFAULT = Path(__file__).resolve().parents[2] / "build" / "tests" / "times.json"


class Times:
    """The phases of every case, in seconds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began = time.time()
        self._census = Census()
        self._cases: dict[str, dict[str, Any]] = {}
        self._forked: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note one phase of one case."""
        case = self._cases.setdefault(report.nodeid, {})
        case[report.when or "call"] = round(report.duration, 4)
        case.setdefault("began_s", round(report.start - self._began, 1))
        case["outcome"] = report.outcome if report.failed else case.get("outcome", report.outcome)
        case |= dict(report.user_properties)
        case["process"] = getattr(report, "worker_id", "main")
        if report.when == "teardown":
            self._forked.update(case["forked"])

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        wall_s = round(time.time() - self._began, 1)
        started = {"started": self._census.close(), "forked": self._forked}
        found = {"wall_s": wall_s, **started, "cases": self._cases}
        self._path.write_text(json.dumps(found, indent=1))


class _Slept:
    """How long the main thread of a process that runs cases has slept."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self._sleep = time.sleep
        time.sleep = self._counted  # type: ignore[assignment]

    def _counted(self, seconds: float) -> None:
        began = time.monotonic()
        self._sleep(seconds)
        if threading.current_thread() is threading.main_thread():
            self.total_s += time.monotonic() - began

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Tell what has been slept so far."""
        item.user_properties += [("slept_s", round(self.total_s, 3)), ("forked", dict(forked))]
        self.total_s = 0.0
        forked.clear()


def pytest_configure(config: pytest.Config) -> None:
    """Cases are timed where they are reported, sleep where they run."""
    config.pluginmanager.register(_Slept())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Times(Path(os.environ.get("TIMES", _DEFAULT))))
