"""An evaluation: many programs to judge in one job, and what came of each.

A job's own costs (admission, message, claim, result) are the evaluation's, so they are shared; the sandbox
is each trial's alone.
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
#: Sandboxes of one series at most, all made ahead: a job pays for those of its last that it leaves unused.
SERIES_MOST = 32
CASES_MAX = 1000
FILES_MAX = 256
_NO_TESTS = ("conftest.py", "__init__.py")
Source = Annotated[str, Field(strict=True)]
VerdictMode = Literal["split", "inline"]
CompareMode = Literal["exact", "whitespace", "float"]


class TrialVerdict(StrEnum):
    """What came of one program."""

    PASSED = "passed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    #: What it gives or is given are no plain values: judged inline, or not at all.
    NEEDS_INLINE = "needs_inline"
    UNJUDGED = "unjudged"  #: our fault: to be tried again, and no part of any score
    UNUSABLE = "unusable"  #: its problem's tests are to be mended first: no part of any score either

    @property
    def scored(self) -> bool:
        """Whether it says something about the program."""
        return self not in (TrialVerdict.UNJUDGED, TrialVerdict.UNUSABLE)


class FunctionCheck(CheckedModel):
    """Tests that call functions of the program."""

    kind: Literal["function"] = "function"
    setup: Source = Field("", description="The tests' own definitions, run before them.")
    functions: tuple[Annotated[str, Field(pattern=r"^[^\W\d]\w{0,127}$")], ...] = Field(
        min_length=1, max_length=64, description="What of the program they call."
    )
    tests: Source

    @property
    def texts(self) -> Iterator[str]:
        """All it is made of."""
        yield from (self.setup, self.tests)


class StdioCase(CheckedModel):
    """What a program reads from its standard input, and what it has to print then."""

    stdin: Source
    stdout: Source


class StdioCheck(CheckedModel):
    """Cases of a program that reads and prints. Each is a run of its own, within the job's limits.

    ``checker``: a Python program that decides instead of a comparison. It is run with three files named in
    its arguments, input, printed and expected, and accepts by ending with 0.
    """

    kind: Literal["stdio"] = "stdio"
    cases: tuple[StdioCase, ...] = Field(min_length=1, max_length=CASES_MAX)
    compare: CompareMode = "whitespace"
    tolerance: float = Field(
        1e-6, ge=0, description="Of float, but for integers: absolute, or relative to the expected."
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
    """A file by its relative path."""

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
    """What a verdict by this check rests on: what is printed is always compared outside."""
    return "split" if isinstance(check, StdioCheck) else mode


def sandboxes(check: Check) -> int:
    """How many a program takes that passes it."""
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

    ``split``: tests run in a sandbox of their own, and only plain values cross; what a program does to its
    own interpreter changes nothing there. ``inline``: program and tests share one interpreter, for what needs
    more than values; a program that means to can forge that verdict.
    """

    checks: tuple[Check, ...] = Field(min_length=1, max_length=TRIALS_MAX)
    trials: tuple[Trial, ...] = Field(min_length=1, max_length=TRIALS_MAX)
    verdict: VerdictMode = "split"
    stop_early: bool = Field(False, description="No trial is begun whose check another has passed.")

    @model_validator(mode="after")
    def _checks_are_there(self) -> Self:
        for number, trial in enumerate(self.trials):
            if trial.check >= len(self.checks):
                raise InvalidJob(f"trials.{number}.check", f"{trial.check} is none of {len(self.checks)}")
        if len({trial.id for trial in self.trials}) != len(self.trials):
            raise InvalidJob("trials", "two have one id")
        return self

    @property
    def runs(self) -> int:
        """How many runs its trials may take: each is begun anew once, and twice more where calls deviate. A
        judge may take as long as one of them."""
        checks = [self.checks[trial.check] for trial in self.trials]
        judged: dict[type, int] = {FunctionCheck: 3 + 1, PytestCheck: 1 + 1}
        return 2 * sum(judged.get(type(one)) or sandboxes(one) for one in checks)

    @property
    def size_bytes(self) -> int:
        """How much of it is text."""
        texts = [trial.source for trial in self.trials]
        texts += [text for check in self.checks for text in check.texts]
        return sum(len(text.encode("utf-8", "replace")) for text in texts)


class TrialResult(Contract):
    """What came of one trial. ``channel`` says what the verdict rests on."""

    id: str
    verdict: TrialVerdict
    channel: VerdictMode
    outcome: Outcome = Field(description="How its program ended; ok where it was stopped after its verdict.")
    error: JobError | None = Field(None, description="What failed, of what did not pass.")
    stdout: str = Field("", description="Of what did not pass, filtered and cut.")
    stderr: str = Field("", description="Likewise.")
    isolation: str | None = None
    usage: Usage = Usage()
