"""Samples in, results out: batches on their way to a fleet, a bounded number at a time."""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Any, get_args

from cellblock.errors import InvalidJob
from cellblock.evaluation.samples import Sample
from cellblock.models import JobError, JobResult, JobSpec, Outcome
from cellblock.trials import (
    TRIALS_MAX,
    Check,
    Evaluation,
    Trial,
    TrialResult,
    TrialVerdict,
    VerdictMode,
    channel_of,
    sandboxes,
)

#: Samples of one job where nobody knows how many there will be, and where it is known: at least and at most.
#: What a job takes by itself (a judge, a message, a claim, a result) is shared by them: docs/performance.md.
_BATCH_OF_A_STREAM, _BATCH_LEAST, _BATCH_MOST = 32, 4, 128
#: Puts a job on its way.
Start = Callable[[JobSpec], "Future[JobResult]"]
#: Stops a job whose result nobody will read.
Abandon = Callable[["Future[JobResult]"], object]
#: Of so many programs of late the result is known, should one come again.
_REMEMBERED = 8192
#: A job with more text than this takes no more samples.
_BATCH_CHARS = 512 * 1024
#: Nor one with more sandboxes: what it has found is known when all of it has ended.
_BATCH_SANDBOXES = 256


@dataclass(frozen=True, slots=True)
class Plan:
    """How samples are run.

    ``batch``: samples of one job, None: by how many there are; ``window``: jobs on their way at once;
    ``retries``: how often what is our fault is tried again; ``dedupe``: whether a program that comes again is
    judged once; ``stop_early``: a problem is done with its first pass, and no sample of it is run that was
    not on its way by then; ``fields``: of each job besides, such as level, limits and tenant.
    """

    verdict: VerdictMode = "split"
    batch: int | None = None
    window: int = 16
    retries: int = 2
    dedupe: bool = True
    stop_early: bool = False
    fields: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises :class:`InvalidJob` for what no run could have."""
        if self.batch is not None and not 1 <= self.batch <= TRIALS_MAX:
            raise InvalidJob("batch", f"is {self.batch}; it is 1 to {TRIALS_MAX}")
        if self.window < 1:
            raise InvalidJob("window", f"is {self.window}; it is 1 or more")
        if self.retries < 0:
            raise InvalidJob("retries", f"is {self.retries}; it is 0 or more")
        if self.verdict not in (known := get_args(VerdictMode)):
            raise InvalidJob("verdict", f"is {self.verdict!r:.80}; it is {' or '.join(known)}")

    def batch_of(self, total: int | None) -> int:
        """Samples of one job, where there are so many in all: as many as leave something for every job of the
        window. None: nobody knows."""
        if self.batch is not None:
            return self.batch
        if total is None:
            return _BATCH_OF_A_STREAM
        return max(_BATCH_LEAST, min(_BATCH_MOST, total // self.window))


@dataclass(slots=True)
class _Program:
    """One program on its way, and every sample that is this program."""

    source: str
    check: Check
    samples: list[Sample]
    tries: int = 0


class Campaign:
    """Runs samples through a fleet. Holds what is on its way and the results of some programs, no more."""

    _stopped = False
    submitting = False  #: whether a job is on its way that :meth:`stop` does not know yet

    def __init__(
        self, start: Start, plan: Plan, abandon: Abandon = Future.cancel, solved: Iterable[str] = ()
    ) -> None:
        """``abandon``: what to do about a job when nobody reads on; ``solved``: problems done before."""
        self._start = start
        self._plan = plan
        self._abandon = abandon
        self._solved = set(solved)
        self._flight: dict[Future[JobResult], list[_Program]] = {}
        self._batch = plan.batch_of(None)
        self._again: deque[_Program] = deque()
        self._returned: deque[_Program] = deque()
        self._pending: dict[bytes, _Program] = {}
        self._known: OrderedDict[bytes, TrialResult] = OrderedDict()

    def run(
        self, samples: Iterable[Sample], total: int | None = None
    ) -> Generator[tuple[Sample, TrialResult], None, None]:
        """Every sample with its result, in the order of ending.

        ``total``: how many they are, where they do not know it themselves.
        """
        self._batch = self._plan.batch_of(len(samples) if isinstance(samples, Sized) else total)
        try:
            yield from self._run(iter(samples))
        finally:  # nobody reads on, or the fleet refused
            self.stop()

    def begin_no_more(self) -> None:
        """What is on its way is the last. From anywhere, signal handlers included."""
        self._stopped = True

    def stop(self) -> None:
        """Begin nothing more, and stop what is on its way. From any thread."""
        self.begin_no_more()
        for future in list(self._flight):
            self._abandon(future)

    def _run(self, source: Iterator[Sample]) -> Iterator[tuple[Sample, TrialResult]]:
        more = True
        while (more or self._waiting or self._flight) and not self._stopped:
            while len(self._flight) < self._plan.window and (more or self._waiting) and not self._stopped:
                batch: list[_Program] = []
                if self._again:  # by itself: whatever went wrong, it may have been one of its company
                    batch.append(self._again.popleft())
                elif self._returned:
                    self._share_out(batch)
                else:
                    more = yield from self._fill(batch, source)
                if batch and not self._stopped:
                    self._submit(batch)
            if not self._stopped:
                yield from self._landed()

    @property
    def _waiting(self) -> bool:
        return bool(self._again or self._returned)

    def _share_out(self, batch: list[_Program]) -> None:
        """Of what jobs have not come to, to each job that can be on its way as much: they may all be slow."""
        share = max(1, len(self._returned) // self._plan.window)
        while self._returned and len(batch) < share and not self._full(batch):
            batch.append(self._returned.popleft())

    def _submit(self, batch: list[_Program]) -> None:
        self.submitting = True
        try:
            self._flight[self._start(self._spec(batch))] = batch
        finally:
            self.submitting = False

    def _fill(
        self, batch: list[_Program], source: Iterator[Sample]
    ) -> Generator[tuple[Sample, TrialResult], None, bool]:
        """Draw samples until there are enough to run, with those on the way whose result is known already.

        Whether there may be more.
        """
        for sample in source:
            if self._plan.stop_early and sample.problem.task_id in self._solved:
                continue
            if (known := self._look_up(sample, batch)) is not None:
                yield sample, known
            if self._full(batch):
                return True
        return False

    def _full(self, batch: list[_Program]) -> bool:
        texts = [one.source for one in batch]
        texts += [text for check in {one.check for one in batch} for text in check.texts]
        if len(batch) >= self._batch or sum(map(len, texts)) > _BATCH_CHARS:
            return True
        return sum(sandboxes(one.check) for one in batch) > _BATCH_SANDBOXES

    def _look_up(self, sample: Sample, batch: list[_Program]) -> TrialResult | None:
        """What is known of this program already; else it is on its way now, or waits for the one that is."""
        digest = _digest(sample)
        if self._plan.dedupe:
            if (known := self._known.get(digest)) is not None:
                self._known.move_to_end(digest)
                return known
            if (pending := self._pending.get(digest)) is not None:
                pending.samples.append(sample)
                return None
        program = _Program(sample.source, sample.problem.check, [sample])
        if self._plan.dedupe:
            self._pending[digest] = program
        batch.append(program)
        return None

    def _spec(self, batch: list[_Program]) -> JobSpec:
        checks: dict[Check, int] = {}
        trials = [
            Trial(id=str(number), source=one.source, check=checks.setdefault(one.check, len(checks)))
            for number, one in enumerate(batch)
        ]
        evaluation = Evaluation(checks=tuple(checks), trials=tuple(trials), verdict=self._plan.verdict)
        return JobSpec(evaluation=evaluation, **self._plan.fields)

    def _landed(self) -> Iterator[tuple[Sample, TrialResult]]:
        done, _ = wait(self._flight, return_when=FIRST_COMPLETED)
        for future in done:
            batch = self._flight.pop(future)
            job = future.result()
            found = {trial.id: trial for trial in job.trials}
            for number, program in enumerate(batch):
                result = found.get(str(number))
                if result is None and found and job.outcome is Outcome.OK:
                    self._returned.append(program)
                else:
                    yield from self._ended(program, result or self._unjudged(program.check, job))

    def _unjudged(self, check: Check, job: JobResult) -> TrialResult:
        """Of a job that ended without a word on its trials: none of it is the programs' doing."""
        why = job.error.message if job.error else job.outcome.value
        return TrialResult(
            id="",
            verdict=TrialVerdict.UNJUDGED,
            channel=channel_of(check, self._plan.verdict),
            outcome=job.outcome if job.outcome is not Outcome.OK else Outcome.SANDBOX_ERROR,
            error=JobError(type=job.error.type if job.error else "Unjudged", message=why),
        )

    def _ended(self, program: _Program, result: TrialResult) -> Iterator[tuple[Sample, TrialResult]]:
        if result.verdict is TrialVerdict.UNJUDGED and program.tries < self._plan.retries:
            program.tries += 1
            self._again.append(program)
            return
        if result.verdict is TrialVerdict.PASSED:
            self._solved.add(program.samples[0].problem.task_id)
        digest = _digest(program.samples[0])
        self._pending.pop(digest, None)
        if self._plan.dedupe and result.verdict is not TrialVerdict.UNJUDGED:
            self._known[digest] = result
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        for sample in program.samples:
            yield sample, result


def _digest(sample: Sample) -> bytes:
    """The same for programs that are judged alike."""
    text = sample.source.encode("utf-8", "replace")
    return hashlib.sha256(sample.problem.task_id.encode() + b"\0" + text).digest()
