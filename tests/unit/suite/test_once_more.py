"""Cases that failed run once more alone: what is red, what is unsteady, and what no second run makes good."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from parts import REPOSITORY, descendants
from suite import closing, counts, once_more, unsteady
from suite.counts import Counts, Failure

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
def test_bad(): assert 1 == 2, "in its call"

@pytest.fixture(scope="class")
def shared():
    yield
    assert not fails_first("shared"), "in a teardown"

class TestShared:
    def test_last(self, shared): pass

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
def counts_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where runs leave their counts."""
    monkeypatch.setattr(counts, "FOLDER", tmp_path / "counts")
    return tmp_path / "counts"


@pytest.fixture
def judged(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, counts_folder: Path) -> Judged:
    """Run these cases as `make test` does; the exit code."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY / "tests"))
    pytester.makeini("[pytest]\naddopts = -p suite.tiers -p suite.closing\n")

    def judge(cases: str, *options: str) -> int:
        pytester.makepyfile(test_some=cases)
        return once_more.main(["fast", *COMMAND, *options])

    return judge


def test_a_case_that_passes_alone_is_unsteady_and_the_run_is_green(
    judged: Judged, counts_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert judged(CASES) == 0
    why = "failed once, passed alone: AssertionError: the host stood still"
    assert f"unsteady: test_some.py::test_unsteady_a: {why}" in capfd.readouterr().out
    found = Counts.read(counts_folder / "fast.json")
    assert (found.passed, found.failed, len(found.unsteady)) == (3, 0, 2)
    assert closing.main(["fast"]) == 0
    *named, last = capfd.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in named] == ["unsteady", "unsteady"]
    assert last == "tests: 3 passed, 0 failed, 2 unsteady"
    found.write(counts_folder / "rest.json")
    assert closing.main(["fast", "rest"]) == 1, "the tiers' unsteady cases are counted together"
    assert "red: 4 unsteady cases, more than 3" in capfd.readouterr().out


def test_what_fails_twice_or_must_not_run_again_is_red(
    judged: Judged, counts_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert judged(CASES + BAD, "-n", "1") == 1
    lines = capfd.readouterr().out.splitlines()
    cases = re.findall(r"^(red|red at once): test_some\.py::(\w+)", "\n".join(lines), re.MULTILINE)
    assert sorted(cases) == [
        ("red", "test_bad"),
        ("red", "test_skips_then"),
        ("red at once", "TestShared"),
        ("red at once", "test_ends_its_process"),
        ("red at once", "test_got_out"),
    ]
    assert "red: test_some.py::test_bad: AssertionError: in its call" in lines, "the first of its complaints"
    again = [line for line in lines if line.startswith("once more: ")]
    assert len(again) == 4, again
    found = Counts.read(counts_folder / "fast.json")
    assert (found.passed, found.failed, len(found.unsteady)) == (3, 5, 2)
    assert closing.main(["fast"]) == 1


def test_more_than_three_unsteady_cases_are_red() -> None:
    failures = tuple(Failure(f"test_{name}", "late", may_rerun=True) for name in "abcd")
    assert Counts(passed=9, unsteady=failures[:3]).green
    assert not Counts(passed=9, unsteady=failures).green


def test_many_failures_have_one_cause_and_none_runs_again(capfd: pytest.CaptureFixture[str]) -> None:
    failures = tuple(Failure(f"test_{number}", "late", may_rerun=True) for number in range(11))
    found = Counts(failed=11, failures=failures)
    assert once_more.judge(found) is found
    assert "once more:" not in capfd.readouterr().out


def test_a_case_runs_again_while_this_suite_has_every_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Injected: the turns and the second run only note when they were."""
    notes: list[str] = []

    @contextmanager
    def noted_turns() -> Iterator[None]:
        notes.append("has every turn")
        yield
        notes.append("gave them back")

    monkeypatch.setattr(once_more, "every_turn", noted_turns)

    def noted_run(case: str) -> Counts:
        notes.append(case)
        return Counts(passed=1)

    monkeypatch.setattr(once_more, "run_alone", noted_run)
    failure = Failure("test_a", "late", may_rerun=True)
    assert once_more.judge(Counts(passed=1, failed=1, failures=(failure,))).green
    assert notes == ["has every turn", "test_a", "gave them back"]


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["one process", "xdist"])
@pytest.mark.parametrize("cases", ["def test_broken(:\n", "import no_such_module\n"])
def test_a_module_that_cannot_be_collected_is_red(
    judged: Judged, counts_folder: Path, cases: str, options: tuple[str, ...]
) -> None:
    Path("test_good.py").write_text("def test_good(): pass\n")
    assert judged(cases, *options) != 0
    assert closing.main(["fast"]) == 1


def test_a_run_that_stopped_early_is_red(judged: Judged, capfd: pytest.CaptureFixture[str]) -> None:
    assert judged(CASES, "-x") == 1
    assert "once more:" not in capfd.readouterr().out


def test_a_process_that_ends_pytest_with_success_is_red(judged: Judged) -> None:
    assert judged(CASES + "\ndef test_ends(): os._exit(0)\n") == 1


def test_a_second_run_that_ends_badly_makes_nothing_good(judged: Judged) -> None:
    ends = "\ndef test_ends():\n    if not fails_first('d'): os._exit(0)\n    assert 0\n"
    assert judged(CASES + ends) == 1


def test_a_single_case_was_alone_already(judged: Judged, capfd: pytest.CaptureFixture[str]) -> None:
    assert judged(CASES, "test_some.py::test_unsteady_a") == 1
    assert "once more:" not in capfd.readouterr().out


def test_who_ends_a_run_ends_the_second_runs_too(
    judged: Judged, counts_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Injected: the case itself sends the signal that a user or CI would send."""
    ends = "\ndef test_is_ended():\n    if not fails_first('d'): os.kill(PARENT, 15)\n    assert 0\n"
    cases = CASES + f"PARENT = {os.getpid()}" + ends
    assert judged(cases) == pytest.ExitCode.INTERRUPTED
    assert capfd.readouterr().out.count("once more:") == 3
    assert not list(counts_folder.glob("*"))


def test_counts_that_cannot_be_kept_change_no_verdict(
    judged: Judged, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(counts, "FOLDER", Path("/proc/nowhere"))
    assert judged(CASES) == 0
    assert "the counts are not kept" in capfd.readouterr().out


def test_unsteady_cases_are_remembered_over_runs_within_a_bound(
    counts_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "_REMEMBERED_MAX", 2)
    for name in "abc":
        counts.keep(Counts(unsteady=(Failure(f"test_{name}", "late", may_rerun=True),)), "rest")
    remembered = json.loads((counts_folder / "unsteady.json").read_text())
    assert [(each["case"], each["message"], each["tier"]) for each in remembered] == [
        ("test_b", "late", "rest"),
        ("test_c", "late", "rest"),
    ]
    assert all(each["commit"] and each["at"] for each in remembered)


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


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (Counts(passed=1), 0),
        (None, 1),
        (Counts(skipped=1), 2),
        (Counts(), 2),
        (Counts(passed=2), 2),
    ],
    ids=["passes", "ends its process", "skips", "is not there", "two cases"],
)
def test_what_is_not_one_case_that_runs_is_not_told_as_steady(
    monkeypatch: pytest.MonkeyPatch, found: Counts | None, code: int
) -> None:
    """Injected: what the runs leave behind."""
    monkeypatch.setattr(unsteady, "busy_processors", nullcontext)
    monkeypatch.setattr(unsteady, "run_alone", lambda case: found)
    assert unsteady.main(["tests/test_x.py::test_y", "--times", "1"]) == code


@pytest.mark.parametrize("case", ["", "tests/unit"])
def test_a_folder_is_no_case_to_try(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        unsteady.main([case])
    assert "name it as tests/FILE::CASE" in capsys.readouterr().err


def test_every_processor_is_busy_while_a_case_is_tried() -> None:
    before = set(descendants(os.getpid()))
    with unsteady.busy_processors():
        assert len(set(descendants(os.getpid())) - before) == len(os.sched_getaffinity(0))
    assert set(descendants(os.getpid())) == before
