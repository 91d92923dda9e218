"""Cases that failed run once more alone: what is red, what is unsteady, and what no second run makes good."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from parts import REPOSITORY, descendants
from suite import closing, once_more, unsteady
from suite.closing import Counts, Failure

pytest_plugins = ["pytester"]

Judged = Callable[..., int]

#: Cases of which each ``unsteady`` one fails the first time in this folder and passes the second time.
CASES = """
import os, pathlib, pytest

def fails_first(name):
    file = pathlib.Path(__file__).with_name(name)
    first = not file.exists()
    file.touch()
    return first

def test_good(): pass

def test_unsteady_a(): assert not fails_first("a"), "the host stood still"

def test_unsteady_b(): assert not fails_first("b"), "the host stood still"
"""
BAD = """
def test_bad(request):
    request.addfinalizer(lambda: 1 / 0)
    assert 1 == 2, "in its call"

@pytest.mark.no_rerun
def test_got_out(): assert not fails_first("c")

def test_skips_then():
    if not fails_first("d"):
        pytest.skip("at the second look")
    assert 0

def test_ends_its_process():
    if fails_first("e"):
        os._exit(3)
"""
COMMAND = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")


@pytest.fixture
def judged(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Judged:
    """Run these cases as `make test` does; the exit code. Counts are kept in ``counts``."""
    for module in (closing, once_more):
        monkeypatch.setattr(module, "FOLDER", tmp_path / "counts")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY / "tests"))
    pytester.makeini("[pytest]\naddopts = -p suite.tiers -p suite.closing\n")

    def judge(cases: str, *options: str) -> int:
        pytester.makepyfile(test_some=cases)
        return once_more.main(["fast", *COMMAND, *options])

    return judge


def test_a_case_that_passes_alone_is_unsteady_and_the_run_is_green(
    judged: Judged, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert judged(CASES) == 0
    complaint = (
        "test_some.py::test_unsteady_a: failed once, passed alone: AssertionError: the host stood still"
    )
    assert f"unsteady: {complaint}" in capfd.readouterr().out
    counts = Counts.read(tmp_path / "counts" / "fast.json")
    assert (counts.passed, counts.failed, len(counts.unsteady)) == (3, 0, 2)
    kept = json.loads((tmp_path / "counts" / "unsteady.json").read_text())
    cases = [("test_some.py::test_unsteady_a", "fast"), ("test_some.py::test_unsteady_b", "fast")]
    assert [(each["case"], each["tier"]) for each in kept] == cases
    assert closing.main(["fast"]) == 0
    *named, last = capfd.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in named] == ["unsteady", "unsteady"]
    assert last == "tests: 3 passed, 0 failed, 2 unsteady"
    counts.write(tmp_path / "counts" / "rest.json")
    assert closing.main(["fast", "rest"]) == 1, "the tiers' unsteady cases are counted together"
    assert "4 unsteady cases are red: at most 3 pass" in capfd.readouterr().out


def test_what_fails_twice_or_must_not_run_again_is_red(
    judged: Judged, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert judged(CASES + BAD, "-n", "1") == 1
    lines = capfd.readouterr().out.splitlines()
    red = {line.removeprefix("red: test_some.py::") for line in lines if line.startswith("red: ")}
    assert {line.partition(":")[0] for line in red} == {
        "test_bad",
        "test_got_out",
        "test_skips_then",
        "test_ends_its_process",
    }
    assert "test_bad: AssertionError: in its call" in red, "the first of its complaints"
    at_once = [line for line in lines if line.startswith("red at once: ")]
    assert len(at_once) == 2, at_once
    again = [line for line in lines if line.startswith("once more: ")]
    assert len(again) == 4, again
    counts = Counts.read(tmp_path / "counts" / "fast.json")
    assert (counts.passed, counts.failed, len(counts.unsteady)) == (3, 4, 2)
    assert closing.main(["fast"]) == 1


def test_more_than_three_unsteady_cases_are_red(capsys: pytest.CaptureFixture[str]) -> None:
    failures = tuple(Failure(f"test_{name}", "late", may_rerun=True) for name in "abcd")
    assert Counts(passed=9, unsteady=failures[:3]).green
    assert not Counts(passed=9, unsteady=failures).green


def test_many_failures_have_one_cause_and_none_is_run_again(capfd: pytest.CaptureFixture[str]) -> None:
    failures = tuple(Failure(f"test_{number}", "late", may_rerun=True) for number in range(11))
    counts = Counts(failed=11, failures=failures)
    assert once_more.judge(counts, "fast") is counts
    assert "once more:" not in capfd.readouterr().out


@pytest.mark.parametrize("cases", ["def test_broken(:\n", "import no_such_module\n"])
def test_a_run_that_did_not_come_to_its_end_is_red(judged: Judged, cases: str) -> None:
    assert judged(cases) == pytest.ExitCode.INTERRUPTED


def test_a_single_case_was_alone_already(judged: Judged, capfd: pytest.CaptureFixture[str]) -> None:
    assert judged(CASES, "test_some.py::test_unsteady_a") == 1
    assert "once more:" not in capfd.readouterr().out


def test_how_often_a_case_fails_under_load_is_told(
    judged: Judged,
    pytester: pytest.Pytester,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unsteady, "busy_processors", nullcontext)  # the load itself is the next test's
    pytester.makepyfile(test_some=CASES)
    assert unsteady.main(["test_some.py::test_unsteady_a", "--times", "2"]) == 1
    printed = capfd.readouterr().out
    assert "test_some.py::test_unsteady_a failed 1 of 2 times, with every processor busy" in printed
    assert "1 x AssertionError: the host stood still" in printed
    assert unsteady.main(["test_some.py::test_gone", "--times", "1"]) == 2


def test_every_processor_is_busy_while_a_case_is_tried() -> None:
    before = set(descendants(os.getpid()))
    with unsteady.busy_processors():
        assert len(set(descendants(os.getpid())) - before) == len(os.sched_getaffinity(0))
    assert set(descendants(os.getpid())) == before
