"""An evaluation: many programs to judge in one job, and the verdict on each.

The trials of an evaluation share the costs of one job (admission, message, claim, result). Each trial has a
sandbox of its own.
"""

from __future__ import annotations

import keyword
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cellblock.contract import paths
from cellblock.contract.base import CheckedModel, Contract
from cellblock.contract.outcomes import JobError, Outcome, Usage
from cellblock.errors import InvalidJob

TRIALS_MAX = 256
CASES_MAX = 1000
FILES_MAX = 256
_NO_TESTS = ("conftest.py", "__init__.py")
Source = Annotated[str, Field(strict=True)]
VerdictMode = Literal["split", "inline"]
CompareMode = Literal["exact", "whitespace", "float"]


class TrialVerdict(StrEnum):
    """The verdict on one program."""

    PASSED = "passed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    #: Its arguments or results are not plain values: only the mode ``inline`` can judge it.
    NEEDS_INLINE = "needs_inline"
    UNJUDGED = "unjudged"  #: our fault: try it again; it counts in no score
    UNUSABLE = "unusable"  #: the tests of its problem do not work: mend them first; it counts in no score

    @property
    def scored(self) -> bool:
        """Whether the verdict is about the program itself, so that it counts in scores."""
        return self not in (TrialVerdict.UNJUDGED, TrialVerdict.UNUSABLE)


class FunctionCheck(CheckedModel):
    """Tests that call functions of the program."""

    kind: Literal["function"] = "function"
    setup: Source = Field("", description="The tests' own definitions, run before them.")
    functions: tuple[Annotated[str, Field(pattern=r"^[^\W\d]\w{0,127}$")], ...] = Field(
        min_length=1, max_length=64, description="The functions of the program that they call."
    )
    tests: Source

    @property
    def texts(self) -> Iterator[str]:
        """All it is made of."""
        yield from (self.setup, self.tests)


class StdioCase(CheckedModel):
    """The standard input of one run, and the output that the program has to print for it."""

    stdin: Source
    stdout: Source


class StdioCheck(CheckedModel):
    """Cases for a program that reads and prints. Each case is a run of its own, within the job's limits.

    ``checker``: a Python program that decides instead of a comparison. Its arguments name three files:
    input, printed output and expected output. It accepts by ending with exit code 0.
    """

    kind: Literal["stdio"] = "stdio"
    cases: tuple[StdioCase, ...] = Field(min_length=1, max_length=CASES_MAX)
    compare: CompareMode = "whitespace"
    tolerance: float = Field(
        1e-6,
        ge=0,
        description="For float: absolute, or relative to what is expected; integers have to be equal.",
    )
    checker: Source | None = None

    @property
    def texts(self) -> Iterator[str]:
        """All it is made of."""
        for case in self.cases:
            yield case.stdin
            yield case.stdout
        yield self.checker or ""


class TextFile(CheckedModel):
    """A text file and its relative path."""

    name: Source
    text: Source


class PytestCheck(CheckedModel):
    """Test files for pytest, which import the program as a module.

    ``files`` lie beside the program as well as beside the tests: data, and modules that both may import.
    """

    kind: Literal["pytest"] = "pytest"
    module: str = Field(
        "solution", pattern=r"^[^\W\d]\w{0,127}$", description="What the program is imported as."
    )
    files: tuple[TextFile, ...] = Field((), max_length=FILES_MAX)
    tests: tuple[TextFile, ...] = Field(min_length=1, max_length=FILES_MAX)

    @model_validator(mode="after")
    def _names_are_apart(self) -> Self:
        if keyword.iskeyword(self.module) or self.module in sys.stdlib_module_names:
            raise InvalidJob("module", f"{self.module!r} is Python's own word")
        names = [f"{self.module}.py", *(one.name for one in (*self.files, *self.tests))]
        try:
            paths.check_files(names)
        except ValueError as error:
            raise InvalidJob("tests", str(error)) from None
        for name in names[1:]:
            if names.count(name) > 1 or name.startswith(f"{self.module}/"):
                raise InvalidJob("tests", f"{name!r:.200} is there twice, or is the program's")
        modules = [one.name for one in self.tests if one.name.endswith(".py")]
        if all(PurePosixPath(name).name in _NO_TESTS for name in modules):
            raise InvalidJob("tests", "none of them is a module of tests")
        return self

    @property
    def texts(self) -> Iterator[str]:
        """All it is made of."""
        for one in (*self.files, *self.tests):
            yield one.name
            yield one.text


Check = Annotated[FunctionCheck | StdioCheck | PytestCheck, Field(discriminator="kind")]


def channel_of(check: Check, mode: VerdictMode) -> VerdictMode:
    """The mode that a verdict by this check rests on: printed output is always compared outside (split)."""
    return "split" if isinstance(check, StdioCheck) else mode


def sandboxes(check: Check) -> int:
    """The number of sandboxes that a program uses when it passes this check."""
    if not isinstance(check, StdioCheck):
        return 1
    return len(check.cases) * (1 if check.checker is None else 2)


class Trial(CheckedModel):
    """One program and the number of the check it has to pass."""

    id: str = Field(min_length=1, max_length=128)
    source: Source
    check: int = Field(ge=0)


class Evaluation(CheckedModel):
    """Programs and the checks they have to pass.

    ``split``: tests run in a sandbox of their own, and only plain values cross; a program cannot change the
    interpreter of its tests. ``inline``: program and tests share one interpreter, for tests that need more
    than plain values; a hostile program can forge that verdict.
    """

    checks: tuple[Check, ...] = Field(min_length=1, max_length=TRIALS_MAX)
    trials: tuple[Trial, ...] = Field(min_length=1, max_length=TRIALS_MAX)
    verdict: VerdictMode = "split"
    stop_early: bool = Field(False, description="No trial is begun whose check another has passed.")

    @model_validator(mode="after")
    def _checks_are_there(self) -> Self:
        for number, trial in enumerate(self.trials):
            if trial.check >= len(self.checks):
                raise InvalidJob(
                    f"trials.{number}.check", f"{trial.check}: checks are 0 to {len(self.checks) - 1}"
                )
        if len({trial.id for trial in self.trials}) != len(self.trials):
            raise InvalidJob("trials", "two have one id")
        return self

    @property
    def runs(self) -> int:
        """The most runs that its trials can take: each starts again once, and twice more where calls deviate.
        A judge can take as long as one run."""
        checks = [self.checks[trial.check] for trial in self.trials]
        judged: dict[type, int] = {FunctionCheck: 3 + 1, PytestCheck: 1 + 1}
        return 2 * sum(judged.get(type(one)) or sandboxes(one) for one in checks)

    @property
    def size_bytes(self) -> int:
        """The size of all its texts, in bytes."""
        texts = [trial.source for trial in self.trials]
        texts += [text for check in self.checks for text in check.texts]
        return sum(len(text.encode("utf-8", "replace")) for text in texts)


class TrialResult(Contract):
    """The verdict on one trial. ``channel``: the mode that the verdict rests on."""

    id: str
    verdict: TrialVerdict
    channel: VerdictMode
    outcome: Outcome = Field(description="How its program ended; ok where it was stopped after its verdict.")
    error: JobError | None = Field(None, description="What failed, of what did not pass.")
    stdout: str = Field("", description="Output of a program that did not pass, filtered and cut.")
    stderr: str = Field("", description="Likewise.")
    isolation: str | None = None
    in_series: bool = Field(
        False, description="Whether its sandbox was one of a series, forked beside those of other trials."
    )
    usage: Usage = Usage()
