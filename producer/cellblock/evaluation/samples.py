"""What a model wrote, sample by sample, read as it is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellblock.evaluation.formats import Problem
from cellblock.evaluation.lines import BadLine, BadLines, Line, parse, read_lines
from cellblock.evaluation.problems import ProblemSet

SOURCE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sample:
    """One program to judge. ``index``: its place in the file, counted from 0, bad lines included."""

    index: int
    problem: Problem
    source: str
    fields: dict[str, Any]


class SampleFile:
    """Samples with ``task_id`` and either ``completion``, put behind its problem's prompt, or ``solution``,
    a whole program."""

    def __init__(self, path: Path | str, problems: ProblemSet, *, skip_bad: bool = False) -> None:
        self._path = path
        self._problems = problems.problems
        self.bad = BadLines(skip=skip_bad)

    def __iter__(self) -> Iterator[Sample]:
        """Raises :class:`InvalidJob` naming line, field and reason; with ``skip_bad`` goes on, and counts."""
        for index, (where, text) in enumerate(read_lines(self._path)):
            try:
                yield self._sample(index, parse(where, text))
            except BadLine as bad:
                self.bad.note(bad)

    def _sample(self, index: int, line: Line) -> Sample:
        task_id = line.fields.get("task_id")
        problem = self._problems.get(str(task_id))
        if problem is None:
            why = "required, and missing" if task_id is None else f"{task_id!r:.200} is none of the problems"
            raise BadLine(line.where, "task_id", why)
        given = [name for name in ("completion", "solution") if line.fields.get(name) is not None]
        if len(given) != 1:
            why = (
                "give it, or a whole solution"
                if not given
                else "there is a solution as well; give one of the two"
            )
            raise BadLine(line.where, "completion", why)
        text = line.fields[given[0]]
        if not isinstance(text, str):
            raise BadLine(line.where, given[0], f"is a {type(text).__name__}; text is wanted")
        source = problem.source(text) if given[0] == "completion" else text
        try:
            if len(source.encode()) > SOURCE_BYTES:
                raise BadLine(line.where, given[0], f"makes a program of more than {SOURCE_BYTES} bytes")
        except UnicodeEncodeError:
            raise BadLine(line.where, given[0], "is no valid Unicode text") from None
        return Sample(index, problem, source, line.fields)
