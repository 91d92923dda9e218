"""Folders of results as a run leaves them, made without one; and texts that mean harm to who reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from cellblock.contract.evaluations import FunctionCheck, TrialResult, TrialVerdict
from cellblock.contract.outcomes import JobError, Outcome, Usage
from cellblock.evaluation import Problem, ResultFile, Sample, SampleResult, Scores

CHECK = FunctionCheck(functions=("f",), tests="assert f()")


def trial(
    verdict: str,
    error: str = "AssertionError",
    message: str = "no",
    *,
    outcome: str = "ok",
    wall_ms: int = 20,
    peak_memory_bytes: int = 0,
    stdout: str = "",
    stderr: str = "",
) -> TrialResult:
    """What came of one sample."""
    passed = verdict == "passed"
    return TrialResult(
        id="",
        verdict=TrialVerdict(verdict),
        channel="split",
        outcome=Outcome(outcome),
        error=None if passed else JobError(type=error, message=message),
        stdout=stdout,
        stderr=stderr,
        usage=Usage(wall_ms=wall_ms, peak_memory_bytes=peak_memory_bytes),
    )


def result_folder(
    folder: Path, found: Iterable[tuple[str, TrialResult]], *, ks: Sequence[int] = (1,), **asked: Any
) -> Path:
    """A folder with these results, of problems in the order they come, and what was asked for."""
    pairs = list(found)
    scores = Scores(dict.fromkeys(task_id for task_id, _ in pairs))
    with closing(ResultFile(folder, {"problems": "1", "verdict": "split", **asked})) as file:
        for index, (task_id, result) in enumerate(pairs):
            sample = Sample(index, Problem(task_id, "", CHECK), "", {"task_id": task_id})
            file.write(sample, result)
            scores.add(SampleResult.of(sample, result))
    (folder / "summary.json").write_text(json.dumps(scores.summary(ks)))
    return folder


def rates(**passed_of: str) -> list[tuple[str, TrialResult]]:
    """Problems and how many of their samples passed, as in ``f="2/3"``."""
    found = []
    for task_id, text in passed_of.items():
        passed, judged = map(int, text.split("/"))
        found += [(task_id, trial("passed" if n < passed else "failed")) for n in range(judged)]
    return found


def hostile(address: str) -> list[str]:
    """Texts that, were they taken for HTML, would rename the page, ask for something of ``address``, or
    deceive who reads them."""
    return [
        f"<script>document.title='owned';fetch('{address}/fetch')</script><script src={address}/script>"
        "</script>",
        f"\"><img src={address}/img onerror=document.title='owned'>",
        f"'><svg onload=document.title='owned'><image href={address}/svg></image></svg>",
        f"</title></style><style>@import '{address}/css'; body {{ background: url({address}/back) }}</style>",
        f"</pre></details></code><iframe src={address}/frame></iframe>",
        f"<link rel=stylesheet href={address}/link><base href={address}/base/>",
        "--><!-- ]]> {{ 7 * 191 }} {% raw %} <a href=javascript:document.title='owned' autofocus "
        "onfocus=document.title='owned' style=position:fixed;width:9999px>a</a>",
        f"<form action={address}/form><meta http-equiv=refresh content='0;url={address}/refresh'>",
        "\u202egnp.exe\u2066 \x1b]0;owned\x07 \x00 \u200f\u2028 \u0007\x9b31m",
        "W" * 5_000,
        "\u0645\u0631\u062d\u0628\u0627 " * 40,
    ]


def hostile_folder(folder: Path, address: str) -> Path:
    """A run in which every program does its worst in every text it has."""
    found = [
        (text, trial("failed", text, text, stdout=text, stderr=text, peak_memory_bytes=2**24))
        for text in hostile(address)
    ]
    return result_folder(folder, [*found, ("f", trial("passed"))], image="".join(hostile(address)))
