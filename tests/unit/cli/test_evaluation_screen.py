"""What is seen while an evaluation runs."""

from __future__ import annotations

import re

import pytest

from cellblock.cli import evaluation_screen
from cellblock.cli.evaluation_screen import progress_of
from cellblock.contract.evaluations import TrialVerdict
from cellblock.evaluation import SampleResult, Scores
from judged import result, sample
from parts import wait_until


def judged(scores: Scores, count: int) -> None:
    """Adds ``count`` samples that passed."""
    for index in range(count):
        scores.add(SampleResult.of(sample(index), result(TrialVerdict.PASSED)))


def test_progress_in_a_pipe_begins_before_the_first_result(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(evaluation_screen, "_LOOK_S", 0.02)
    scores, seen = Scores(["a"]), ""

    def shown(line: str) -> bool:
        nonlocal seen
        seen += capfd.readouterr().err
        return line in seen

    with progress_of(164, scores):
        wait_until(lambda: shown("0 of 164 judged\n"), what="a line before the first result")
        judged(scores, 2)
        wait_until(lambda: shown("2 of 164 judged, 100.0% passed, "), what="a line with figures")


def test_progress_on_a_terminal_fits_into_eighty_columns(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    scores = Scores(["a"])
    with progress_of(1_234_567, scores) as look:
        scores.verdicts.update({"passed": 999_990, "needs_inline": 4, "timed_out": 3, "failed": 3})
        look()
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capfd.readouterr().err)
    last = text.replace("\r", "\n").rstrip().splitlines()[-1]
    assert "1000000/1234567" in last
    assert "100.0% passed, " in last
    assert "…" not in last
    assert re.search(r"(\d+:\d\d:\d\d|-:--:--)$", last), last
    assert len(last) <= 80
