"""The programs that a model wrote, read one at a time.

A model cannot take a sample out of the score, whatever it writes: a sample that cannot be run is *invalid*,
and has failed. Only a line that is not a sample (no JSON, no task) is a bad line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from cellblock.errors import InvalidJob
from cellblock.evaluation.formats import Problem
from cellblock.evaluation.json_lines import BadLine, BadLines, Line, RawLine, Unreadable, parse, read_lines
from cellblock.evaluation.problems import ProblemSet


class InvalidReason(StrEnum):
    """Why a sample cannot be run."""

    MISSING = "missing"  #: neither completion nor solution
    NOT_TEXT = "not_text"  #: a number, a list, null
    NOT_UNICODE = "not_unicode"  #: a lone surrogate, or bytes in the file that are not UTF-8
    TOO_LARGE = "too_large"  #: longer than a job, or a line, can be
    UNREADABLE = "unreadable"  #: JSON nested too deeply, or a number of too many digits


@dataclass(frozen=True, slots=True)
class Invalid:
    """Why a sample cannot be run, as a word and as a sentence."""

    reason: InvalidReason
    message: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One program to judge. ``index``: its place in the file, counted from 0, including bad lines;
    ``invalid``: why it cannot be run and has failed; None if it can be run."""

    index: int
    problem: Problem
    source: str
    fields: dict[str, Any]
    invalid: Invalid | None = None

    @classmethod
    def of(
        cls, index: int, problem: Problem, given: object, fields: dict[str, Any], *, whole: bool = False
    ) -> Sample:
        """The sample of ``given``, which follows its problem's prompt unless it is a ``whole`` program."""
        if not isinstance(given, str):
            kind = "null" if given is None else f"a {type(given).__name__}"
            invalid = Invalid(InvalidReason.NOT_TEXT, f"the completion is {kind}; text is wanted")
            return cls(index=index, problem=problem, source="", fields=fields, invalid=invalid)
        return cls(index, problem, given if whole else problem.source(given), fields)

    def held_to(self, job_bytes: int) -> Sample:
        """The sample, marked invalid if a job of ``job_bytes`` cannot carry its program.

        Raises :class:`InvalidJob` if the problem's tests alone fill such a job.
        """
        tests = self.problem.check_bytes
        if tests >= job_bytes:
            raise InvalidJob(
                "CELLBLOCK_LEDGER_EVALUATION_BYTES",
                f"the tests of {self.problem.task_id!r:.200} have {tests} bytes, and a job takes "
                f"{job_bytes}; raise it, or leave out the problem",
            )
        if self.invalid is not None:
            return self
        try:
            size = len(self.source.encode())
        except UnicodeEncodeError:
            why = "the completion is not valid Unicode text: it cannot be written as UTF-8"
            return replace(self, invalid=Invalid(InvalidReason.NOT_UNICODE, why))
        if size + tests <= job_bytes:
            return self
        why = (
            f"the program has {size} bytes; a job takes {job_bytes}, and {tests} of them are its tests "
            "(CELLBLOCK_LEDGER_EVALUATION_BYTES)"
        )
        return replace(self, invalid=Invalid(InvalidReason.TOO_LARGE, why))


class SampleFile:
    """A file of samples: ``task_id`` and either ``completion``, which follows its problem's prompt, or
    ``solution``, a whole program."""

    def __init__(self, path: Path | str, problems: ProblemSet, *, skip_bad: bool = False) -> None:
        self._path = path
        self._problems = problems.problems
        self.bad = BadLines(skip=skip_bad)

    def __iter__(self) -> Iterator[Sample]:
        """Raises :class:`InvalidJob` naming line, field and reason; with ``skip_bad`` counts and goes on."""
        for index, line in enumerate(read_lines(self._path)):
            try:
                yield self._sample(index, line)
            except BadLine as bad:
                self.bad.note(bad)

    def _sample(self, index: int, raw: RawLine) -> Sample:
        try:
            line = parse(raw)
        except Unreadable as error:
            problem = self._problems.get(str(error.task_id))
            if problem is None:
                raise
            reason = InvalidReason.TOO_LARGE if raw.cut else InvalidReason.UNREADABLE
            invalid = Invalid(reason, f"its line {error.problem}")
            return Sample(
                index=index, problem=problem, source="", fields={"task_id": problem.task_id}, invalid=invalid
            )
        task_id = line.fields.get("task_id")
        problem = self._problems.get(str(task_id))
        if problem is None:
            why = (
                "required, and missing" if task_id is None else f"{task_id!r:.200} is not one of the problems"
            )
            raise BadLine(line.where, "task_id", why)
        return self._completed(index, problem, line)

    def _completed(self, index: int, problem: Problem, line: Line) -> Sample:
        there = [name for name in ("completion", "solution") if name in line.fields]
        given = [name for name in there if line.fields[name] is not None]
        if len(given) > 1:
            raise BadLine(line.where, "completion", "there is a solution as well; give one of the two")
        if not there and not self.bad.skip:  # with skip_bad it must not leave the score
            raise BadLine(line.where, "completion", "give it, or a whole solution")
        if not there:
            invalid = Invalid(InvalidReason.MISSING, "there is neither completion nor solution")
            return Sample(index=index, problem=problem, source="", fields=line.fields, invalid=invalid)
        name = (given or there)[0]
        return Sample.of(index, problem, line.fields[name], line.fields, whole=name == "solution")
