"""A file of problems, read line by line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cellblock.errors import InvalidJob
from cellblock.evaluation.formats import Problem, read_problem
from cellblock.evaluation.json_lines import BadLine, BadLines, Line, parse, read_lines


@dataclass(slots=True)
class ProblemSet:
    """Problems by the id of their task, in the order of the file."""

    problems: dict[str, Problem] = field(default_factory=dict)
    bad: BadLines = field(default_factory=BadLines)

    @classmethod
    def read(cls, path: Path | str, *, skip_bad: bool = False) -> ProblemSet:
        """Raises :class:`InvalidJob` naming line, field and reason; with ``skip_bad`` counts such lines."""
        found = cls(bad=BadLines(skip=skip_bad))
        for line in read_lines(path):
            try:
                found.add(parse(line))
            except BadLine as bad:
                found.bad.note(bad)
        if not found.problems:
            raise InvalidJob(str(path), "has no problem that can be used")
        return found

    def add(self, line: Line) -> None:
        """Adds the problem of a line. Raises :class:`BadLine`."""
        problem = read_problem(line)
        if problem.task_id in self.problems:
            raise BadLine(line.where, "task_id", f"{problem.task_id!r} is there twice")
        self.problems[problem.task_id] = problem

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.problems.values())

    def __len__(self) -> int:
        return len(self.problems)
