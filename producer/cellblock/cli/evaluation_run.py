"""The run of ``cellblock eval``: samples become jobs, and each result is kept at once."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import partial
from typing import cast

import typer

from cellblock.cli import entry_points
from cellblock.cli.evaluation_screen import progress_of
from cellblock.client import Client
from cellblock.contract.results import JobResult
from cellblock.errors import CellblockError
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

#: How long a stopped run waits for what its jobs have judged, and cost: workers hear of it at once.
_LATE_S = 10.0
_LOOK_S = 0.1
_NAMED = 5


class _Stop:
    """Ctrl-C, TERM and HUP while samples are judged. They only end the campaign: raised at any moment they
    would lose a job that is just being submitted, or results that are just being kept."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    @contextmanager
    def ends(self, campaign: Campaign) -> Iterator[None]:
        """Lets them end this campaign while the block runs."""

        def hear(number: int, _: object) -> None:
            self.heard.append(number)
            campaign.begin_no_more()

        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # under nohup it goes on
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, hear) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def within(self, seconds: float) -> bool:
        """Waits for these seconds, or until one of them comes. Returns whether one has come."""
        until = time.monotonic() + seconds
        while not self.heard and time.monotonic() < until:
            time.sleep(_LOOK_S)
        return bool(self.heard)

    def again(self) -> bool:
        """Whether a second one has come: then nobody waits for anything."""
        return len(self.heard) > 1

    def pass_on(self) -> None:
        """Ends this process as the first of them does."""
        if self.heard:
            signal.raise_signal(self.heard[0])


def judge_samples(
    file: SampleFile, kept: ResultFile, options: EvaluationOptions, given: ProblemSet, total: int
) -> Scores:
    """Judges what ``kept`` does not have yet, and keeps each result at once. Returns the scores of all.

    ``total``: the lines of the file. After Ctrl-C or TERM its jobs are stopped, what they had judged is kept,
    and it says how to go on; then it raises what the signal does.
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
    settings, stop = load_settings(), _Stop()
    level = cast(str, options.fields["level"])
    with _fleet(settings, level, stop.within) as fleet, progress_of(total, scores) as look:
        start, abandon = fleet
        campaign = Campaign(
            start=start,
            options=options,
            abandon=abandon,
            solved=solved,
            job_bytes=settings.ledger.evaluation_bytes,
        )
        with stop.ends(campaign):
            try:
                with closing(campaign.run(waiting, total - len(done))) as results:
                    for sample, result in results:
                        kept.write(sample, result)
                        scores.add(SampleResult.of(sample, result))
                        look()
            except CellblockError:
                if not stop.heard:  # else: a job that nobody waits for had no room
                    raise
            finally:
                for sample, result in campaign.late_results(_LATE_S, stop.again):
                    kept.write(sample, result)
                    scores.add(SampleResult.of(sample, result))
    if stop.heard:
        kept_so_far = f"{scores.done} of {total} samples are judged and kept"
        typer.echo(f"cellblock: {kept_so_far}; the same command goes on from there", err=True)
        stop.pass_on()
    return scores


@contextmanager
def _fleet(
    settings: Settings, level: str, is_stopped_within: Callable[[float], bool]
) -> Iterator[tuple[Start, Abandon]]:
    """What starts a job, and what stops one."""
    if settings.redis.url is None:
        made = entry_points.load("embedded-fleet")(settings, level)
        with ExitStack() as here:
            with entry_points.extra_named("embedded-fleet"):
                start = here.enter_context(cast(AbstractContextManager[Start], made))
            yield start, Future.cancel
        return
    going_on: list[str] = []
    with Client(settings=settings) as client:

        def abandon(future: Future[JobResult]) -> None:
            if (job_id := client.abandon(future)) is not None:
                going_on.append(job_id)

        yield partial(client.start, is_stopped_within=is_stopped_within), abandon
    if going_on:
        named = " ".join(going_on[:_NAMED]) + (" …" if len(going_on) > _NAMED else "")
        typer.echo(f"cellblock: {len(going_on)} jobs go on, as Redis cannot be reached: {named}", err=True)
