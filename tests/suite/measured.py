"""What differs under coverage.py. As a plugin, ``-p suite.measured``, it saves what was measured.

coverage.py itself saves when the interpreter ends, and execnet kills workers that take too long to end.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from coverage import Coverage

#: What coverage.py tells the processes that tests start.
_SETTINGS = "COVERAGE_PROCESS_CONFIG"
#: Where guests come by a file of this host.
_TRACED = {"process", "none", "namespaces"}


def launcher_of(isolation: str, ordinary: Sequence[str]) -> tuple[Sequence[str], dict[str, str]]:
    """The launcher for tests of this isolation, as arguments of the interpreter, and its variables.

    Under coverage.py one whose guests note their arcs, else the ordinary one.
    """
    if _SETTINGS in os.environ and isolation in _TRACED:
        return ("-m", "suite.traced_launcher"), {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    return ordinary, {}


def unmeasured(environment: Mapping[str, str]) -> dict[str, str]:
    """These variables for a process that coverage.py leaves alone, and all that it starts."""
    return {name: value for name, value in environment.items() if name != _SETTINGS}


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Save; what is measured from here on is added at the end."""
    if (measuring := Coverage.current()) is not None:
        measuring.save()
