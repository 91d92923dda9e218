"""``cellblock eval``: samples judged by their problems' tests, and pass@k of them."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cellblock.cli import command_group, compare, entry_points
from cellblock.cli.job_options import AccountOptions
from cellblock.cli.option_groups import EVALUATION, SectionedCommand, takes
from cellblock.client import Client
from cellblock.contract.evaluations import VerdictMode
from cellblock.contract.job_spec import JobSpec, Limits
from cellblock.errors import InvalidJob, NotConfigured
from cellblock.evaluation import (
    Campaign,
    EvaluationOptions,
    ProblemSet,
    ResultFile,
    SampleFile,
    SampleResult,
    Scores,
)
from cellblock.evaluation.campaign import Abandon, Start
from cellblock.evaluation.json_lines import read_lines
from cellblock.evaluation.report import FILE as REPORT
from cellblock.evaluation.report import write_report
from cellblock.evaluation.results import FILE, SUMMARY, write_summary
from cellblock_config import Settings, load_settings

_LOOK_S = 2.0
#: Before that no time left is told: what comes first is the beginning of many jobs.
_FORETOLD_S = 15.0
_UNJUDGED = 4
_NAMED = 20


def register(app: typer.Typer) -> None:
    """Add this command to the root, and what compares its runs."""
    eval_group = typer.Typer(
        cls=command_group.CommandGroup, help="Judge samples and estimate pass@k; compare two runs."
    )
    eval_group.command(command_group.OWN, hidden=True, cls=SectionedCommand)(evaluate)
    eval_group.command("compare")(compare.compare_runs)
    app.add_typer(eval_group, name="eval", rich_help_panel=EVALUATION)


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
    """Judge samples, each in a sandbox of its own, and estimate pass@k.

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
    options = EvaluationOptions(
        verdict=how.verdict,
        batch=how.batch,
        window=how.window,
        retries=how.retries,
        dedupe=how.dedupe,
        stop_early=how.stop_early,
        fields=fields,
    )
    asked = {
        "samples": _fingerprint(samples),
        "problems": _fingerprint(problems),
        "verdict": how.verdict,
        "level": account.level,
        "timeout_s": how.timeout,
        "image": account.image,
    }
    file, kept = SampleFile(samples, given, skip_bad=how.skip_bad), ResultFile(out, asked)
    for stale in (SUMMARY, REPORT):  # they speak of a run that has ended, and this one goes on
        (out / stale).unlink(missing_ok=True)
    try:
        scores = _judge(file=file, kept=kept, options=options, given=given, total=total)
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
    write_summary(out, summary)
    if json_output:
        typer.echo(json.dumps(summary))
    else:
        _show(summary, out)
    try:
        write_report(out, {"samples": samples.name, "problems": problems.name})
    except NotConfigured as error:  # the results are there all the same
        typer.echo(f"cellblock: {error}", err=True)
    if summary["verdicts"].get("unjudged") or summary["unusable"]:
        sys.exit(_UNJUDGED)


def _judge(
    file: SampleFile, kept: ResultFile, options: EvaluationOptions, given: ProblemSet, total: int
) -> Scores:
    scores, done = Scores(given.problems), set[int]()
    for before in kept:
        scores.add(before)
        done.add(before.index)
    if done:
        typer.echo(f"cellblock: {len(done)} of {total} samples were judged before", err=True)
    waiting = (sample for sample in file if sample.index not in done)
    solved = [task_id for task_id, task in scores.tasks.items() if task.passed]
    settings = load_settings()
    with _fleet(settings, cast(str, options.fields["level"])) as fleet, _screen(total, scores) as look:
        start, abandon = fleet
        campaign = Campaign(
            start=start,
            options=options,
            abandon=abandon,
            solved=solved,
            job_bytes=settings.ledger.evaluation_bytes,
        )
        try:
            with _interruptible(campaign), closing(campaign.run(waiting, total - len(done))) as results:
                for sample, result in results:
                    kept.write(sample, result)
                    scores.add(SampleResult.of(sample, result))
                    look()
        except KeyboardInterrupt:
            kept_so_far = f"{scores.done} of {total} samples are judged and kept"
            typer.echo(f"cellblock: {kept_so_far}; the same command goes on from there", err=True)
            raise
    return scores


@contextmanager
def _interruptible(campaign: Campaign) -> Iterator[None]:
    """Ctrl-C between two jobs: one that is just being submitted would be nobody's, and go on."""
    heard = False

    def interrupt(*_: object) -> None:
        nonlocal heard
        heard = True
        if not campaign.submitting:
            raise KeyboardInterrupt
        campaign.begin_no_more()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if heard:
        raise KeyboardInterrupt


@contextmanager
def _fleet(settings: Settings, level: str) -> Iterator[tuple[Start, Abandon]]:
    if settings.redis.url is None:
        made = entry_points.load("embedded-fleet")(settings, level)
        with cast(AbstractContextManager[Start], made) as start:
            yield start, Future.cancel
        return
    with Client(settings=settings) as client:
        yield client.start, client.abandon


@contextmanager
def _screen(total: int, scores: Scores) -> Iterator[Any]:
    """What is seen while it runs: a bar for people, a line every two seconds for logs."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _LineByLine(total, scores)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=total, completed=scores.done)
        began, before = time.monotonic(), scores.done

        def look() -> None:
            rate = (scores.done - before) / max(0.001, time.monotonic() - began)
            others = ", ".join(
                f"{name} {n}" for name, n in sorted(scores.verdicts.items()) if name != "passed"
            )
            share = scores.passed / scores.done
            words = f"{share:.1%} passed, {rate:.0f}/s{', ' + others if others else ''}"
            progress.update(task, completed=scores.done, description=words)

        yield look


class _LineByLine:
    def __init__(self, total: int, scores: Scores) -> None:
        self._total, self._scores = total, scores
        self._began = self._said = time.monotonic()
        self._before = scores.done

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self._said < _LOOK_S:
            return
        self._said = now
        scores, rate = self._scores, (self._scores.done - self._before) / (now - self._began)
        said = (
            f"{scores.done} of {self._total} judged, {scores.passed / scores.done:.1%} passed, {rate:.3g}/s"
        )
        if now - self._began > _FORETOLD_S:
            said += f", {(self._total - scores.done) / rate:.0f} s left"
        typer.echo(said, err=True)


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


def _show(summary: dict[str, Any], out: Path) -> None:
    for k, found in summary["pass_at"].items():
        if found is None and summary["not_run"]:
            typer.echo(f"pass@{k:<4} is not known: {summary['not_run']} samples were not run")
        elif found is None:
            typer.echo(f"pass@{k:<4} not every problem has {k} judged samples")
        else:
            typer.echo(f"pass@{k:<4} {found['value']:.2%}  (95%: {found['low']:.2%} to {found['high']:.2%})")
    words = ", ".join(f"{count} {name}" for name, count in summary["verdicts"].items())
    typer.echo(f"{summary['samples']} samples of {summary['problems_judged']} problems: {words}")
    _show_account(summary)
    typer.echo(f"{summary['problems_solved']} of {summary['problems']} problems have a sample that passed")
    if missing := summary["problems"] - summary["problems_judged"]:
        typer.echo(
            f"{missing} of {summary['problems']} problems have no judged sample, and no part in pass@k"
        )
    if summary["unusable"]:
        names = ", ".join(summary["unusable"][:_NAMED])
        typer.echo(f"tests that cannot be used, see error in {FILE}: {names}", err=True)
    if summary["needs_inline"]:
        names = ", ".join(summary["needs_inline"])
        typer.echo(f"with --verdict inline only, and until then not passed: {names}")
    for bad in summary["bad_lines"]:
        typer.echo(f"cellblock: left out {bad}", err=True)
    if (more := summary["left_out"] - len(summary["bad_lines"])) > 0:
        typer.echo(f"cellblock: left out {more} lines more", err=True)
    typer.echo(f"cellblock: results in {out}", err=True)


def _show_account(summary: dict[str, Any]) -> None:
    account, invalid = summary["account"], summary["invalid"]
    parts = [f"{account['judged']} judged"]
    parts += [
        f"{account[name]} {name.replace('_', ' ')}"
        for name in ("unjudged", "unusable_tests", "not_run", "left_out")
        if account[name]
    ]
    typer.echo(f"{account['given']} samples given: {', '.join(parts)}")
    if invalid:
        reasons = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in invalid.items())
        typer.echo(f"{account['invalid']} of the judged cannot be run and have failed ({reasons})")
