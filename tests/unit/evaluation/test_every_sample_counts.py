"""A sample leaves the score by nothing a model can write: what cannot be run has failed, and it says why."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cellblock.contract.evaluations import FunctionCheck, TrialResult, TrialVerdict
from cellblock.contract.outcomes import JobError, Outcome
from cellblock.errors import InvalidJob
from cellblock.evaluation import (
    Campaign,
    EvaluationOptions,
    Problem,
    ProblemSet,
    ResultFile,
    Sample,
    SampleFile,
    SampleResult,
    Scores,
    json_lines,
    rewards,
)
from cellblock.evaluation.report import write_report
from judged import PROBLEM, result, sample
from unit.evaluation.test_campaign import Fleet

MIB = 1024 * 1024
HE = {"task_id": "a", "prompt": "def f(x):\n", "entry_point": "f", "test": "def check(c): pass"}
GOOD = json.dumps({"task_id": "a", "completion": "    return 1\n"}).encode()


def written(path: Path, *rows: bytes) -> Path:
    path.write_bytes(b"".join(row + b"\n" for row in rows))
    return path


def problems(tmp_path: Path) -> ProblemSet:
    return ProblemSet.read(written(tmp_path / "p.jsonl", json.dumps(HE).encode()))


def judged(samples: Iterable[Sample], fleet: Fleet | None = None, **given: Any) -> list[Any]:
    campaign = Campaign((fleet or Fleet()).start, EvaluationOptions(), **given)
    return sorted(campaign.run(samples), key=lambda pair: pair[0].index)


UNUSABLE: dict[str, tuple[bytes, str]] = {
    "a lone surrogate": (rb'{"task_id": "a", "completion": "x = \"\ud800\""}', "not_unicode"),
    "bytes that are no UTF-8": (b'{"task_id": "a", "completion": "x = \xff"}', "not_unicode"),
    "null": (b'{"task_id": "a", "completion": null}', "not_text"),
    "a number": (b'{"task_id": "a", "completion": 3}', "not_text"),
    "NaN": (b'{"task_id": "a", "completion": NaN}', "not_text"),
    "a list": (b'{"task_id": "a", "completion": ["return 1"]}', "not_text"),
    "a list without end": (
        b'{"task_id": "a", "completion": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "unreadable",
    ),
    "a number without end": (b'{"task_id": "a", "completion": ' + b"1" * 5_000 + b"}", "unreadable"),
    "more than a job": (b'{"task_id": "a", "completion": "' + b"#" * 8 * MIB + b'"}', "too_large"),
    "more than a line": (b'{"task_id": "a", "completion": "' + b"#" * 100 * MIB + b'"}', "too_large"),
    "more than a line, its task behind": (
        b'{"completion": "' + rb"\"task_id\": \"z\", " * 6 * MIB + b'", "task_id": "a"}',
        "too_large",
    ),
}


@pytest.mark.parametrize("skip_bad", [False, True])
@pytest.mark.parametrize("name", UNUSABLE)
def test_a_completion_that_cannot_be_run_has_failed(tmp_path: Path, name: str, skip_bad: bool) -> None:
    row, reason = UNUSABLE[name]
    file = SampleFile(written(tmp_path / "s.jsonl", GOOD, row, GOOD), problems(tmp_path), skip_bad=skip_bad)
    scores = Scores(["a"])
    for one, trial in judged(file):
        scores.add(SampleResult.of(one, trial))
        assert trial.verdict.value == ("failed" if one.index == 1 else "passed")
        if one.index == 1:
            assert (one.invalid.reason, trial.error.type) == (reason, "InvalidSample")
            assert trial.outcome is Outcome.REJECTED
            assert len(trial.error.message) < 200
    summary = scores.summary([1, 3])
    assert (summary["pass_at"]["1"]["value"], summary["pass_at"]["3"]["value"]) == (pytest.approx(2 / 3), 1)
    assert summary["invalid"] == {reason: 1}
    assert (summary["account"]["judged"], file.bad.count) == (3, 0)


@pytest.mark.parametrize(
    "completion",
    ["", " ", "\0", "a\rb", "a\r\nb", "\ufeff", "\u2028", "\U0010ffff", "x" * (2 * MIB), "    return '\x1b'"],
    ids=lambda text: f"{text:.4}".encode("unicode_escape").decode(),
)
def test_whatever_else_is_text_runs_as_it_is(tmp_path: Path, completion: str) -> None:
    row = json.dumps({"task_id": "a", "completion": completion}).encode()
    raw = json.dumps({"task_id": "a", "completion": completion}, ensure_ascii=False).encode()
    (one, two) = SampleFile(written(tmp_path / "s.jsonl", row, raw), problems(tmp_path))
    assert one.source == two.source == HE["prompt"] + completion
    fleet = Fleet()
    assert [trial.verdict for _, trial in judged([one], fleet)] == [TrialVerdict.PASSED]
    assert set(fleet.ran) == {one.source}


def test_control_characters_that_nobody_escaped_are_the_samples_own(tmp_path: Path) -> None:
    row = b'{"task_id": "a", "completion": "    return \'\t\x00\r\'"}'
    (one,) = SampleFile(written(tmp_path / "s.jsonl", row), problems(tmp_path))
    assert one.source.endswith("'\t\0\r'")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (b'{"completion": "x"}', "line 2, task_id: required, and missing"),
        (b'{"task_id": null, "completion": "x"}', "line 2, task_id: required, and missing"),
        (b'{"task_id": "z", "completion": "x"}', "line 2, task_id: 'z' is not one of the problems"),
        (b'{"task_id": "z", "completion": ' + b"[" * 100_000, "line 2: is nested too deeply"),
        (b'{"completion": "' + b"#" * 65 * MIB + b'"}', "line 2: is longer than 67108864 bytes"),
        (
            b'{"task_id": "a\xff", "completion": "x"}',
            r"line 2, task_id: 'a\udcff' is not one of the problems",
        ),
        (b'{"task_id": "a", "completion": "x', "line 2: is not JSON"),
        (b"[3]", "line 2: is a list"),
        (b'{"task_id": "a", "completion": "x", "solution": "y"}', "line 2, completion: there is a solution"),
    ],
    ids=range(9),
)
def test_what_is_no_sample_is_named_and_can_be_left_out(tmp_path: Path, row: bytes, said: str) -> None:
    path = written(tmp_path / "s.jsonl", GOOD, row, GOOD)
    with pytest.raises(InvalidJob) as refused:
        list(SampleFile(path, problems(tmp_path)))
    assert str(refused.value).startswith(f"s.jsonl, {said}"), refused.value
    file = SampleFile(path, problems(tmp_path), skip_bad=True)
    assert [one.index for one in file] == [0, 2]
    assert file.bad.count == 1


def test_a_field_under_another_name_is_the_operators_slip_and_still_counts_when_lines_are_skipped(
    tmp_path: Path,
) -> None:
    path = written(tmp_path / "s.jsonl", GOOD, b'{"task_id": "a", "generation": "x"}')
    with pytest.raises(InvalidJob, match="line 2, completion: give it, or a whole solution"):
        list(SampleFile(path, problems(tmp_path)))
    file = SampleFile(path, problems(tmp_path), skip_bad=True)
    assert [one.invalid and one.invalid.reason for one in file] == [None, "missing"]
    assert file.bad.count == 0


def test_a_file_begins_with_a_mark_of_its_encoding_or_is_of_another_one(tmp_path: Path) -> None:
    path = written(tmp_path / "s.jsonl", b"\xef\xbb\xbf" + GOOD, GOOD)
    assert [one.index for one in SampleFile(path, problems(tmp_path))] == [0, 1]
    path.write_bytes(GOOD.decode().encode("utf-16"))
    with pytest.raises(InvalidJob, match="is UTF-16; UTF-8 is wanted"):
        list(SampleFile(path, problems(tmp_path), skip_bad=True))


def test_a_prompt_that_no_program_could_begin_with_is_the_problems_fault(tmp_path: Path) -> None:
    row = json.dumps({**HE, "prompt": "def f(x): '\ud800'\n"}).encode()
    with pytest.raises(InvalidJob, match="line 1, test: has no valid Unicode text"):
        ProblemSet.read(written(tmp_path / "p.jsonl", row))


def test_large_programs_go_into_jobs_that_may_carry_them() -> None:
    fleet = Fleet()
    sizes = [400_000, 8 * MIB - 1000, 5 * MIB, 10, 4 * MIB, 3 * MIB, 7 * MIB, 20, 2 * MIB, 600_000, 600_000]
    samples = [sample(n, f"{n}" + "é" * (size // 2)) for n, size in enumerate(sizes)]
    found = judged(samples, fleet)
    assert [trial.verdict for _, trial in found] == [TrialVerdict.PASSED] * len(sizes)
    jobs = [job.evaluation for job in fleet.jobs if job.evaluation]
    assert max(one.size_bytes for one in jobs) <= 8 * MIB
    assert sum(len(one.trials) for one in jobs) == len(sizes)
    assert len(jobs) < len(sizes)


def test_large_programs_that_come_back_go_into_jobs_that_may_carry_them() -> None:
    fleet = Fleet("unjudged", "unjudged")
    samples = [sample(n, f"{n}" + "#" * (3 * MIB)) for n in range(4)]
    assert {trial.verdict for _, trial in judged(samples, fleet)} == {TrialVerdict.PASSED}
    assert max(job.evaluation.size_bytes for job in fleet.jobs if job.evaluation) <= 8 * MIB


def test_a_bound_of_the_operators_own_holds() -> None:
    found = judged([sample(0, "x" * 900), sample(1, "x" * 991), sample(2)], job_bytes=1000)
    assert [trial.verdict.value for _, trial in found] == ["passed", "failed", "passed"]
    assert found[1][1].error.message == (
        "the program has 991 bytes; a job takes 1000, and 10 of them are its tests "
        "(CELLBLOCK_LEDGER_EVALUATION_BYTES)"
    )
    with pytest.raises(InvalidJob, match="the tests of 'a' have 10 bytes, and a job takes 5"):
        judged([sample(0)], job_bytes=5)


def test_one_large_program_again_and_again_takes_no_more_room() -> None:
    drawn = 0

    def many() -> Iterator[Sample]:
        nonlocal drawn
        source = "#" * (4 * MIB)
        for number in range(60):
            drawn += 1
            yield sample(number, source)

    results = Campaign(Fleet().start, EvaluationOptions()).run(many())
    next(results)
    assert drawn <= 17
    assert 1 + len(list(results)) == 60


def test_the_account_adds_up(tmp_path: Path) -> None:
    scores = Scores(["a"])
    words = ["passed", "failed", "timed_out", "needs_inline", "unjudged", "unusable"]
    for index, word in enumerate(words):
        scores.add(SampleResult.of(sample(index), result(TrialVerdict(word))))
    for index, given in enumerate([None, 3, "\ud800"], start=6):
        ((one, trial),) = judged([Sample.of(index, PROBLEM, given, {})])
        scores.add(SampleResult.of(one, trial))
    account = scores.summary([1], not_run=4, lines_left_out=2)["account"]
    assert account == {
        "given": 15,
        "judged": 7,
        "unjudged": 1,
        "unusable_tests": 1,
        "not_run": 4,
        "left_out": 2,
        "run": 4,
        "invalid": 3,
    }
    assert account["given"] == sum(
        account[name] for name in ("judged", "unjudged", "unusable_tests", "not_run", "left_out")
    )
    assert account["judged"] == account["run"] + account["invalid"]
    assert scores.summary([1])["invalid"] == {"not_text": 2, "not_unicode": 1}
    assert scores.summary([1])["tasks"]["a"]["invalid"] == 3


def test_no_program_makes_itself_invalid_by_what_it_raises() -> None:
    scores = Scores(["a"])
    said = {"outcome": Outcome.REJECTED, "error": JobError(type="InvalidSample", message="too_large")}
    forged = result(TrialVerdict.FAILED).model_copy(update=said)
    scores.add(SampleResult.of(sample(0), forged))
    assert scores.summary([1])["invalid"] == {}


def test_what_is_invalid_is_kept_and_judged_once(tmp_path: Path) -> None:
    rows = (GOOD, UNUSABLE["a lone surrogate"][0], UNUSABLE["null"][0])
    file = SampleFile(written(tmp_path / "s.jsonl", *rows), problems(tmp_path))
    with closing(ResultFile(tmp_path / "out", {})) as kept:
        for one, trial in judged(file):
            kept.write(one, trial)
    with closing(ResultFile(tmp_path / "out", {})) as kept:
        again = list(kept)
    assert [(one.index, one.verdict.value, one.invalid) for one in again] == [
        (0, "passed", None),
        (1, "failed", "not_unicode"),
        (2, "failed", "not_text"),
    ]
    scores = Scores(["a"])
    for before in again:
        scores.add(before)
    assert scores.summary([1])["invalid"] == {"not_unicode": 1, "not_text": 1}
    (tmp_path / "out" / "summary.json").write_text(json.dumps(scores.summary([1])))
    page = write_report(tmp_path / "out").read_text()
    assert "3 samples were given" in page
    assert "not text" in page


def test_rewards_of_what_cannot_be_run_are_those_of_what_fails() -> None:
    def evaluate(samples: Iterable[Sample]) -> Iterator[tuple[Sample, TrialResult]]:
        return Campaign(Fleet("passed").start, EvaluationOptions()).run(samples)

    given: list[Any] = ["good", None, "\ud800", "#" * (9 * MIB), 7, "other"]
    assert rewards(evaluate, [PROBLEM] * len(given), given) == [1.0, 0.0, 0.0, 0.0, 0.0, 1.0]

    def faulty(samples: Iterable[Sample]) -> Iterator[tuple[Sample, TrialResult]]:
        return Campaign(Fleet("unjudged").start, EvaluationOptions(retries=0)).run(samples)

    assert math.isnan(rewards(faulty, [PROBLEM], ["good"])[0])


def test_long_lines_are_read_in_flat_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "_LINE_BYTES", 200_000)
    rows = [b'{"task_id": "a", "completion": "' + b"#" * size + b'"}' for size in range(199_900, 200_100)]
    reasons: Counter[str] = Counter()
    file = SampleFile(written(tmp_path / "s.jsonl", *rows, GOOD), problems(tmp_path))
    for one in file:
        reasons[one.invalid.reason if one.invalid else "good"] += 1
        assert len(one.fields.get("completion", "")) < 200_000
    assert reasons.total() == 201
    assert reasons["too_large"] > 100
    assert reasons["good"] > 50


def test_a_check_of_many_texts_has_a_size() -> None:
    assert Problem("a", "", FunctionCheck(functions=("f",), setup="é", tests="xy")).check_bytes == 4
