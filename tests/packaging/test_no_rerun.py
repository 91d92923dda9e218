"""What a second run must not make good carries the marker ``no_rerun``: it cannot be forgotten."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from parts import REPOSITORY

TESTS = REPOSITORY / "tests"
#: Suites of attacks, and of programs that attack a verdict.
ATTACKS = ("attacks/", "sandbox/test_hostile_")
#: Where what must hold of the ledger is written down, with the names that say it: each job ends once, nothing
#: changed, no micro is lost. Without names: whatever is imported from there.
INVARIANTS = {
    "hypothesis.stateful": {"invariant"},
    "ledger.kit": {"dump", "events_of", "story"},
    "faults": {"chaos", "store_chaos", "full_store", "soak", "archive_soak"},
    "sandbox.weakened": set(),
}
#: The accounts of a tenant.
MONEY = {"spent_micros", "reserved_micros"}


def must_hold(module: str, text: str) -> str:
    """Why no case of this module may be run again; empty where all may."""
    if module.startswith(ATTACKS):
        return "attacks"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module in INVARIANTS:
            names = {alias.name for alias in node.names}
            if shared := names & (INVARIANTS[node.module] or names):
                return f"{node.module}: {', '.join(sorted(shared))}"
        if isinstance(node, ast.Attribute) and node.attr in MONEY:
            return node.attr
    return ""


def is_marked(text: str) -> bool:
    """Whether every case of a module carries the marker."""
    marks = [
        ast.unparse(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    return any("pytest.mark.no_rerun" in mark for mark in marks)


@pytest.fixture(scope="module")
def reasons() -> dict[Path, str]:
    """Every module of tests of which no case may be run again, with the reason."""
    found = {
        path: must_hold(str(path.relative_to(TESTS)), path.read_text()) for path in TESTS.rglob("test_*.py")
    }
    return {path: why for path, why in found.items() if why}


def test_what_must_hold_is_never_run_again(reasons: dict[Path, str]) -> None:
    forgotten = {str(path): why for path, why in reasons.items() if not is_marked(path.read_text())}
    assert not forgotten, "add pytestmark = pytest.mark.no_rerun"


@pytest.mark.parametrize(
    "kind", ["attacks", "invariant", "dump", "story", "chaos", "weakened", "spent_micros"]
)
def test_each_kind_is_found(reasons: dict[Path, str], kind: str) -> None:
    assert any(kind in why for why in reasons.values())


def test_a_module_without_the_marker_is_noticed() -> None:
    text = "from ledger.kit import admit, dump\npytestmark = [pytest.mark.docker]\n"
    assert must_hold("ledger/test_x.py", text) == "ledger.kit: dump"
    assert not is_marked(text)
    assert is_marked(text.replace("docker]", "docker, pytest.mark.no_rerun]"))
    assert not must_hold("ledger/test_x.py", "from ledger.kit import admit\n")
