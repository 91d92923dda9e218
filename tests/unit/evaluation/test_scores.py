"""pass@k, and the results that it is made of: kept, resumed, given as rewards."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from contextlib import closing
from math import comb
from pathlib import Path

import pytest

from cellblock.cli.evaluation_screen import show_summary
from cellblock.contract.evaluations import TrialResult, TrialVerdict
from cellblock.errors import InvalidJob
from cellblock.evaluation import (
    EvaluationOptions,
    ResultFile,
    Sample,
    SampleResult,
    Scores,
    mean_pass_at_k,
    pass_at_k,
    rewards,
)
from judged import PROBLEM, result, sample


def test_the_estimator_is_the_combinatorial_one() -> None:
    for n in range(1, 13):
        for c in range(n + 1):
            for k in range(1, n + 1):
                assert pass_at_k(n, c, k) == pytest.approx(1 - comb(n - c, k) / comb(n, k), abs=1e-12)
    for n, c, k in ((1, 2, 1), (1, -1, 1), (1, 1, 2), (1, 1, 0)):
        with pytest.raises(ValueError, match="no such estimate"):
            pass_at_k(n, c, k)


def test_an_interval_holds_its_figure_and_comes_again_with_its_seed() -> None:
    counts = [(10, n % 11) for n in range(50)]
    found = mean_pass_at_k(counts, 1, seed=3)
    assert found is not None
    assert found.low < found.value < found.high
    assert found == mean_pass_at_k(counts, 1, seed=3) != mean_pass_at_k(counts, 1, seed=4)
    assert mean_pass_at_k(counts, 11) is None
    assert mean_pass_at_k([], 1) is None


def test_a_folder_in_which_nothing_has_come_of_a_run_takes_another(tmp_path: Path) -> None:
    ResultFile(tmp_path, {"image": "mistyped"}).close()
    ResultFile(tmp_path, {"image": None}).close()
    (tmp_path / "a file").touch()
    with pytest.raises(InvalidJob, match=r"--out: .*a file cannot be made a folder"):
        ResultFile(tmp_path / "a file", {})


def test_rewards_are_those_of_the_options_that_are_given() -> None:
    given: list[tuple[EvaluationOptions, ...]] = []

    def evaluate(
        samples: Iterable[Sample], *options: EvaluationOptions
    ) -> Iterator[tuple[Sample, TrialResult]]:
        given.append(options)
        return iter([])

    options = EvaluationOptions(fields={"limits": {"timeout_s": 3.0}})
    rewards(evaluate, [PROBLEM], ["a"], options)
    rewards(evaluate, [PROBLEM], ["a"])
    assert given == [(options,), ()]


def test_summary_recommends_no_verdict_that_a_program_can_forge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = Scores(["a"])
    scores.add(SampleResult.of(sample(0), result(TrialVerdict.NEEDS_INLINE)))
    show_summary({**scores.summary([1]), "bad_lines": [], "left_out": 0}, tmp_path)
    shown = capsys.readouterr().out
    assert "not passed: a test or a returned object there needs more than plain values" in shown
    assert "inline" not in shown.replace("needs_inline", "")


def test_no_estimate_is_made_of_samples_that_were_left_out() -> None:
    scores = Scores(["a"])
    scores.add(SampleResult.of(sample(0), result(TrialVerdict.PASSED)))
    summary = scores.summary([1], not_run=3)
    assert summary["pass_at"] == {"1": None}
    assert summary["tasks"]["a"]["pass_at"] == {}
    assert (summary["problems_solved"], summary["not_run"]) == (1, 3)


def test_scores_keep_our_faults_out_and_count_the_rest() -> None:
    scores = Scores(["a", "b"])
    for index, verdict in enumerate(["passed", "failed", "timed_out", "needs_inline", "unjudged"]):
        scores.add(SampleResult.of(sample(index), result(TrialVerdict(verdict))))
    summary = scores.summary([1, 4, 5])
    assert summary["tasks"]["a"]["judged"] == 4
    assert summary["pass_at"]["1"]["value"] == 0.25
    assert summary["pass_at"]["4"]["value"] == 1.0
    assert summary["pass_at"]["5"] is None, "the one not judged is no part of it"
    assert summary["needs_inline"] == ["a"]
    assert summary["problems_judged"] == 1
    json.dumps(summary)


def test_results_are_resumed_where_they_were_cut(tmp_path: Path) -> None:
    asked = {"samples": "1"}
    file = ResultFile(tmp_path, asked)
    for index, verdict in enumerate(["passed", "unjudged", "failed"]):
        file.write(sample(index), result(TrialVerdict(verdict)))
    with pytest.raises(InvalidJob, match="being written by another run"):
        ResultFile(tmp_path, asked)
    file.close()
    path = tmp_path / "results.jsonl"
    path.write_bytes(path.read_bytes() + b'{"index": 3, "task')
    again = ResultFile(tmp_path, asked)
    assert [(one.index, one.verdict.value) for one in again] == [(0, "passed"), (2, "failed")]
    again.write(sample(1), result(TrialVerdict.PASSED))
    again.close()
    with closing(ResultFile(tmp_path, asked)) as last:
        assert [one.index for one in last] == [0, 2, 1]
    with pytest.raises(InvalidJob, match="holds a run with samples '1'; '2' requested: name another"):
        ResultFile(tmp_path, {"samples": "2"})


def test_other_samples_in_a_folder_are_told_by_file_name(tmp_path: Path) -> None:
    with closing(ResultFile(tmp_path, {"samples": "9f86d0"}, {"samples": "model-a.jsonl"})) as file:
        file.write(sample(0), result(TrialVerdict.PASSED))
    told = "holds a run with samples from model-a.jsonl; model-b.jsonl has other content: name another folder"
    with pytest.raises(InvalidJob, match=told):
        ResultFile(tmp_path, {"samples": "60303a"}, {"samples": "model-b.jsonl"})


def test_results_that_are_not_ours_are_named_with_their_line(tmp_path: Path) -> None:
    with closing(ResultFile(tmp_path, {})) as file:
        file.write(sample(0), result(TrialVerdict.PASSED))
    with (tmp_path / "results.jsonl").open("a") as kept:
        kept.write("{}\n")
    with pytest.raises(InvalidJob, match="line 2: is not a result of this program"):
        ResultFile(tmp_path, {})
    (tmp_path / "run.json").write_text("[")
    with pytest.raises(InvalidJob, match=r"run\.json cannot be read"):
        ResultFile(tmp_path, {})


def test_rewards_keep_their_order_and_say_what_could_not_be_judged() -> None:
    words = iter(["passed", "unjudged", "failed"])

    def evaluate(samples: Iterable[Sample]) -> Iterator[tuple[Sample, TrialResult]]:
        judged = [(one, result(TrialVerdict(word))) for one, word in zip(samples, words, strict=True)]
        return reversed(judged)

    found = rewards(evaluate, [PROBLEM] * 3, ["a", "b", "c"])
    assert (found[0], math.isnan(found[1]), found[2]) == (1.0, True, 0.0)
    with pytest.raises(ValueError, match="1 problems and 0 completions: give one for each"):
        rewards(evaluate, [PROBLEM], [])


def test_no_estimate_is_made_where_one_problem_has_too_few_samples() -> None:
    assert mean_pass_at_k([(12, 1), (10, 1)], 11) is None
