"""What a run says at its end: a line for each suite, and every case that was skipped, with the reason.

A pytest plugin that is always on. Each run leaves its counts and its failures in ``build/tests/<tier>.json``
(``--counts`` names another file); :mod:`suite.once_more` decides by them which failures are red.
`python -m suite.closing TIER…` adds tiers up as CI shows it: each unsteady case by name, then the counts. It
ends with 1 for a tier that is missing, a case that is red, and more than
:data:`suite.counts.UNSTEADY_MAX` unsteady ones.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from suite import counts
from suite.counts import OUTCOMES, Counts, Failure, print_unsteady

_MESSAGE_MAX = 300


class Closing:
    """Counts cases by suite as their reports come in."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._tier = config.getoption("--tier")
        self._file = Path(config.getoption("--counts") or counts.FOLDER / f"{self._tier}.json")
        self._began = time.monotonic()
        self._outcomes: dict[str, str] = {}
        self._failures: dict[str, Failure] = {}
        self._reasons: dict[str, str] = {}
        self._spent_s: defaultdict[str, float] = defaultdict(float)
        self._whole = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A case has failed if any of its phases has."""
        self._spent_s[_suite_of(report.nodeid)] += report.duration
        before = self._outcomes.get(report.nodeid, "passed")
        self._outcomes[report.nodeid] = max(before, report.outcome, key=OUTCOMES.index)
        if report.skipped:
            self._reasons[report.nodeid] = _reason(report)
        if report.failed:
            # A teardown may be that of a fixture which other cases used as well. A report without a phase is
            # of a process that ended at the case: its marks are unknown.
            own = report.when in {"setup", "call"}
            self._note(report, report.when or "", own and "no_rerun" not in report.keywords)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that cannot be collected has failed: no one knows how many cases are missing."""
        if report.failed:
            self._outcomes[report.nodeid] = "failed"
            self._note(report, "collection", may_rerun=False)

    def _note(self, report: pytest.TestReport | pytest.CollectReport, when: str, may_rerun: bool) -> None:
        lines = report.longreprtext.splitlines()
        message = next((line[1:].strip() for line in lines if line[:2] == "E "), lines[-1] if lines else "")
        failure = Failure(report.nodeid, message[:_MESSAGE_MAX], may_rerun)
        first = self._failures.setdefault(report.nodeid, failure)
        self._failures[report.nodeid] = replace(first, may_rerun=first.may_rerun and may_rerun)
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.write_line(f"\nfailed in {when}: {failure.case}: {failure.message}"[:500])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Note whether every case ran, or ``-x`` and the like ended the run."""
        self._whole = not (session.shouldfail or session.shouldstop)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table and leave the counts behind."""
        suites: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for nodeid, outcome in self._outcomes.items():
            suites[_suite_of(nodeid)][outcome] += 1
        terminalreporter.section(f"by suite ({self._tier})")
        for suite, outcomes in sorted(suites.items()):
            spent = f"{self._spent_s[suite] / 60:6.1f} min in cases"
            terminalreporter.write_line(
                f"{suite:<10} {outcomes.total():>5} cases  {spent}  {Counts.of(outcomes)}"
            )
        for nodeid, reason in self._reasons.items():
            terminalreporter.write_line(f"skipped: {nodeid}: {reason}")
        wall_s = round(time.monotonic() - self._began, 1)
        found = replace(
            Counts.of(Counter(self._outcomes.values())),
            wall_s=wall_s,
            failures=tuple(self._failures.values()),
            whole=self._whole,
        )
        terminalreporter.write_line(f"{self._tier}: {found} in {wall_s / 60:.1f} min")
        try:
            found.write(self._file)
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
    runs = []
    for tier in tiers:
        try:
            runs.append(Counts.read(counts.FOLDER / f"{tier}.json"))
        except FileNotFoundError:
            print(f"the tier {tier} has not run", file=sys.stderr)
            return 1
    total = Counts(
        passed=sum(run.passed for run in runs),
        failed=sum(run.failed for run in runs),
        skipped=sum(run.skipped for run in runs),
        unsteady=tuple(failure for run in runs for failure in run.unsteady),
    )
    print_unsteady(total)
    print(f"tests: {total}")
    return 0 if total.green else 1


def _suite_of(nodeid: str) -> str:
    first, _, rest = nodeid.partition("/")
    return rest.partition("/")[0] if first == "tests" else first


def _reason(report: pytest.TestReport) -> str:
    found = report.longrepr
    return str(found[2] if isinstance(found, tuple) else found).removeprefix("Skipped: ")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
