"""What the suite says of itself: counts, coverage, and the table of mutants."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from parts import REPOSITORY
from suite import closing, counts
from suite.floors import NotMeasured, figures_of_part, percent_of
from suite.guest_tracer import ENTRY, EXIT, JUMP, ROW, SPAN
from suite.mutants import load_mutants

pytest_plugins = ["pytester"]

CASES = """
import pytest

def test_good(): pass

def test_bad(): assert 1 == 2

def test_bad_at_its_end(request): request.addfinalizer(lambda: 1 / 0)

@pytest.mark.skip(reason="the moon is full")
def test_skipped(): pass
"""


def test_every_mutant_fits_its_file_and_names_tests_that_are_there() -> None:
    mutants = load_mutants("")
    assert len(mutants) >= 80
    for mutant in mutants:
        if "-k" in mutant.noticed_by:
            Expression.compile(mutant.noticed_by[mutant.noticed_by.index("-k") + 1])
        path, _, case = mutant.noticed_by[0].partition("::")
        assert (REPOSITORY / path).exists(), mutant
        assert case.partition("[")[0] in (REPOSITORY / path).read_text() if case else True, mutant


def test_a_run_ends_with_its_counts_and_every_skip_by_name(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(counts, "FOLDER", tmp_path / "counts")
    pytester.makepyfile(**{"tests/unit/test_some": CASES})
    done = pytester.runpytest_inprocess("-p", "suite.tiers", "-p", "suite.closing", "--tier", "fast")
    said = "\n".join(done.outlines)
    assert "unit           4 cases" in said
    assert "1 passed, 2 failed, 1 skipped" in said
    assert "skipped: tests/unit/test_some.py::test_skipped: the moon is full" in said
    assert "failed in call: tests/unit/test_some.py::test_bad: assert 1 == 2" in said
    kept = counts.Counts.read(tmp_path / "counts" / "fast.json")
    assert (kept.passed, kept.failed, kept.skipped) == (1, 2, 1)
    assert [failure.case.partition("::")[2] for failure in kept.failures] == [
        "test_bad",
        "test_bad_at_its_end",
    ]
    capsys.readouterr()
    assert closing.main(["fast", "fast"]) == 1
    assert capsys.readouterr().out == "tests: 2 passed, 4 failed, 2 skipped\n"
    assert closing.main(["fast", "rest"]) == 1
    assert capsys.readouterr().err == "the tier rest has not run\n"


def test_counts_that_cannot_be_kept_fail_no_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "FOLDER", Path("/proc/nowhere"))
    pytester.makepyfile("def test_good(): pass")
    done = pytester.runpytest_inprocess("-p", "suite.tiers", "-p", "suite.closing")
    assert done.ret == 0
    assert "the counts are not kept" in "\n".join(done.outlines)


def test_a_part_is_the_sum_of_its_files() -> None:
    folder = "producer/cellblock/ledger/"
    one = Counter(num_statements=8, covered_lines=8, num_branches=2, covered_branches=1)
    other = Counter(num_statements=10, covered_lines=0, num_branches=0, covered_branches=0)
    files = {f"{folder}a.py": one, f"{folder}b/c.py": other, "producer/cellblock/client.py": one}
    assert figures_of_part("ledger", files) == one + other
    assert percent_of(one + other) == pytest.approx(45.0)
    with pytest.raises(NotMeasured, match="guest: there is no"):
        figures_of_part("guest", files)


TRACED = """
import sys
sys.path.insert(0, {suite!r})
from guest_tracer import open_recorder
text = '''recorder.record(globals(), 0, sys._getframe())
def odd(number):
    resume_noting()
    if number % 2:
        return "odd"
    return "even"

def count(most):
    resume_noting()
    found = []
    for number in range(most):
        found.append(odd(number))
    resume_noting()
    return found.count("odd")
'''
variables = {{"recorder": open_recorder({chart!r}), "sys": sys}}
exec(compile(text, "text", "exec"), variables)
assert variables["count"]({most}) == {most} // 2
"""


@pytest.mark.parametrize("most", [4, 400_000])
def test_a_guests_arcs_are_noted_even_around_a_long_loop(tmp_path: Path, most: int) -> None:
    chart = tmp_path / "chart"
    chart.write_bytes(bytes(20 * ROW))
    program = TRACED.format(suite=str(REPOSITORY / "tests" / "suite"), chart=str(chart), most=most)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=50)
    noted = chart.read_bytes()
    found = {divmod(at, ROW) for at in range(len(noted)) if noted[at]}

    def arc(line: int, kind: int, other: int) -> tuple[int, int]:
        return line, (2 * kind + 1) * SPAN + other - line

    expected = {
        *(
            arc(3, ENTRY, 2),
            arc(4, JUMP, 3),
            arc(5, JUMP, 4),
            arc(6, JUMP, 4),
            arc(5, EXIT, 2),
            arc(6, EXIT, 2),
        ),
        *(arc(11, JUMP, 10), arc(12, JUMP, 11), arc(11, JUMP, 12), arc(14, JUMP, 13), arc(14, EXIT, 8)),
    }
    assert expected <= found, expected - found
