"""What a run says at its end: a line for each suite, and every case that was skipped, with the reason.

A pytest plugin that is always on. Each run leaves its counts and its failures in ``build/tests/<tier>.json``
(``--counts`` names another file); :mod:`suite.once_more` decides by them which failures are red.
`python -m suite.closing TIER…` adds them up, as CI shows it: the last lines are the counts and each unsteady
case by name. It ends with 1 for a tier that is missing, a case that is red, and more than
:data:`UNSTEADY_MAX` unsteady ones.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "build" / "tests"
#: More cases that fail beside others and pass alone: then something is wrong with more than the moment.
UNSTEADY_MAX = 3
_OUTCOMES = ("passed", "skipped", "failed")  #: from the weakest to the strongest
_MESSAGE_MAX = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that failed, with the first thing that it complained of.

    ``may_rerun``: False where a failure is red at once, see the marker ``no_rerun``.
    """

    case: str
    message: str
    may_rerun: bool


@dataclass(frozen=True, slots=True)
class Counts:
    """What a run of one tier left behind. ``unsteady``: cases that failed once and passed alone."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    wall_s: float = 0.0
    failures: tuple[Failure, ...] = ()
    unsteady: tuple[Failure, ...] = ()

    @classmethod
    def of(cls, outcomes: Counter[str], wall_s: float = 0.0, failures: Iterable[Failure] = ()) -> Counts:
        """The counts of these outcomes."""
        passed, skipped, failed = (outcomes[name] for name in _OUTCOMES)
        return cls(passed, failed, skipped, wall_s, tuple(failures))

    @classmethod
    def read(cls, file: Path) -> Counts:
        """The counts in this file. Raises ``FileNotFoundError``."""
        content = json.loads(file.read_text())
        failures, unsteady = (
            tuple(Failure(**each) for each in content.pop(name)) for name in ("failures", "unsteady")
        )
        return cls(**content, failures=failures, unsteady=unsteady)

    def write(self, file: Path) -> None:
        """Keep them in this file."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(self), indent=1))

    @property
    def green(self) -> bool:
        """Whether nothing is red."""
        return not self.failed and len(self.unsteady) <= UNSTEADY_MAX

    def __str__(self) -> str:
        words = [f"{self.passed} passed", f"{self.failed} failed"]
        words += [f"{self.skipped} skipped"] if self.skipped else []
        words += [f"{len(self.unsteady)} unsteady"] if self.unsteady else []
        return ", ".join(words)


class Closing:
    """Counts cases by suite as their reports come in."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._tier = config.getoption("--tier")
        self._file = Path(config.getoption("--counts") or FOLDER / f"{self._tier}.json")
        self._began = time.monotonic()
        self._outcomes: dict[str, str] = {}
        self._failures: dict[str, Failure] = {}
        self._reasons: dict[str, str] = {}
        self._spent_s: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A case has failed if any of its phases has."""
        self._spent_s[_suite_of(report.nodeid)] += report.duration
        before = self._outcomes.get(report.nodeid, "passed")
        self._outcomes[report.nodeid] = max(before, report.outcome, key=_OUTCOMES.index)
        if report.skipped:
            self._reasons[report.nodeid] = _reason(report)
        if report.failed:
            failure = _failure(report)
            self._failures.setdefault(report.nodeid, failure)
            self._tell_at_once(f"failed in {report.when}: {failure.case}: {failure.message}")

    def _tell_at_once(self, line: str) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.write_line(f"\n{line}"[:500])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table and leave the counts behind."""
        suites: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for nodeid, outcome in self._outcomes.items():
            suites[_suite_of(nodeid)][outcome] += 1
        terminalreporter.section(f"by suite ({self._tier})")
        for suite, outcomes in sorted(suites.items()):
            spent = f"{self._spent_s[suite] / 60:6.1f} min in cases"
            counts = Counts.of(outcomes)
            terminalreporter.write_line(f"{suite:<10} {outcomes.total():>5} cases  {spent}  {counts}")
        for nodeid, reason in self._reasons.items():
            terminalreporter.write_line(f"skipped: {nodeid}: {reason}")
        wall_s = round(time.monotonic() - self._began, 1)
        counts = Counts.of(Counter(self._outcomes.values()), wall_s, self._failures.values())
        terminalreporter.write_line(f"{self._tier}: {counts} in {wall_s / 60:.1f} min")
        try:
            counts.write(self._file)
        except OSError as error:  # root has run the tests here before
            terminalreporter.write_line(f"the counts are not kept: {error}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the counts go."""
    parser.getgroup("cellblock").addoption("--counts", help="the file for the run's counts and failures")


def pytest_configure(config: pytest.Config) -> None:
    """Only where reports come together, and only where cases run."""
    if not hasattr(config, "workerinput") and not config.option.collectonly:
        config.pluginmanager.register(Closing(config))


def main(tiers: list[str]) -> int:
    """Add up the runs of these tiers; the exit code."""
    found = []
    for tier in tiers:
        try:
            found.append(Counts.read(FOLDER / f"{tier}.json"))
        except FileNotFoundError:
            print(f"the tier {tier} has not run", file=sys.stderr)
            return 1
    total = Counts(
        passed=sum(counts.passed for counts in found),
        failed=sum(counts.failed for counts in found),
        skipped=sum(counts.skipped for counts in found),
        unsteady=tuple(failure for counts in found for failure in counts.unsteady),
    )
    tell_unsteady(total)
    print(f"tests: {total}")
    return 0 if total.green else 1


def tell_unsteady(counts: Counts) -> None:
    """Print each unsteady case with what it complained of, and whether there are too many."""
    for failure in counts.unsteady:
        print(f"unsteady: {failure.case}: failed once, passed alone: {failure.message}")
    if len(counts.unsteady) > UNSTEADY_MAX:
        print(f"{len(counts.unsteady)} unsteady cases are red: at most {UNSTEADY_MAX} pass")


def _suite_of(nodeid: str) -> str:
    first, _, rest = nodeid.partition("/")
    return rest.partition("/")[0] if first == "tests" else first


def _failure(report: pytest.TestReport) -> Failure:
    """A report without a phase is of a process that ended at the case: no one knows what it asserts."""
    lines = report.longreprtext.splitlines()
    message = next((line[1:].strip() for line in lines if line[:2] == "E "), lines[-1] if lines else "")
    known = report.when in {"setup", "call", "teardown"}
    return Failure(report.nodeid, message[:_MESSAGE_MAX], known and "no_rerun" not in report.keywords)


def _reason(report: pytest.TestReport) -> str:
    found = report.longrepr
    return str(found[2] if isinstance(found, tuple) else found).removeprefix("Skipped: ")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
