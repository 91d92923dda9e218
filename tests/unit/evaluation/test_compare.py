"""Two runs compared: the test by hand and by brute force, the interval, the command."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from cellblock.cli.root import app
from cellblock.errors import InvalidJob, NotConfigured
from cellblock.evaluation import comparison as module
from cellblock.evaluation.comparison import FLIPS, compare, interval, sign_flip_p
from folders import hostile_folder, rates, result_folder, trial

HALF = Fraction(1, 2)
DIFFERENCES = st.lists(st.builds(Fraction, st.integers(-6, 6), st.integers(6, 7)), max_size=8)


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([], 1.0),
        ([0, 0], 1.0),
        ([1], 1.0),  # +1 or -1: both as far
        ([1, 1, 1], 2 / 8),  # only all of one sign
        ([1, 1, 1, *[0] * 30], 2 / 8),  # what is the same says nothing, nor is it more to try
        ([1, HALF], 2 / 4),  # of ±1.5 and ±0.5
        ([1, -HALF], 1.0),  # 0.5: none is nearer
        ([1, 1, 1, -1], 10 / 16),  # 2 or farther: 4 + 1 choices, and as many below
        ([Fraction(1, 3)] * 5 + [Fraction(-1, 3)], 14 / 64),  # 4/3 or farther: 6 + 1, and as many below
    ],
)
def test_p_is_what_counting_by_hand_gives(differences: list[Fraction], p: float) -> None:
    assert sign_flip_p([Fraction(one) for one in differences]) == p


@given(DIFFERENCES)
def test_p_is_the_share_of_all_choices_of_signs(differences: list[Fraction]) -> None:
    total = abs(sum(differences, Fraction()))
    sums = [
        abs(sum((sign * one for sign, one in zip(signs, differences, strict=True)), Fraction()))
        for signs in product((1, -1), repeat=len(differences))
    ]
    assert sign_flip_p(differences) == sum(one >= total for one in sums) / len(sums)


def test_drawn_signs_come_near_to_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    differences = [Fraction(n % 5 - 1, 4) for n in range(18)]  # 14 of them are not 0
    exact = sign_flip_p(differences)
    monkeypatch.setattr(module, "EXACT_MOST", 0)
    drawn = sign_flip_p(differences, seed=1)
    assert 0.005 < exact < 0.5
    assert drawn == pytest.approx(exact, abs=0.012)  # three standard errors at 10,000 draws are less
    assert drawn == sign_flip_p(differences, seed=1) != sign_flip_p(differences, seed=2)


def test_drawn_p_is_never_0() -> None:
    assert sign_flip_p([Fraction(1)] * 100) == 1 / (1 + FLIPS)


def test_the_interval_has_the_mean_and_the_bounds_of_what_can_be_drawn() -> None:
    assert interval([HALF] * 7) == (0.5, 0.5)
    assert interval([Fraction(0), Fraction(1)]) == (0.0, 1.0)  # a quarter of all draws at either end
    low, high = interval([Fraction(n, 100) for n in range(101)], seed=3)
    # The mean's standard error is 0.292 / sqrt(101) = 0.029; 1.96 of them to either side of 0.5.
    assert (low, high) == pytest.approx((0.443, 0.557), abs=0.01)
    with pytest.raises(ValueError, match="no such interval"):
        interval([])


def two_runs(tmp_path: Path) -> tuple[Path, Path]:
    a = result_folder(tmp_path / "a", rates(f="3/4", g="1/2", h="0/1", only="1/1"), timeout_s=3.0)
    b = result_folder(tmp_path / "b", rates(h="1/1", f="1/4", g="2/4", other="1/1"), timeout_s=5.0)
    return a, b


def test_problems_are_paired(tmp_path: Path) -> None:
    found = compare(*two_runs(tmp_path))
    assert [(pair.task_id, pair.difference) for pair in found.pairs] == [("f", -HALF), ("g", 0), ("h", 1)]
    assert [pair.task_id for pair in (*found.worse, *found.better)] == ["f", "h"]
    assert (found.same, found.only_a, found.only_b) == (1, ("only",), ("other",))
    assert found.differs == {"timeout_s": (3.0, 5.0)}
    assert (found.rate_a, found.rate_b) == pytest.approx((1.25 / 3, 1.75 / 3))
    assert (found.difference, found.p) == pytest.approx((0.5 / 3, 1.0))
    assert found.low <= found.difference <= found.high


@pytest.mark.parametrize("problems", [12, 60])
def test_the_other_way_round_the_difference_is_the_other_and_p_is_not(tmp_path: Path, problems: int) -> None:
    first = {f"t{n}": f"{n % 3}/4" for n in range(problems)}
    second = {f"t{n}": f"{n * 7 % 5}/4" for n in reversed(range(problems))}
    a, b = (result_folder(tmp_path / name, rates(**given)) for name, given in (("a", first), ("b", second)))
    one, other = compare(a, b, seed=5), compare(b, a, seed=5)
    assert one.p == other.p < 1
    assert (one.difference, one.low, one.high) == (-other.difference, -other.high, -other.low)
    assert [pair.task_id for pair in one.better] == [pair.task_id for pair in other.worse]
    assert one == compare(a, b, seed=5)
    alike = compare(a, a)
    assert (alike.p, alike.difference, alike.low, alike.high, alike.same) == (1.0, 0.0, 0.0, 0.0, problems)


def test_what_was_not_judged_is_no_part_of_it(tmp_path: Path) -> None:
    lost = [("f", trial("unjudged")), ("g", trial("unjudged"))]
    a = result_folder(tmp_path / "a", [*rates(f="1/2"), *lost])
    b = result_folder(tmp_path / "b", rates(f="1/2", g="1/1"))
    found = compare(a, b)
    assert (len(found.pairs), found.difference, found.only_b) == (1, 0, ("g",))


@pytest.mark.parametrize(
    ("others", "asked", "said"),
    [
        ({"z": "1/1"}, {}, "no problem of it was judged in .*run both with the same --problems"),
        ({"f": "1/1"}, {"problems": "2"}, "was run with other problems than .*run both with the same --prob"),
        ({"f": "1/1"}, {"problems": None}, None),
    ],
)
def test_runs_that_have_nothing_in_common_are_refused(
    tmp_path: Path, others: dict[str, str], asked: dict[str, Any], said: str | None
) -> None:
    a = result_folder(tmp_path / "a", rates(f="1/1"))
    b = result_folder(tmp_path / "b", rates(**others), **asked)
    if said is None:
        assert compare(a, b).p == 1
        return
    with pytest.raises(InvalidJob, match=said):
        compare(a, b)


def test_runs_whose_samples_hang_on_each_other_are_not_compared(tmp_path: Path) -> None:
    a, b = two_runs(tmp_path)
    summary = json.loads((b / "summary.json").read_text())
    (b / "summary.json").write_text(json.dumps({**summary, "not_run": 7}))
    with pytest.raises(InvalidJob, match=r"b: 7 of its samples were not run .*without --stop-early"):
        compare(a, b)
    (b / "summary.json").unlink()
    with pytest.raises(InvalidJob, match=r"summary\.json: cannot be read; run the same"):
        compare(a, b)


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    a, b = two_runs(tmp_path)
    with pytest.raises(InvalidJob, match=r"nothing/run\.json: cannot be read; name the --out"):
        compare(a, tmp_path / "nothing")
    (b / "results.jsonl").unlink()
    with pytest.raises(
        InvalidJob, match=r"b/results\.jsonl: cannot be read: No such file or directory; name"
    ):
        compare(a, b)


def run(*arguments: str, **environment: str) -> Any:
    return CliRunner().invoke(app, list(arguments), prog_name="cellblock", env=environment)


def test_the_command_says_whether_it_is_more_than_chance(tmp_path: Path) -> None:
    a, b = map(str, two_runs(tmp_path))
    done = run("eval", "compare", a, b)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[:2] == [
        f"A          41.67% passed  ({a})",
        f"B          58.33% passed  ({b})",
    ]
    assert "difference +16.67 points" in done.stdout
    assert "Of 2 problems that differ, nothing could be more than chance (p = 1)." in done.stdout
    assert "3 problems judged in both: 1 better in B, 1 worse, 1 the same" in done.stdout
    assert "judged in A only: 'only'" in done.stderr
    assert "the runs differ in timeout_s: 3.0 in A, 5.0 in B" in done.stderr
    names = {f"t{n}": "0/1" for n in range(12)}
    low = result_folder(tmp_path / "low", rates(**names))
    high = result_folder(tmp_path / "high", rates(**dict.fromkeys(names, "1/1")))
    some = result_folder(
        tmp_path / "some", rates(**{name: f"{number % 2}/1" for number, name in enumerate(names)})
    )
    other = result_folder(
        tmp_path / "other", rates(**{name: f"{(number + 1) % 2}/1" for number, name in enumerate(names)})
    )
    even = run("eval", "compare", str(some), str(other))
    assert "The difference is no more than chance would make (p = 1)." in even.stdout
    better, worse = (run("eval", "compare", str(one), str(two)) for one, two in ((low, high), (high, low)))
    assert "B is better than A, by more than chance would make (p = 0.000488)." in better.stdout
    assert "B is worse than A, by more than chance would make (p = 0.000488)." in worse.stdout
    assert "and 2 more" in worse.stdout


def test_everything_is_there_as_json(tmp_path: Path) -> None:
    a, b = map(str, two_runs(tmp_path))
    done = run("eval", "compare", a, b, "--json", "--seed", "4")
    found = json.loads(done.stdout)
    assert (found["problems"], found["better"], found["worse"], found["same"], found["p"]) == (3, 1, 1, 1, 1)
    assert (found["only_a"], found["differs"]) == (["only"], {"timeout_s": [3.0, 5.0]})
    assert found["tasks"]["f"] == {
        "judged_a": 4,
        "passed_a": 3,
        "judged_b": 4,
        "passed_b": 1,
        "difference": -0.5,
    }
    assert run("eval", "compare", a, b, "--json", "--seed", "4").stdout == done.stdout


def test_the_page_has_what_got_worse_before_what_got_better(tmp_path: Path) -> None:
    a, b = map(str, two_runs(tmp_path))
    page = tmp_path / "changes.html"
    done = run("eval", "compare", a, b, "--page", str(page))
    assert (done.exit_code, f"the page is {page}" in done.stderr) == (0, True)
    text = page.read_text()
    assert text.index("Passed less in B: 1") < text.index("3 of 4") < text.index("Passed more in B: 1")
    assert "−50.0" in text  # noqa: RUF001 - the minus of the page
    assert "Judged in B only: 1" in text
    before = page.read_bytes()
    run("eval", "compare", a, b, "--page", str(page))
    assert page.read_bytes() == before


def test_the_page_needs_jinja2_and_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = map(str, two_runs(tmp_path))
    nowhere = run("eval", "compare", a, b, "--page", str(tmp_path / "no/page.html"))
    assert isinstance(nowhere.exception, InvalidJob)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert run("eval", "compare", a, b).exit_code == 0
    refused = run("eval", "compare", a, b, "--page", str(tmp_path / "page.html"))
    assert isinstance(refused.exception, NotConfigured)
    assert "page.html needs jinja2: pip install 'cellblock[eval]'" in str(refused.exception)


def test_hostile_names_do_nothing_to_a_terminal(tmp_path: Path) -> None:
    a = result_folder(tmp_path / "a", rates(**{"\x1b]0;owned\x07\u202e": "1/1"}))
    b = result_folder(tmp_path / "b", rates(**{"\x1b]0;owned\x07\u202e": "0/1"}))
    assert "'\\x1b]0;owned\\x07\\u202e'" in run("eval", "compare", str(a), str(b)).stdout
    hostile = hostile_folder(tmp_path / "c", "http://cellblock.invalid")
    page = tmp_path / "page.html"
    assert run("eval", "compare", str(hostile), str(hostile), "--page", str(page)).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--help",), "cellblock eval compare A B"),
        (("--help",), "Example: cellblock eval samples.jsonl"),
        (("compare", "--help"), "Usage: cellblock eval compare"),
        ((), "Missing argument 'SAMPLES"),
        (("./compare",), "Missing option '--problems'"),
        (("own",), "Missing option '--problems'"),
        (("compare",), "Missing argument 'A'"),
    ],
)
def test_eval_is_a_command_and_a_group(arguments: tuple[str, ...], said: str) -> None:
    output = " ".join(run("eval", *arguments).output.split())
    assert said in output


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("cellblock eval --pro", "--problems"),
        ("cellblock eval compare --p", "--page"),
        ("cellblock eva", "eval"),
    ],
)
def test_the_shell_completes_both(words: str, offered: str) -> None:
    done = run(_CELLBLOCK_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1))
    assert done.output.split() == [offered]
