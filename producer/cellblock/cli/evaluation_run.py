"""The run of ``cellblock eval``: samples become jobs, and each result is kept at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from typing import cast

import typer

from cellblock.cli import entry_points
from cellblock.cli.evaluation_screen import progress_of
from cellblock.client import Client
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
from cellblock_config import Settings, load_settings


def judge_samples(
    file: SampleFile, kept: ResultFile, options: EvaluationOptions, given: ProblemSet, total: int
) -> Scores:
    """Judges what ``kept`` does not have yet, and keeps each result at once. Returns the scores of all.

    ``total``: the lines of the file. After Ctrl-C it says how to go on, and raises KeyboardInterrupt.
    """
    scores, done = Scores(given.problems), set[int]()
    for before in kept:
        scores.add(before)
        done.add(before.index)
    if done:
        typer.echo(f"cellblock: {len(done)} of {total} samples were judged before", err=True)
    typer.echo(f"cellblock: {total - len(done)} samples to judge", err=True)  # a fleet takes a while to start
    waiting = (sample for sample in file if sample.index not in done)
    solved = [task_id for task_id, task in scores.tasks.items() if task.passed]
    settings = load_settings()
    with _fleet(settings, cast(str, options.fields["level"])) as fleet, progress_of(total, scores) as look:
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
        with ExitStack() as here:
            with entry_points.extra_named("embedded-fleet"):
                start = here.enter_context(cast(AbstractContextManager[Start], made))
            yield start, Future.cancel
        return
    with Client(settings=settings) as client:
        yield client.start, client.abandon
