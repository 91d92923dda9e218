"""Programs in flight, and the jobs that carry them."""

from __future__ import annotations

from dataclasses import dataclass

from cellblock.contract.evaluations import Check, Evaluation, Trial, sandboxes
from cellblock.contract.job_spec import JobSpec
from cellblock.evaluation.options import EvaluationOptions
from cellblock.evaluation.samples import Sample

#: A job with more text than this takes no more samples.
_BYTES = 512 * 1024
#: Nor does a job that would use more sandboxes: its results are known only when all of it has ended.
_SANDBOXES = 256


@dataclass(slots=True)
class SampledProgram:
    """One program in flight, and every sample that is this program."""

    source: str
    check: Check
    samples: list[Sample]
    tries: int = 0

    @property
    def size_bytes(self) -> int:
        """The size of the program, without its tests."""
        return len(self.source.encode())

    @property
    def task_id(self) -> str:
        """The id of its problem."""
        return self.samples[0].problem.task_id


class Batch:
    """The programs of one job: at most ``most``, and at most ``job_bytes`` together with their tests."""

    def __init__(self, most: int, job_bytes: int) -> None:
        self.programs: list[SampledProgram] = []
        self._most = most
        self._job_bytes = job_bytes
        self._checks: dict[Check, int] = {}
        self._bytes = 0
        self._sandboxes = 0
        self._full = False

    @property
    def full(self) -> bool:
        """Whether the job takes no more programs."""
        return self._full or len(self.programs) >= self._most

    def add(self, program: SampledProgram) -> bool:
        """Adds a program if there is room for it; else marks the batch full. Returns whether it was added."""
        tests = 0 if program.check in self._checks else program.samples[0].problem.check_bytes
        size = self._bytes + tests + program.size_bytes
        if self.programs and size > self._job_bytes:
            self._full = True
            return False
        self._checks.setdefault(program.check, len(self._checks))
        self.programs.append(program)
        self._bytes = size
        one = sandboxes(program.check)
        self._sandboxes += one
        self._full = self._bytes > _BYTES or self._sandboxes + one > _SANDBOXES
        return True

    def spec(self, options: EvaluationOptions) -> JobSpec:
        """The job to submit; its trials are numbered as in ``programs``."""
        trials = [
            Trial(id=str(number), source=one.source, check=self._checks[one.check])
            for number, one in enumerate(self.programs)
        ]
        evaluation = Evaluation(
            checks=tuple(self._checks),
            trials=tuple(trials),
            verdict=options.verdict,
            stop_early=options.stop_early,
        )
        return JobSpec(evaluation=evaluation, **options.fields)
