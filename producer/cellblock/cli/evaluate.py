"""``cellblock eval``: samples judged by their problems' tests, and pass@k of them."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from cellblock.cli import command_group, compare
from cellblock.cli.evaluation_run import judge_samples
from cellblock.cli.evaluation_screen import show_summary
from cellblock.cli.job_options import AccountOptions
from cellblock.cli.option_groups import SectionedCommand, takes
from cellblock.contract.evaluations import VerdictMode
from cellblock.contract.job_spec import JobSpec, Limits
from cellblock.errors import InvalidJob, NotConfigured
from cellblock.evaluation import (
    EvaluationOptions,
    ProblemSet,
    ResultFile,
    SampleFile,
)
from cellblock.evaluation.json_lines import read_lines
from cellblock.evaluation.report import FILE as REPORT
from cellblock.evaluation.report import write_report
from cellblock.evaluation.results import SUMMARY, write_summary

_UNJUDGED = 4


def register(app: typer.Typer) -> None:
    """Add this command to the root, and what compares its runs."""
    eval_group = typer.Typer(
        cls=command_group.CommandGroup, help="Judge samples and estimate pass@k; compare two runs."
    )
    eval_group.command(command_group.OWN, hidden=True, cls=SectionedCommand)(evaluate)
    eval_group.command("compare")(compare.compare_runs)
    app.add_typer(eval_group, name="eval")


_FILES, _HOW, _STATISTICS = "Files", "How samples run", "Statistics"


@dataclass(frozen=True)
class RunOptions:
    """How samples become jobs."""

    verdict: Annotated[
        VerdictMode,
        typer.Option(
            help="split: tests out of the program's reach. inline: in one interpreter.", rich_help_panel=_HOW
        ),
    ] = "split"
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds for each sample.", rich_help_panel=_HOW)
    ] = 3.0
    batch: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=256,
            help="Samples in one job; by default it depends on how many there are, at most 128.",
            rich_help_panel=_HOW,
        ),
    ] = None
    window: Annotated[int, typer.Option(min=1, help="Jobs in flight at once.", rich_help_panel=_HOW)] = 16
    retries: Annotated[
        int, typer.Option(min=0, help="How often to try again after a fault of ours.", rich_help_panel=_HOW)
    ] = 2
    dedupe: Annotated[bool, typer.Option(help="Judge identical programs once.", rich_help_panel=_HOW)] = True
    stop_early: Annotated[
        bool,
        typer.Option(
            "--stop-early",
            help="Finish a problem with its first pass; there is no pass@k then.",
            rich_help_panel=_HOW,
        ),
    ] = False
    skip_bad: Annotated[
        bool,
        typer.Option(
            "--skip-bad", help="Leave out lines that are not samples or problems.", rich_help_panel=_HOW
        ),
    ] = False

    def for_jobs(self, fields: dict[str, Any]) -> EvaluationOptions:
        """The same for a campaign, whose jobs have these ``fields``."""
        return EvaluationOptions(
            verdict=self.verdict,
            batch=self.batch,
            window=self.window,
            retries=self.retries,
            dedupe=self.dedupe,
            stop_early=self.stop_early,
            fields=fields,
        )


@takes(AccountOptions, RunOptions)
def evaluate(
    samples: Annotated[Path, typer.Argument(metavar="SAMPLES.jsonl[.gz]", help="What a model wrote.")],
    problems: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="HumanEval, MBPP, APPS, cases or pytest, as JSON lines.",
            rich_help_panel=_FILES,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Results and summary; a run there is resumed.", rich_help_panel=_FILES
        ),
    ],
    account: AccountOptions,
    how: RunOptions,
    k: Annotated[
        str, typer.Option("-k", help="Comma-separated values of k in pass@k.", rich_help_panel=_STATISTICS)
    ] = "1",
    seed: Annotated[
        int, typer.Option(help="Random seed of the confidence intervals.", rich_help_panel=_STATISTICS)
    ] = 0,
    json_output: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Judge samples, each where none ran before, and estimate pass@k.

    Results, summary and a report for people are in --out; `cellblock eval compare A B` compares two of them.
    The same command again goes on where the last one was stopped. Without CELLBLOCK_REDIS_URL it runs on this
    machine. The exit code is 0 when every sample was judged, 4 if some could not be.

    Example: cellblock eval samples.jsonl --problems HumanEval.jsonl.gz -k 1,10 --out results
    """
    ks, fields = _ks(k), {**asdict(account), "limits": Limits(timeout_s=how.timeout)}
    JobSpec(code="0", **cast(Any, fields))  # before anything is read: whether there could be such a job
    given = ProblemSet.read(problems, skip_bad=how.skip_bad)
    total = sum(1 for _ in read_lines(samples))
    if total == 0:
        raise InvalidJob(str(samples), "has no samples")
    asked = {
        "samples": _fingerprint(samples),
        "problems": _fingerprint(problems),
        "verdict": how.verdict,
        "level": account.level,
        "timeout_s": how.timeout,
        "image": account.image,
    }
    names = {"samples": samples.name, "problems": problems.name}
    file, kept = SampleFile(samples, given, skip_bad=how.skip_bad), ResultFile(out, asked, names)
    for stale in (SUMMARY, REPORT):  # they speak of a run that has ended, and this one goes on
        (out / stale).unlink(missing_ok=True)
    try:
        scores = judge_samples(file=file, kept=kept, options=how.for_jobs(fields), given=given, total=total)
    finally:
        kept.close()
    not_run = total - scores.done - file.bad.count
    left_out, bad_lines = given.bad.count + file.bad.count, [*given.bad.first, *file.bad.first]
    summary = scores.summary(
        ks=ks,
        seed=seed,
        not_run=not_run,
        left_out=left_out,
        bad_lines=bad_lines,
        lines_left_out=file.bad.count,
    )
    _publish(summary, out, names, json_output=json_output)
    if summary["verdicts"].get("unjudged") or summary["unusable"]:
        sys.exit(_UNJUDGED)


def _publish(summary: dict[str, Any], out: Path, names: dict[str, str], *, json_output: bool) -> None:
    write_summary(out, summary)
    if json_output:
        typer.echo(json.dumps(summary))
    else:
        show_summary(summary, out)
    try:
        write_report(out, names)
    except NotConfigured as error:  # the results are there all the same
        typer.echo(f"cellblock: {error}", err=True)


def _ks(text: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = [0]
    if min(found) < 1:
        raise InvalidJob("-k", f"{text!r} is not a list of numbers from 1 on; write one such as 1,10,100")
    return found


def _fingerprint(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InvalidJob(str(path), f"cannot be read: {os.strerror(error.errno or 0)}") from None
