"""A campaign's way with batches, doubles and faults of ours."""

from __future__ import annotations

import asyncio
import math
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from cellblock import AsyncClient
from cellblock.contract.evaluations import StdioCase, StdioCheck, TrialVerdict
from cellblock.contract.job_spec import JobSpec
from cellblock.contract.outcomes import JobError, Outcome
from cellblock.contract.results import JobResult, Timings
from cellblock.errors import InvalidJob
from cellblock.evaluation import (
    Campaign,
    EvaluationOptions,
    Problem,
    Sample,
    SampleResult,
    Scores,
    rewards,
)
from judged import PROBLEM, result, sample


class Fleet:
    """Stands in for a fleet: ends each job when it is asked for, as ``say`` has it."""

    def __init__(self, *words: str) -> None:
        self.words = list(words)
        self.jobs: list[JobSpec] = []
        self.ran: Counter[str] = Counter()

    def start(self, spec: JobSpec) -> Future[JobResult]:
        assert spec.evaluation is not None
        self.jobs.append(spec)
        word = self.words.pop(0) if self.words else "passed"
        trials = []
        for trial in spec.evaluation.trials:
            self.ran[trial.source] += 1
            trials.append(result(TrialVerdict(word), trial.id))
        future: Future[JobResult] = Future()
        future.set_result(
            JobResult(
                job_id="j",
                outcome=Outcome.OK,
                level="standard",
                timings=Timings(submitted=0, admitted=0),
                trace_id="t",
                trials=tuple(trials) if word != "unjudged" else (),
                error=JobError(type="WorkerLost", message="gone") if word == "unjudged" else None,
            )
        )
        return future


class Slow(Fleet):
    """Ends after this many samples of each job."""

    come_to = 2

    def start(self, spec: JobSpec) -> Future[JobResult]:
        assert spec.evaluation is not None
        first = spec.evaluation.trials[: self.come_to]
        return super().start(
            spec.model_copy(update={"evaluation": spec.evaluation.model_copy(update={"trials": first})})
        )


class Forgetful(Fleet):
    """Keeps nothing of what it was asked."""

    def start(self, spec: JobSpec) -> Future[JobResult]:
        future = super().start(spec)
        self.jobs.clear()
        self.ran.clear()
        return future


def test_every_sample_has_one_result_and_the_window_holds() -> None:
    fleet = Fleet()
    found = list(
        Campaign(fleet.start, EvaluationOptions(batch=4, window=2)).run(sample(n) for n in range(10))
    )
    assert sorted(one.index for one, _ in found) == list(range(10))
    assert [len(job.evaluation.trials) for job in fleet.jobs if job.evaluation] == [4, 4, 2]


@pytest.mark.parametrize("dedupe", [True, False])
def test_programs_that_come_again_are_judged_once(dedupe: bool) -> None:
    fleet = Fleet()
    sources = ["def f(): return 1", "def f(): return 2"] * 20
    samples = [sample(number, source) for number, source in enumerate(sources)]
    found = list(Campaign(fleet.start, EvaluationOptions(batch=3, window=2, dedupe=dedupe)).run(samples))
    assert len(found) == 40
    assert set(fleet.ran.values()) == ({1} if dedupe else {20})


def test_what_a_job_has_not_come_to_is_shared_out_among_others() -> None:
    fleet = Slow()
    found = list(
        Campaign(fleet.start, EvaluationOptions(batch=50, window=4, retries=0)).run(map(sample, range(100)))
    )
    assert {(one.index, trial.verdict) for one, trial in found} == {
        (number, TrialVerdict.PASSED) for number in range(100)
    }
    assert set(fleet.ran.values()) == {1}


@pytest.mark.parametrize(
    ("total", "batch"), [(1, 4), (164, 10), (640, 32), (1640, 96), (100_000, 128), (None, 32)], ids=str
)
def test_a_job_has_as_many_samples_as_leave_some_for_others(total: int | None, batch: int) -> None:
    assert EvaluationOptions().batch_of(total) == batch
    assert EvaluationOptions(batch=7).batch_of(total) == 7


def test_what_is_left_over_goes_along_with_what_is_new() -> None:
    """Else jobs that come to nearly all of theirs would each bring on another, with next to nothing in it."""
    fleet = Slow()
    fleet.come_to = 30
    options = EvaluationOptions(batch=32, window=4)
    assert len(list(Campaign(fleet.start, options).run(map(sample, range(960))))) == 960
    assert len(fleet.jobs) < 960 / 30 + 8


def test_samples_of_a_solved_problem_that_come_back_are_not_begun_again() -> None:
    fleet = Slow()
    options = EvaluationOptions(batch=50, window=1, stop_early=True)
    found = list(Campaign(fleet.start, options).run(map(sample, range(100))))
    assert len(found) == fleet.come_to
    assert all(job.evaluation and job.evaluation.stop_early for job in fleet.jobs)


def test_a_hundred_thousand_times_the_same_program_is_no_hundred_thousand_in_memory() -> None:
    drawn = 0

    def same() -> Iterator[Sample]:
        nonlocal drawn
        for number in range(100_000):
            drawn += 1
            yield sample(number, "def f(): return 1")

    run = Campaign(Fleet().start, EvaluationOptions()).run(same())
    next(run)
    assert drawn < 10_000
    assert 1 + sum(1 for _ in run) == 100_000


def test_a_job_that_names_none_of_its_samples_is_our_fault() -> None:
    class Stray(Fleet):
        def start(self, spec: JobSpec) -> Future[JobResult]:
            job = super().start(spec).result()
            future: Future[JobResult] = Future()
            future.set_result(job.model_copy(update={"trials": (result(TrialVerdict.PASSED, "another"),)}))
            return future

    found = list(Campaign(Stray().start, EvaluationOptions(retries=1)).run([sample(0), sample(1)]))
    assert [trial.verdict for _, trial in found] == [TrialVerdict.UNJUDGED] * 2


def test_a_campaign_runs_once() -> None:
    campaign = Campaign(Fleet().start, EvaluationOptions())
    assert len(list(campaign.run([sample(0)]))) == 1
    with pytest.raises(RuntimeError, match="make another"):
        next(campaign.run([sample(1)]))


def test_what_is_our_fault_is_tried_again_and_then_said() -> None:
    found = {
        one.index: trial
        for one, trial in Campaign(
            Fleet("unjudged", "unjudged", "passed").start, EvaluationOptions(batch=2, retries=2)
        ).run([sample(0), sample(1)])
    }
    assert {one.verdict for one in found.values()} == {TrialVerdict.PASSED}
    ((_, trial),) = Campaign(Fleet(*["unjudged"] * 3).start, EvaluationOptions(retries=2)).run([sample(0)])
    assert (trial.verdict, trial.error and trial.error.type) == (TrialVerdict.UNJUDGED, "WorkerLost")


def test_long_programs_make_short_batches() -> None:
    fleet = Fleet()
    samples = [sample(n, f"x = {n!r}\n" + "#" * 300_000) for n in range(4)]
    assert len(list(Campaign(fleet.start, EvaluationOptions(batch=16)).run(samples))) == 4
    assert [len(job.evaluation.trials) for job in fleet.jobs if job.evaluation] == [2, 2]


def test_a_solved_problem_has_no_more_of_its_samples_run() -> None:
    fleet = Fleet("failed", "passed", "failed", "failed")
    options = EvaluationOptions(batch=1, window=1, dedupe=False, stop_early=True)
    samples = [sample(number, f"def f(): return {number}") for number in range(4)]
    found = list(Campaign(fleet.start, options).run(samples))
    assert [(one.index, trial.verdict.value) for one, trial in found] == [(0, "failed"), (1, "passed")]
    assert list(Campaign(fleet.start, options, solved=["a"]).run(samples)) == []


def test_what_is_on_its_way_is_abandoned_when_nobody_reads_on() -> None:
    waiting: list[Future[JobResult]] = []
    abandoned: list[Future[JobResult]] = []

    def start(spec: JobSpec) -> Future[JobResult]:
        future: Future[JobResult] = Fleet().start(spec) if not waiting else Future()
        waiting.append(future)
        return future

    options = EvaluationOptions(batch=1, window=3, dedupe=False)
    run = Campaign(start, options, abandoned.append).run(sample(number) for number in range(9))
    next(run)
    run.close()
    assert abandoned == waiting[1:] != []


def test_stopped_campaign_still_gives_what_its_jobs_had_judged() -> None:
    """Injected: of three jobs one had ended, one ends half-way when it is stopped, and one never began."""
    futures: list[Future[JobResult]] = []
    words = ["passed", "half", "never"]

    def start(spec: JobSpec) -> Future[JobResult]:
        future: Future[JobResult] = Future()
        futures.append(future)
        if words[len(futures) - 1] == "never":
            campaign.begin_no_more()
        return future

    def abandon(future: Future[JobResult]) -> None:
        ended = Fleet().start(jobs[0]).result()
        half = (*ended.trials[:2], result(TrialVerdict.UNJUDGED, "2"))
        if future is futures[0]:
            future.set_result(ended)
        elif future is futures[1]:
            future.set_result(ended.model_copy(update={"outcome": Outcome.CANCELLED, "trials": half}))
        else:
            assert future.cancel()

    fleet = Fleet()
    list(Campaign(fleet.start, EvaluationOptions(batch=3)).run([sample(number) for number in range(3)]))
    jobs = fleet.jobs
    campaign = Campaign(start, EvaluationOptions(batch=3, window=3), abandon)
    assert list(campaign.run([sample(number) for number in range(9)])) == []
    assert sorted(one.index for one, _ in campaign.late_results(5)) == [0, 1, 2, 3, 4]
    assert list(campaign.late_results(5)) == []


def test_late_results_are_not_awaited_by_a_caller_in_a_hurry() -> None:
    """Injected: a job that never ends."""

    def start(_: JobSpec) -> Future[JobResult]:
        campaign.begin_no_more()
        return Future()

    campaign = Campaign(start, EvaluationOptions(batch=1), lambda _: None)
    assert list(campaign.run([sample(0)])) == []
    assert list(campaign.late_results(60, lambda: True)) == []


def test_a_task_that_is_cancelled_stops_its_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    started: dict[Future[JobResult], JobSpec] = {}
    abandoned: list[Future[JobResult]] = []

    class Endless:
        """A fleet whose jobs end when they are stopped."""

        def start(self, spec: JobSpec) -> Future[JobResult]:
            future: Future[JobResult] = Future()
            started[future] = spec
            return future

        def abandon(self, future: Future[JobResult]) -> None:
            abandoned.append(future)
            if not future.done():
                future.set_result(Fleet("unjudged").start(started[future]).result())

        def campaign(self, options: EvaluationOptions) -> Campaign:
            return Campaign(self.start, options, self.abandon)

    client = AsyncClient.__new__(AsyncClient)
    monkeypatch.setattr(client, "_client", Endless(), raising=False)

    async def read() -> None:
        samples = (sample(number) for number in range(100))
        async for _ in client.evaluate(samples, EvaluationOptions(batch=1, window=3, dedupe=False)):
            raise AssertionError("nothing has ended")

    async def cancelled() -> None:
        task = asyncio.create_task(read())
        while len(started) < 3:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert set(abandoned) == set(started)
    assert len(started) == 3, "and none was begun anew"


def test_tests_that_cannot_be_used_are_no_part_of_any_score_and_not_tried_again() -> None:
    fleet = Fleet("unusable")
    ((_, trial),) = Campaign(fleet.start, EvaluationOptions(retries=2)).run([sample(0)])
    assert (trial.verdict, len(fleet.jobs)) == (TrialVerdict.UNUSABLE, 1)
    scores = Scores(["a", "b"])
    scores.add(SampleResult.of(sample(0), trial))
    summary = scores.summary([1])
    assert (summary["problems_judged"], summary["unusable"]) == (0, ["a"])
    assert math.isnan(
        rewards(Campaign(Fleet("unusable").start, EvaluationOptions()).run, [PROBLEM], ["return 1"])[0]
    )


def test_a_job_has_no_more_sandboxes_than_may_be_lost_at_once() -> None:
    case = StdioCase(stdin="", stdout="")
    problem = Problem("a", "", StdioCheck(cases=(case,) * 100))
    fleet = Fleet()
    samples = [Sample(n, problem, f"print({n})", {}) for n in range(6)]
    assert len(list(Campaign(fleet.start, EvaluationOptions()).run(samples))) == 6
    assert [len(job.evaluation.trials) for job in fleet.jobs if job.evaluation] == [2, 2, 2]


def test_four_times_the_samples_take_no_more_room() -> None:
    def many(count: int) -> Iterator[Sample]:
        return (sample(n) for n in range(count))

    peaks = []
    for count in (3_000, 12_000):
        tracemalloc.start()
        for _ in Campaign(Forgetful().start, EvaluationOptions(dedupe=False)).run(many(count)):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2 * peaks[0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"window": 0}, "window: is 0; it is 1 or more"),
        ({"batch": 300}, "batch: is 300; it is 1 to 256"),
        ({"retries": -1}, "retries: is -1"),
        ({"verdict": "maybe"}, "verdict: is 'maybe'; it is split or inline"),
    ],
)
def test_a_plan_that_no_run_could_have_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidJob, match=said):
        EvaluationOptions(**given)
