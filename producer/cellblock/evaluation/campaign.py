"""Runs samples through a fleet in batches, with a bounded number of them in flight."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import suppress

from cellblock.contract.evaluations import Check, TrialResult, TrialVerdict, channel_of
from cellblock.contract.job_spec import JobSpec
from cellblock.contract.outcomes import JobError, Outcome
from cellblock.contract.results import JobResult
from cellblock.errors import CellblockError
from cellblock.evaluation.batches import Batch, SampledProgram
from cellblock.evaluation.options import BATCH_LEAST, JOB_BYTES, EvaluationOptions
from cellblock.evaluation.samples import Invalid, Sample

#: Submits a job.
Start = Callable[[JobSpec], "Future[JobResult]"]
#: Stops a job whose result is not needed.
Abandon = Callable[["Future[JobResult]"], object]
#: The number of recent programs whose results are remembered, in case one comes again.
_REMEMBERED = 8192
#: Bounds samples in flight, as a multiple of window x batch: samples of one program share its run.
_HELD_FACTOR = 4
#: How soon a campaign notices that it is to end.
_LOOK_S = 0.2
#: Bounds the text of samples in flight: one large program can come again a thousand times.
_HELD_CHARS = 64 * 1024 * 1024


class Campaign:
    """Runs samples through a fleet, once. In memory are the samples in flight and some results, no more."""

    def __init__(
        self,
        start: Start,
        options: EvaluationOptions,
        abandon: Abandon = Future.cancel,
        solved: Iterable[str] = (),
        job_bytes: int = JOB_BYTES,
    ) -> None:
        """``abandon``: stops a job whose result is not needed any more; ``solved``: problems solved before;
        ``job_bytes``: the most text of one job (``ledger.evaluation_bytes``)."""
        self._stopped = False
        self._start = start
        self._options = options
        self._abandon = abandon
        self._solved = set(solved)
        self._job_bytes = job_bytes
        self._flight: dict[Future[JobResult], list[SampledProgram]] = {}
        self._again: deque[SampledProgram] = deque()  # to run again, after a fault of ours
        self._returned: deque[SampledProgram] = deque()  # their job did not reach them, or had no room
        self._held = 0
        self._held_chars = 0
        self._pending: dict[bytes, SampledProgram] = {}
        self._known: OrderedDict[bytes, TrialResult] = OrderedDict()

    def run(
        self, samples: Iterable[Sample], total: int | None = None
    ) -> Generator[tuple[Sample, TrialResult], None, None]:
        """Every sample with its result, in the order of ending.

        ``total``: their number, where ``samples`` has no length. Raises RuntimeError on a second run.
        """
        if self._stopped:
            raise RuntimeError("a campaign runs once: make another")
        if total is None and isinstance(samples, Sized):
            total = len(samples)
        try:
            yield from self._run(iter(samples), self._options.batch_of(total))
        finally:  # the caller stopped reading, or the fleet refused a job
            self.stop()

    def begin_no_more(self) -> None:
        """Submits no more jobs, and ends :meth:`run` soon. Safe to call anywhere, also in signal handlers."""
        self._stopped = True

    def stop(self) -> None:
        """Submits no more jobs, and stops those in flight. Safe to call from any thread."""
        self.begin_no_more()
        for future in list(self._flight):
            self._abandon(future)

    def late_results(
        self, within_s: float, is_hurried: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[Sample, TrialResult]]:
        """After :meth:`run` was ended: what its jobs had judged before they were stopped, and cost.

        Waits for the ends of these jobs, ``within_s`` at most, and no more once ``is_hurried``.
        """
        ends = time.monotonic() + within_s
        while self._flight and time.monotonic() < ends and not is_hurried():
            done, _ = wait(self._flight, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
            for future in done:
                programs = self._flight.pop(future)
                with suppress(CancelledError, CellblockError):  # then it says nothing of its samples
                    for program, result in zip(programs, _found(programs, future.result()), strict=True):
                        if result is not None and result.verdict is not TrialVerdict.UNJUDGED:
                            yield from self._ended(program, result)

    def _run(self, source: Iterator[Sample], size: int) -> Iterator[tuple[Sample, TrialResult]]:
        window, most = self._options.window, self._options.window * size * _HELD_FACTOR
        more = True
        while (more or self._again or self._returned or self._flight) and not self._stopped:
            while len(self._flight) < window and not self._stopped:
                fills = more and self._has_room(most)
                if not (fills or self._again or self._returned):
                    break
                batch = Batch(size, self._job_bytes)
                if self._again:  # alone: another program of its job can have caused the fault
                    self._take(self._again, 1, batch)
                else:  # equal shares for all jobs of the window: each program can be slow
                    self._take(self._returned, max(BATCH_LEAST, len(self._returned) // window), batch)
                    if fills:
                        more = yield from self._fill(batch, source, most)
                if batch.programs and not self._stopped:
                    self._submit(batch)
            yield from self._landed()

    def _take(self, waiting: deque[SampledProgram], share: int, batch: Batch) -> None:
        """Moves waiting programs into the batch until it has ``share``; drops those of solved problems."""
        while waiting and len(batch.programs) < share and not batch.full:
            program = waiting.popleft()
            if self._done_with(program.task_id):
                self._forget(program)
            elif not batch.add(program):
                waiting.appendleft(program)

    def _has_room(self, most: int) -> bool:
        return self._held < most and self._held_chars < _HELD_CHARS

    def _done_with(self, task_id: str) -> bool:
        return self._options.stop_early and task_id in self._solved

    def _submit(self, batch: Batch) -> None:
        self._flight[self._start(batch.spec(self._options))] = batch.programs

    def _fill(
        self, batch: Batch, source: Iterator[Sample], most: int
    ) -> Generator[tuple[Sample, TrialResult], None, bool]:
        """Draws samples until the batch is full; yields those whose result is known already.

        Returns whether there might be more samples.
        """
        while not batch.full and self._has_room(most):
            sample = next(source, None)
            if sample is None:
                return False
            if self._done_with(sample.problem.task_id):
                continue
            sample = sample.held_to(self._job_bytes)
            if sample.invalid is not None:
                yield sample, self._failed(sample, sample.invalid)
            elif (known := self._look_up(sample, batch)) is not None:
                yield sample, known
        return True

    def _look_up(self, sample: Sample, batch: Batch) -> TrialResult | None:
        """The result of this program if it is known; else None, and the sample is in flight from now on."""
        digest = _digest(sample)
        if self._options.dedupe and (known := self._known.get(digest)) is not None:
            self._known.move_to_end(digest)
            return known
        self._held += 1
        self._held_chars += len(sample.source)
        if self._options.dedupe and (pending := self._pending.get(digest)) is not None:
            pending.samples.append(sample)
            return None
        program = SampledProgram(sample.source, sample.problem.check, [sample])
        if self._options.dedupe:
            self._pending[digest] = program
        if not batch.add(program):
            self._returned.append(program)
        return None

    def _landed(self) -> Iterator[tuple[Sample, TrialResult]]:
        done: set[Future[JobResult]] = set()
        while self._flight and not done and not self._stopped:
            done, _ = wait(self._flight, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
        for future in done:
            programs, job = self._flight.pop(future), future.result()
            results = _found(programs, job)
            for program, result in zip(programs, results, strict=True):
                if result is None and any(results) and job.outcome is Outcome.OK:
                    self._returned.append(program)
                else:
                    yield from self._ended(program, result or self._unjudged(program.check, job))

    def _failed(self, sample: Sample, invalid: Invalid) -> TrialResult:
        """The result of a sample that cannot be run. It has failed: a model gains nothing by writing one."""
        return TrialResult(
            id="",
            verdict=TrialVerdict.FAILED,
            channel=channel_of(sample.problem.check, self._options.verdict),
            outcome=Outcome.REJECTED,
            error=JobError(type="InvalidSample", message=invalid.message),
        )

    def _unjudged(self, check: Check, job: JobResult) -> TrialResult:
        """The result for each trial of a job that ended without results: the programs are not to blame."""
        why = job.error.message if job.error else job.outcome.value
        return TrialResult(
            id="",
            verdict=TrialVerdict.UNJUDGED,
            channel=channel_of(check, self._options.verdict),
            outcome=job.outcome if job.outcome is not Outcome.OK else Outcome.SANDBOX_ERROR,
            error=JobError(type=job.error.type if job.error else "Unjudged", message=why),
        )

    def _ended(self, program: SampledProgram, result: TrialResult) -> Iterator[tuple[Sample, TrialResult]]:
        if result.verdict is TrialVerdict.UNJUDGED and program.tries < self._options.retries:
            program.tries += 1
            self._again.append(program)
            return
        if result.verdict is TrialVerdict.PASSED:
            self._solved.add(program.task_id)
        digest = self._forget(program)
        if self._options.dedupe and result.verdict is not TrialVerdict.UNJUDGED:
            self._known[digest] = result
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        for sample in program.samples:
            yield sample, result

    def _forget(self, program: SampledProgram) -> bytes:
        """Removes a program from those in flight. Returns its digest."""
        digest = _digest(program.samples[0])
        self._pending.pop(digest, None)
        self._held -= len(program.samples)
        self._held_chars -= len(program.samples) * len(program.source)
        return digest


def _found(programs: Sequence[SampledProgram], job: JobResult) -> list[TrialResult | None]:
    """The job's result for each of its programs; None for one that it did not reach."""
    found = {trial.id: trial for trial in job.trials}
    return [found.get(str(number)) for number in range(len(programs))]


def _digest(sample: Sample) -> bytes:
    """A digest that is equal for samples with the same program and the same tests."""
    text = sample.source.encode()
    return hashlib.sha256(sample.problem.task_id.encode() + b"\0" + text).digest()
