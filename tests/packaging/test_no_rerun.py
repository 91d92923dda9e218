"""What a second run must not make good carries the marker ``no_rerun``: it cannot be forgotten."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from parts import REPOSITORY

TESTS = REPOSITORY / "tests"
#: Suites and modules that assert what must hold: attacks and cheats are held, canaries notice a missing
#: control, each job ends once, no micro is lost.
BY_PATH = (
    *("attacks/", "ledger/"),
    *("sandbox/test_hostile_", "sandbox/test_pytest_problems.py", "sandbox/test_oci.py"),
    *("sandbox/test_namespaces.py", "sandbox/test_scope.py", "e2e/test_doctor.py", "e2e/test_demo.py"),
    *("faults/test_redis_for_real.py", "faults/test_store_users.py"),
)
#: A module that imports one of these names asserts it as well; an empty set stands for every name.
BY_IMPORT: dict[str, frozenset[str]] = {
    "hypothesis.stateful": frozenset({"invariant"}),
    "ledger.kit": frozenset({"dump", "events_of", "story"}),
    "faults": frozenset({"chaos", "store_chaos", "full_store", "soak", "archive_soak"}),
    **dict.fromkeys(("faults.one_host", "faults.hosts", "sandbox.weakened"), frozenset()),
    **dict.fromkeys(("attacks.cheats", "attacks.pytest_cheats", "attacks.table"), frozenset()),
}
#: The accounts of a tenant, as attributes and in JSON.
MONEY = {f"{word}_micros" for word in ("spent", "reserved")}


def must_hold(module: str, text: str) -> str:
    """Why no case of this module may run again; empty where all may."""
    if module.startswith(BY_PATH):
        return module
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module in BY_IMPORT:
            names = {alias.name for alias in node.names}
            if shared := names & (BY_IMPORT[node.module] or names):
                return f"{node.module}: {', '.join(sorted(shared))}"
        if isinstance(node, ast.Attribute) and node.attr in MONEY:
            return node.attr
        if isinstance(node, ast.Constant) and node.value in MONEY:
            return str(node.value)
    return ""


def is_marked(text: str) -> bool:
    """Whether every case of a module carries the marker."""
    marks = [
        ast.unparse(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    return bool(marks) and "pytest.mark.no_rerun" in marks[-1]


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
    "kind",
    ["attacks/", "ledger/", "faults.one_host", "dump", "chaos", "weakened", "CHEATS", "_micros"],
)
def test_each_kind_is_found(reasons: dict[Path, str], kind: str) -> None:
    assert any(kind in why for why in reasons.values())


def test_a_module_without_the_marker_is_noticed() -> None:
    text = "from ledger.kit import admit, dump\npytestmark = [pytest.mark.docker]\n"
    assert must_hold("e2e/test_x.py", text) == "ledger.kit: dump"
    assert not is_marked(text)
    assert is_marked(text.replace("docker]", "docker, pytest.mark.no_rerun]"))
    assert not is_marked("pytestmark = pytest.mark.no_rerun\npytestmark = pytest.mark.docker\n")
    assert must_hold("ledger/test_x.py", "pass\n")
    assert not must_hold("e2e/test_x.py", "from ledger.kit import admit\n")
