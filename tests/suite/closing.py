"""What a run says at its end: a line for each suite, and every case that was skipped, with the reason.

A pytest plugin that is always on. Each run leaves its counts in ``build/tests/<tier>.json``;
`python -m suite.closing TIER…` adds them up in one line, as CI shows it, and ends with 1 if one is missing.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "build" / "tests"
_COUNTED = ("passed", "failed", "skipped")


class Closing:
    """Counts cases by suite as their reports come in."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._tier = config.getoption("--tier")
        self._began = time.monotonic()
        self._outcomes: dict[str, str] = {}
        self._reasons: dict[str, str] = {}
        self._spent_s: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A case has failed if any of its phases has."""
        self._spent_s[_suite_of(report.nodeid)] += report.duration
        before = self._outcomes.get(report.nodeid, "passed")
        self._outcomes[report.nodeid] = max(before, report.outcome, key=("passed", "skipped", "failed").index)
        if report.skipped:
            self._reasons[report.nodeid] = _reason(report)
        if report.failed:
            self._tell_at_once(report)

    def _tell_at_once(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            why = next(
                (line[1:].strip() for line in report.longreprtext.splitlines() if line[:2] == "E "), ""
            )
            terminal.write_line(f"\nfailed in {report.when}: {report.nodeid}: {why}"[:500])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table and leave the counts behind."""
        suites: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for nodeid, outcome in self._outcomes.items():
            suites[_suite_of(nodeid)][outcome] += 1
        terminalreporter.section(f"by suite ({self._tier})")
        for suite, counts in sorted(suites.items()):
            spent = f"{self._spent_s[suite] / 60:6.1f} min in cases"
            terminalreporter.write_line(f"{suite:<10} {counts.total():>5} cases  {spent}  {_words(counts)}")
        for nodeid, reason in self._reasons.items():
            terminalreporter.write_line(f"skipped: {nodeid}: {reason}")
        totals = Counter(self._outcomes.values())
        wall_s = round(time.monotonic() - self._began, 1)
        terminalreporter.write_line(f"{self._tier}: {_words(totals)} in {wall_s / 60:.1f} min")
        written = {**{name: totals[name] for name in _COUNTED}, "wall_s": wall_s}
        try:
            FOLDER.mkdir(parents=True, exist_ok=True)
            (FOLDER / f"{self._tier}.json").write_text(json.dumps(written))
        except OSError as error:  # root has run the tests here before
            terminalreporter.write_line(f"the counts are not kept: {error}")


def pytest_configure(config: pytest.Config) -> None:
    """Only where reports come together, and only where cases run."""
    if not hasattr(config, "workerinput") and not config.option.collectonly:
        config.pluginmanager.register(Closing(config))


def main() -> int:
    """Add up the runs of these tiers; the exit code."""
    totals: Counter[str] = Counter()
    for tier in sys.argv[1:]:
        path = FOLDER / f"{tier}.json"
        if not path.exists():
            print(f"the tier {tier} has not run", file=sys.stderr)
            return 1
        totals.update(
            {name: count for name, count in json.loads(path.read_text()).items() if name in _COUNTED}
        )
    print(f"tests: {_words(totals)}")
    return 0


def _suite_of(nodeid: str) -> str:
    first, _, rest = nodeid.partition("/")
    return rest.partition("/")[0] if first == "tests" else first


def _words(counts: Counter[str]) -> str:
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    return f"{counts['passed']} passed, {counts['failed']} failed{skipped}"


def _reason(report: pytest.TestReport) -> str:
    found = report.longrepr
    return str(found[2] if isinstance(found, tuple) else found).removeprefix("Skipped: ")


if __name__ == "__main__":
    sys.exit(main())
