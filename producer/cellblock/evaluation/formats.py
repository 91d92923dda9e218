"""Published formats of problem sets, read line by line.

A line's fields show its format:

===========  ==========================================================================================
HumanEval    ``task_id``, ``prompt``, ``entry_point``, ``test``
MBPP         ``task_id``, ``test_list``; ``test_setup_code`` or ``test_imports``, ``code`` where there are
stdin        ``task_id``, ``cases``, each with ``input`` and ``output``; ``compare`` (exact, whitespace or
             float), ``tolerance``, ``checker`` where there are. A completion is the whole program
APPS         ``task_id`` or ``problem_id``, ``input_output`` with ``inputs`` and ``outputs``, as an object or
             as its JSON. Likewise a program that reads and prints
pytest       ``task_id``, ``tests``, an object of file names and texts; ``files`` likewise, data or modules
             for program and tests; ``file`` (solution.py), which the tests import. A completion is that whole
             file: a prompt that it would go on from (HumanEval's way) is not put before it
===========  ==========================================================================================
"""

from __future__ import annotations

import ast
import builtins
import json
import keyword
import sys
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from cellblock.contract.evaluations import (
    CASES_MAX,
    FILES_MAX,
    Check,
    CompareMode,
    FunctionCheck,
    PytestCheck,
    StdioCase,
    StdioCheck,
    TextFile,
)
from cellblock.errors import InvalidJob
from cellblock.evaluation.json_lines import BadLine, Line

#: The most text of a problem's tests, which a job carries (``ledger.evaluation_bytes``).
CHECK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: the prompt before a completion, and the check that the whole program has to pass.

    ``check_bytes``: the size of the check, which a job carries.
    """

    task_id: str
    prompt: str
    check: Check
    check_bytes: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        size = sum(len(text.encode("utf-8", "replace")) for text in self.check.texts)
        object.__setattr__(self, "check_bytes", size)

    def source(self, completion: str) -> str:
        """The whole program: the prompt and a completion."""
        return self.prompt + completion


def _from_json(given: object) -> object:
    try:
        return json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        raise ValueError("is not JSON") from None


_Id = Annotated[str, BeforeValidator(lambda given: str(given) if isinstance(given, int) else given)]


class _Fields(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    task_id: _Id

    def problem(self) -> Problem:
        """The problem of these fields. Raises :class:`InvalidJob`, SyntaxError and ValueError."""
        raise NotImplementedError


class _HumanEval(_Fields):
    prompt: str
    entry_point: str
    test: str

    def problem(self) -> Problem:
        if not self.entry_point.isidentifier():
            raise InvalidJob("entry_point", f"{self.entry_point!r:.200} is not a function's name")
        if "check" not in _defined(self.test):
            raise InvalidJob("test", "defines no function check, which is what is called")
        check = FunctionCheck(
            setup=self.prompt if _is_python(self.prompt) else "",  # half a function is of no use to a test
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


class _Case(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    input: str
    output: str


class _Stdio(_Fields):
    cases: list[_Case] = Field(min_length=1, max_length=CASES_MAX)
    compare: CompareMode = "whitespace"
    tolerance: float | None = Field(None, ge=0, allow_inf_nan=False)
    checker: str | None = None

    def problem(self) -> Problem:
        if self.tolerance is not None and self.compare != "float":
            raise InvalidJob(
                "tolerance", f"is {self.tolerance}, and compare is {self.compare!r}, not 'float'"
            )
        if self.checker is not None:
            ast.parse(self.checker)
        cases = tuple(StdioCase(stdin=case.input, stdout=case.output) for case in self.cases)
        given = {} if self.tolerance is None else {"tolerance": self.tolerance}
        check = StdioCheck(cases=cases, compare=self.compare, checker=self.checker, **given)
        return Problem(self.task_id, "", check)


class _InputOutput(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    inputs: list[str] = Field(min_length=1, max_length=CASES_MAX)
    outputs: list[str]
    fn_name: object = None


class _Apps(_Fields):
    task_id: _Id = Field(validation_alias=AliasChoices("task_id", "problem_id"))
    input_output: Annotated[_InputOutput, BeforeValidator(_from_json)]

    def problem(self) -> Problem:
        inputs, outputs = self.input_output.inputs, self.input_output.outputs
        if self.input_output.fn_name is not None:
            raise ValueError(
                "has fn_name, so it calls a function; of these sets, what reads and prints is judged"
            )
        if len(inputs) != len(outputs):
            raise ValueError(f"{len(inputs)} inputs and {len(outputs)} outputs; as many of each are wanted")
        cases = tuple(StdioCase(stdin=one, stdout=other) for one, other in zip(inputs, outputs, strict=True))
        return Problem(self.task_id, "", StdioCheck(cases=cases))


class _Files(_Fields):
    tests: dict[str, str] = Field(min_length=1, max_length=FILES_MAX)
    files: dict[str, str] = Field({}, max_length=FILES_MAX)
    file: str = "solution.py"

    def problem(self) -> Problem:
        module, dot, rest = self.file.partition(".")
        if not module.isidentifier() or dot + rest != ".py":
            raise InvalidJob("file", f"{self.file!r:.200} is not a module's name and .py")
        if keyword.iskeyword(module) or module in sys.stdlib_module_names:
            raise InvalidJob("file", f"{self.file!r:.200} is a name of Python's own; take another one")
        for name, text in self.tests.items():
            try:
                ast.parse(text if name.endswith(".py") else "")
            except SyntaxError as error:
                raise InvalidJob(
                    f"tests.{name:.200}", f"is not Python: {error.msg}, line {error.lineno}"
                ) from None
        files, tests = (
            tuple(TextFile(name=name, text=text) for name, text in some.items())
            for some in (self.files, self.tests)
        )
        return Problem(self.task_id, "", PytestCheck(module=module, files=files, tests=tests))


#: For each format the field that shows it, its model, and the field to name where its Python is invalid.
_KINDS: tuple[tuple[str, type[_Fields], str], ...] = (
    ("test_list", _Mbpp, "test_list"),
    ("input_output", _Apps, "input_output"),
    ("cases", _Stdio, "checker"),
    ("test", _HumanEval, "test"),
    ("entry_point", _HumanEval, "test"),
    ("tests", _Files, "tests"),
)


def read_problem(line: Line) -> Problem:
    """The problem in this line. Raises :class:`BadLine`."""
    for_pytest = isinstance(line.fields.get("tests"), dict)  # in other formats, "tests" can be something else
    kinds = _KINDS[-1:] if for_pytest else _KINDS
    found = next((one for one in kinds if one[0] in line.fields), None)
    if found is None:
        known = "HumanEval has it, MBPP has test_list, APPS input_output, others cases, or tests for pytest"
        raise BadLine(line.where, "test", f"of no known format: {known}")
    told, kind, blamed = found
    try:
        problem = kind.model_validate(line.fields).problem()
    except ValidationError as error:
        raise BadLine.of(line.where, error) from None
    except InvalidJob as error:
        raise BadLine(line.where, error.field, error.problem) from None
    except SyntaxError as error:
        raise BadLine(line.where, blamed, f"is not Python: {error.msg}") from None
    except (MemoryError, RecursionError):
        raise BadLine(line.where, blamed, "is nested too deeply to be read") from None
    except ValueError as error:
        raise BadLine(line.where, blamed, str(error)) from None
    try:
        for text in (problem.task_id, problem.prompt, *problem.check.texts):
            text.encode()
    except UnicodeEncodeError:
        raise BadLine(line.where, told, "has no valid Unicode text") from None
    if problem.check_bytes > CHECK_BYTES:
        raise BadLine(
            line.where,
            told,
            f"what it has to pass is {problem.check_bytes} bytes; {CHECK_BYTES} are accepted",
        )
    return problem


def _called(tests: str, *, of: set[str] | None) -> tuple[str, ...]:
    """The names that the tests call and that neither they nor Python define."""
    known = _defined(tests) | set(dir(builtins))
    nodes = (node.func for node in ast.walk(ast.parse(tests)) if isinstance(node, ast.Call))
    calls = [node.id for node in nodes if isinstance(node, ast.Name)]
    names = dict.fromkeys(name for name in calls if name not in known and (of is None or name in of))
    if not names:
        raise ValueError("calls no function that a solution would define")
    return tuple(names)


def _is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return True


def _defined(source: str) -> set[str]:
    """Every name that this source defines, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(one.asname or one.name).partition(".")[0] for one in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names
