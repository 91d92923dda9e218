"""The report: figures from one reading of the results, and nothing in it that a program wrote is HTML."""

from __future__ import annotations

import html
import json
import math
import random
import sys
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cellblock.cli import evaluation_run
from cellblock.cli.root import app
from cellblock.contract.evaluations import TrialResult, TrialVerdict
from cellblock.contract.job_spec import JobSpec
from cellblock.contract.outcomes import Outcome
from cellblock.contract.results import JobResult, Timings
from cellblock.errors import InvalidJob
from cellblock.evaluation import SampleResult
from cellblock.evaluation.report import write_report
from cellblock.evaluation.report_data import OTHERS, Digest, Spread, shortened
from cellblock.evaluation.results import rows
from folders import hostile, hostile_folder, rates, result_folder, trial

ADDRESS = "http://cellblock.invalid"


class Page(HTMLParser):
    """What a browser would make of it: elements, attributes and texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def page_of(folder: Path) -> Page:
    return Page(write_report(folder).read_text())


def test_quantiles_are_within_their_promise() -> None:
    draw = random.Random(7)
    values = [int(draw.lognormvariate(4, 2)) for _ in range(5_000)]
    spread = Spread()
    for value in values:
        spread.add(value)
    for share in (0.01, 0.5, 0.9, 0.99, 1.0):
        real = sorted(values)[math.ceil(share * len(values)) - 1]
        assert spread.quantile(share) == pytest.approx(max(1, real), rel=0.0451)
    assert spread.most == max(values)
    assert Spread().quantile(0.5) == 0


def test_bars_have_every_value_once_and_leave_no_gap() -> None:
    spread = Spread()
    for value in (0, 1, 3, 64, 64, 1_000_000):
        spread.add(value)
    bars = spread.bars()
    assert sum(bar.count for bar in bars) == 6
    assert [bar.high for bar in bars[:-1]] == [bar.low for bar in bars[1:]]
    assert [(bar.low, bar.count) for bar in bars if bar.count == 2] == [(1.0, 2), (64.0, 2)]
    assert Spread().bars(7) == []


@pytest.mark.parametrize("value", [0, 1, 64])
def test_one_value_is_no_wall(value: int) -> None:
    spread = Spread()
    spread.add(value)
    assert len(spread.bars()) == 1
    bars = spread.bars(7)
    assert (len(bars), bars[0].low >= 1, sum(bar.count for bar in bars)) == (7, True, 1)
    assert [bar.low for bar in bars if bar.count] == [max(1, value)]


def test_failures_are_told_apart_by_verdict_and_type_with_an_example_of_each_problem(tmp_path: Path) -> None:
    found = [(f"t{n % 5}", trial("failed", "KeyError", f"key {n}")) for n in range(10)]
    found += [("t0", trial("timed_out", "KeyError")), ("t0", trial("unjudged", "WorkerLost", wall_ms=0))]
    digest = Digest(rows(result_folder(tmp_path, found)))
    first, second, third = digest.failures
    assert (first.error, first.count, len(first.tasks)) == ("KeyError", 10, 5)
    assert [one.message for one in first.examples] == ["key 0", "key 1", "key 2"]
    assert {second.verdict, third.verdict} == {TrialVerdict.TIMED_OUT, TrialVerdict.UNJUDGED}
    assert digest.wall_ms.count == 11, "what was not judged has no time"


def test_programs_that_invent_kinds_of_errors_fill_no_memory() -> None:
    def lines(count: int) -> Iterator[tuple[SampleResult, dict[str, Any]]]:
        for n in range(count):
            verdict = TrialVerdict.FAILED if n % 2 else TrialVerdict.PASSED
            error = f"Error{n}" + "x" * 500
            line = {"error": {"message": "m" * 20_000}, "stdout": "o" * 20_000, "stderr": None}
            yield SampleResult(n, f"t{n % 100}", verdict, "exit", error, n % 3_000, n), line

    peaks = []
    for count in (4_000, 16_000):
        tracemalloc.start()
        digest = Digest(lines(count))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (digest.failures[0].error, digest.failures[0].count) == (OTHERS, count // 2 - 200)
    assert peaks[1] < 1.2 * peaks[0]
    assert peaks[1] < 8 * 2**20


def test_long_texts_keep_their_start_and_their_end() -> None:
    text = shortened("a" * 5_000 + "z" * 5_000, 300)
    assert text.startswith("a" * 200)
    assert text.endswith("z" * 100)
    assert "9,700 characters left out" in text
    assert shortened("a" * 300, 300) == "a" * 300


def test_a_report_has_the_figures(tmp_path: Path) -> None:
    found = [*rates(f="2/3", g="0/2"), ("f", trial("unjudged", "WorkerLost", outcome="worker_lost"))]
    found += [("g", trial("failed", "MemoryLimit", wall_ms=900, peak_memory_bytes=2**28))]
    folder = result_folder(tmp_path, found, ks=(1, 4), timeout_s=3.0)
    report = write_report(folder, {"samples": "mine.jsonl", "problems": "HumanEval.jsonl"})
    page = Page(report.read_text())
    words = " ".join(page.text.split())
    for said in (
        "7 samples of 2 problems",
        "mine.jsonl",
        "HumanEval.jsonl",
        "timeout of a sample, in seconds 3.0",
        "33.3%",
        "not every problem has 4 judged samples",
        "1 samples could not be judged",
        "f: 2 of 3 passed",
        "g: 0 of 3 passed",
        "max 900 ms",
        "max 256 MiB",
        "It was not measured for 5 further samples",
        "AssertionError (failed)",
        "3 samples, 42.9%, of 2 problems.",
    ):
        assert said in words, said
    assert {tag for tag, _ in page.elements} >= {"h1", "h2", "h3", "th", "caption", "nav", "main"} - {
        "caption"
    }
    assert all(attrs.get("scope") in {"col", "row"} for tag, attrs in page.elements if tag == "th")


def test_memory_that_nobody_measured_is_not_drawn(tmp_path: Path) -> None:
    page = page_of(result_folder(tmp_path, rates(f="1/2")))
    assert "Peak memory was not measured" in page.text
    assert [
        attrs["aria-label"] for tag, attrs in page.elements if tag == "svg" and "aria-label" in attrs
    ] == ["Wall time of 2 samples; the figures stand below"]


@pytest.mark.parametrize("verdict", ["passed", "unjudged"])
def test_a_run_of_one_kind_has_a_report_too(tmp_path: Path, verdict: str) -> None:
    page = page_of(result_folder(tmp_path, [("f", trial(verdict, wall_ms=0))]))
    assert ("There were none." in page.text) == (verdict == "passed")
    assert ("no time was measured" in page.text) == (verdict == "unjudged")


def test_more_problems_than_cells_share_them(tmp_path: Path) -> None:
    page = page_of(result_folder(tmp_path, [(f"t{n}", trial("passed")) for n in range(2_100)]))
    cells = [attrs for tag, attrs in page.elements if tag == "svg" and attrs.get("class") == "cell"]
    assert len(cells) == 700 + 4
    assert "t0 to t2: 3 of 3 passed" in page.text
    assert "Table of the first 1,000 problems" in page.text


def test_the_same_results_make_the_same_bytes(tmp_path: Path) -> None:
    made = []
    for name in ("a", "b"):
        folder = hostile_folder(tmp_path / name, ADDRESS)
        made.append(write_report(folder).read_bytes())
        assert write_report(folder).read_bytes() == made[-1]
    assert made[0] == made[1]


def test_nothing_a_program_wrote_is_html(tmp_path: Path) -> None:
    page = page_of(hostile_folder(tmp_path, ADDRESS))
    names = [tag for tag, _ in page.elements]
    assert {"script", "img", "image", "iframe", "link", "base", "form", "object"} & set(names) == set()
    assert [names.count(tag) for tag in ("style", "main", "body")] == [1, 1, 1]
    for tag, attrs in page.elements:
        assert not {name for name in attrs if name.startswith("on")}, (tag, attrs)
        assert {"src", "srcset", "action", "data"} & attrs.keys() == set(), (tag, attrs)
        assert (attrs.get("href") or "#").startswith("#"), (tag, attrs)
    policies = [attrs for tag, attrs in page.elements if tag == "meta" and "http-equiv" in attrs]
    assert [one["http-equiv"] for one in policies] == ["Content-Security-Policy"]
    assert (policies[0]["content"] or "").startswith("default-src 'none'; style-src 'unsafe-inline';")
    assert hostile(ADDRESS)[0] in page.text, "it is shown as what it is"
    assert "1337" not in page.text, "nor is it a template"


def test_what_deceives_the_eye_is_shown(tmp_path: Path) -> None:
    text = html.unescape(write_report(hostile_folder(tmp_path, ADDRESS)).read_text())
    assert "\\u202egnp.exe\\u2066 ␛]0;owned␇ ␀ \\u200f\\u2028 ␇\\u009b31m" in text
    assert {character for character in text if character < " "} == {"\n"}
    assert not set(text) & set("\u202e\u2066\u200f\u2028\x9b")
    assert "W" * 1_000 not in text
    assert "3,800 characters left out" in text


def test_half_a_line_of_a_killed_run_is_no_part_of_it(tmp_path: Path) -> None:
    folder = result_folder(tmp_path, rates(f="1/2"))
    with (folder / "results.jsonl").open("a") as file:
        file.write('{"index": 2, "ta')
    assert [one.index for one, _ in rows(folder)] == [0, 1]
    with (folder / "results.jsonl").open("a") as file:
        file.write("\n")
    with pytest.raises(InvalidJob, match="line 3: is not a result of this program"):
        list(rows(folder))
    with pytest.raises(InvalidJob, match=r"results\.jsonl: cannot be read: No such file"):
        list(rows(tmp_path / "nothing"))


@contextmanager
def stand_in(*_: object) -> Iterator[Any]:
    """A fleet whose every program passes."""

    def start(spec: JobSpec) -> Future[JobResult]:
        assert spec.evaluation is not None
        done: Future[JobResult] = Future()
        trials = tuple(
            TrialResult(id=one.id, verdict=TrialVerdict.PASSED, channel="split", outcome=Outcome.OK)
            for one in spec.evaluation.trials
        )
        timings = Timings(submitted=0, admitted=0)
        done.set_result(
            JobResult(
                job_id="j", outcome=Outcome.OK, level="standard", timings=timings, trace_id="t", trials=trials
            )
        )
        return done

    yield start, Future.cancel


@pytest.mark.parametrize("installed", [True, False])
def test_a_run_ends_well_with_its_report_or_a_word_on_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    monkeypatch.setattr(evaluation_run, "_fleet", stand_in)
    if not installed:
        monkeypatch.setitem(sys.modules, "jinja2", None)
    samples, problems, out = (tmp_path / name for name in ("s.jsonl", "p.jsonl", "out"))
    samples.write_text(json.dumps({"task_id": "f", "completion": " return 1"}) + "\n")
    problem = {"task_id": "f", "prompt": "def f():\n", "entry_point": "f", "test": "def check(c): pass"}
    problems.write_text(json.dumps(problem) + "\n")
    done = CliRunner().invoke(app, ["eval", str(samples), "--problems", str(problems), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert json.loads((out / "summary.json").read_text())["verdicts"] == {"passed": 1}
    assert (out / "report.html").exists() == installed
    needs = "cellblock: report.html needs jinja2: pip install 'cellblock[eval]'"
    assert (needs in done.stderr.splitlines()) != installed
    if installed:
        page = Page((out / "report.html").read_text())
        assert {"s.jsonl", "p.jsonl"} <= set(page.texts)


def test_what_was_left_out_is_said(tmp_path: Path) -> None:
    folder = result_folder(tmp_path, [("f", trial("passed")), ("g", trial("unusable", "UnusableTests"))])
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**summary, "not_run": 12, "pass_at": {"1": None}}))
    page = write_report(folder).read_text()
    assert "12 samples were not run" in page
    assert "The tests of 1 problems cannot be used" in page
    assert "<code>g</code>" in page
