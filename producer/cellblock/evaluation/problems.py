"""Problem sets as they are published: what a program has to pass, read line by line.

Known by their fields:

===========  ==========================================================================================
HumanEval    ``task_id``, ``prompt``, ``entry_point``, ``test``
MBPP         ``task_id``, ``test_list``; ``test_setup_code`` or ``test_imports``, ``code`` where there are
===========  ==========================================================================================
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from cellblock.errors import InvalidJob
from cellblock.evaluation.lines import BadLine, Line, parse, read_lines
from cellblock.trials import FunctionCheck


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: what a completion is put behind, and what the whole has to pass."""

    task_id: str
    prompt: str
    check: FunctionCheck

    def source(self, completion: str) -> str:
        """The program that a completion makes of the prompt."""
        return self.prompt + completion


class _Fields(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    task_id: Annotated[str, BeforeValidator(lambda given: str(given) if isinstance(given, int) else given)]


class _HumanEval(_Fields):
    prompt: str
    entry_point: str
    test: str

    def problem(self) -> Problem:
        check = FunctionCheck(
            setup=self.prompt,
            functions=(self.entry_point,),
            tests=f"{self.test}\n\ncheck({self.entry_point})\n",
        )
        return Problem(self.task_id, self.prompt, check)


class _Mbpp(_Fields):
    test_list: list[str] = Field(min_length=1)
    test_setup_code: str = ""
    test_imports: list[str] = []
    code: str = ""

    def problem(self) -> Problem:
        setup, tests = "\n".join([*self.test_imports, self.test_setup_code]), "\n".join(self.test_list)
        functions = _called(f"{setup}\n{tests}", of=_defined(self.code) if self.code else None)
        return Problem(self.task_id, "", FunctionCheck(setup=setup, functions=functions, tests=tests + "\n"))


@dataclass(slots=True)
class ProblemSet:
    """Problems by their task's id, in the order of the file."""

    problems: dict[str, Problem] = field(default_factory=dict)
    bad: list[BadLine] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path, *, skip_bad: bool = False) -> ProblemSet:
        """Raises :class:`InvalidJob` naming line, field and reason; ``skip_bad`` keeps such lines apart."""
        found = cls()
        for where, text in read_lines(path):
            try:
                found.add(parse(where, text))
            except BadLine as bad:
                if not skip_bad:
                    raise InvalidJob(bad.place, bad.why) from None
                found.bad.append(bad)
        return found

    def add(self, line: Line) -> None:
        """One more problem. Raises :class:`BadLine`."""
        problem = _problem(line)
        if problem.task_id in self.problems:
            raise BadLine(line.where, "task_id", f"{problem.task_id!r} is there twice")
        self.problems[problem.task_id] = problem

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.problems.values())

    def __len__(self) -> int:
        return len(self.problems)


def _problem(line: Line) -> Problem:
    if "test_list" in line.fields:
        kind: type[_HumanEval] | type[_Mbpp] = _Mbpp
    elif "test" in line.fields or "entry_point" in line.fields:
        kind = _HumanEval
    else:
        raise BadLine(line.where, "test", "of no known format: HumanEval has it, MBPP has test_list instead")
    try:
        return kind.model_validate(line.fields).problem()
    except ValidationError as error:
        raise BadLine.of(line.where, error) from None
    except InvalidJob as error:
        raise BadLine(line.where, error.field, error.problem) from None
    except SyntaxError as error:
        raise BadLine(line.where, "test_list", f"is no Python: {error.msg}") from None
    except ValueError as error:
        raise BadLine(line.where, "test_list", str(error)) from None


def _called(tests: str, *, of: set[str] | None) -> tuple[str, ...]:
    """What the tests call that is neither theirs nor Python's."""
    known = _defined(tests) | set(dir(builtins))
    nodes = (node.func for node in ast.walk(ast.parse(tests)) if isinstance(node, ast.Call))
    calls = [node.id for node in nodes if isinstance(node, ast.Name)]
    names = dict.fromkeys(name for name in calls if name not in known and (of is None or name in of))
    if not names:
        raise ValueError("calls no function that a solution would define")
    return tuple(names)


def _defined(source: str) -> set[str]:
    """Every name that this source gives a meaning to, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(one.asname or one.name).partition(".")[0] for one in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names
