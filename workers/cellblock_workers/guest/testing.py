"""Runs tests for pytest, and records what came of each: in the judge (suites.py), or inline beside the
program.

pytest catches everything and believes what tests say of themselves, so no verdict rests on how pytest ends:
every test has to have passed, by name. Only marks excuse a test (skip, xfail).
"""

from __future__ import annotations

import os
from typing import Any, Iterable, Sequence

from .calls import message_of

OPTIONS = (
    *("-q", "--tb=native", "--capture=no", "-o", "empty_parameter_set_mark=fail_at_collect"),
    *("-pno:cacheprovider", "-pno:faulthandler", "-pno:pastebin", "-pno:setuponly", "-pno:setupplan"),
)
#: The modules that pytest imports in the name of a test module.
PYTEST_MODULES = ("pytest", "_pytest", "builtins")
#: Fixtures that give access to the interpreter or the folder of the tests.
SHARING = {
    *("capsys", "capsysbinary", "capfd", "capfdbinary", "caplog"),
    *("monkeypatch", "recwarn", "tmp_path", "tmpdir"),
}
#: The attributes that unittest's decorators set.
UNITTEST_MARKS = ("__unittest_skip__", "__unittest_expecting_failure__")


def run_pytest(folder: str, tests: Sequence[str], record: Record, *options: str) -> int:
    """Runs those of these files that hold tests. Returns pytest's exit status."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    try:
        import pytest  # type: ignore[import-not-found,unused-ignore]
    except ModuleNotFoundError:
        raise ModuleNotFoundError("this image has no pytest; take one that has, such as python") from None

    within = ("--rootdir=" + folder, "--confcutdir=" + folder)
    paths = [os.path.join(folder, name) for name in to_collect(tests)]
    return int(pytest.main([*OPTIONS, *within, *options, *paths], plugins=[record]))


def to_collect(names: Sequence[str]) -> list[str]:
    """The files whose names pytest takes for tests; if there are none, every module."""
    modules = [name for name in names if name.endswith(".py")]
    bases = [(os.path.basename(name), name) for name in modules]
    known = [name for base, name in bases if base.startswith("test_") or base.endswith("_test.py")]
    return known or [name for base, name in bases if base not in ("conftest.py", "__init__.py")]


def judge_beside(folder: str, tests: Sequence[str]) -> tuple[str, str] | None:
    """Inline: run the tests on a program whose module is imported already. Returns what is wrong, or None."""
    record = Record()
    return record.verdict(run_pytest(folder, tests, record, "-x"))


class Record:
    """A plugin of pytest's that records what came of each test."""

    def __init__(self, program: Any = None, excused: set[str] | None = None) -> None:
        """``program``: if it is in another sandbox; ``excused``: if known, else by the marks that tests
        have."""
        self.program = program
        self.excused = excused
        self.items: list[Any] = []
        self.passed: set[int] = set()
        self.left_out: dict[str, str] = {}
        self.wrong: tuple[str, str] | None = None
        self.item: Any = None
        self.error: BaseException | None = None

    def pytest_collection_finish(self, session: Any) -> None:
        self.items = list(session.items)
        if self.excused is None:
            self.excused = {item.nodeid for item in self.items if is_excused(item)}

    def pytest_exception_interact(self, call: Any) -> None:
        self.error = call.excinfo.value

    def pytest_internalerror(self, excinfo: Any) -> None:
        self.wrong = self.wrong or (excinfo.typename, "pytest itself: {}".format(message_of(excinfo.value)))

    def pytest_collectreport(self, report: Any) -> None:
        self.reported(report)

    def pytest_runtest_protocol(self, item: Any) -> None:
        self.item = item

    def pytest_runtest_setup(self, item: Any) -> None:
        from _pytest.assertion import util  # type: ignore[import-not-found,unused-ignore]

        util._reprcompare = None  # to find where two long texts of a program's choice differ may take hours
        sharing = sorted(SHARING.intersection(getattr(item, "fixturenames", ())))
        if sharing and self.program is not None:
            self.program.need_inline("{} uses {}".format(item.nodeid, sharing[0]))

    def pytest_runtest_makereport(self, call: Any) -> None:
        self.error = call.excinfo.value if call.excinfo else None

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.reported(report)
        if report.when == "call" and report.passed and not hasattr(report, "wasxfail"):
            self.passed.add(id(self.item))

    def reported(self, report: Any) -> None:
        if report.skipped:
            self.left_out.setdefault(report.nodeid, getattr(report, "wasxfail", "") or report.longreprtext)
        if report.failed and self.wrong is None:
            error = self.error
            if type(error).__name__ == "CollectError":
                error = error.__cause__ or error  # type: ignore[union-attr]
            kind = type(error).__name__ if error else "Failed"
            message = message_of(error) if error else report.longreprtext[:2000]
            self.wrong = (kind, "{}: {}".format(report.nodeid, message))

    def verdict(self, status: int, required: Iterable[str] = ()) -> tuple[str, str] | None:
        """What is wrong, or None. ``required``: functions of which at least one test has to pass."""
        if self.wrong is not None:
            return self.wrong
        excused = self.excused or set()
        for nodeid, why in self.left_out.items():
            if nodeid not in excused:
                return ("Skipped", "{}: {}".format(nodeid, why[-500:]))
        done = {function_of(item) for item in self.items if id(item) in self.passed}
        undone = [
            one.nodeid for one in self.items if id(one) not in self.passed and one.nodeid not in excused
        ]
        undone += sorted(set(required) - done)
        if undone or status or not done:
            what = "{} was not run to its end".format(undone[0]) if undone else "no test has passed"
            return ("NotRun", "{}; pytest ended with {}".format(what, status))
        return None


def is_excused(item: Any) -> bool:
    """Whether a mark of its own leaves the test out, or expects it to fail."""
    from _pytest import outcomes, skipping  # type: ignore[import-not-found,unused-ignore]

    if any(
        getattr(one, mark, False)
        for one in (getattr(item, "obj", None), getattr(item, "cls", None))
        for mark in UNITTEST_MARKS
    ):
        return True
    try:
        return bool(skipping.evaluate_skip_marks(item) or skipping.evaluate_xfail_marks(item))
    except (Exception, outcomes.OutcomeException):  # its condition cannot be evaluated: it will fail
        return False


def function_of(item: Any) -> str:
    """One name for all tests that come from one function with several parameters."""
    return "{}::{}".format(item.parent.nodeid, getattr(item, "originalname", None) or item.name)
