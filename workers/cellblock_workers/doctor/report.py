"""The doctor's findings, as tables for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, get_args

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from cellblock_config import Isolation, LevelName, Unisolated
from cellblock_workers.doctor.checks import Check, Status
from cellblock_workers.doctor.ways import WayReport
from cellblock_workers.worker.canaries import CONTROLS, ControlFinding

#: The isolation that each level would run on; None if nothing here satisfies it.
Levels = Mapping[LevelName, Isolation | None]

_STYLES = {
    "ok": "green",
    "warning": "yellow",
    "problem": "bold red",
    "proven": "green",
    "NOT PROVEN": "bold red",
    "elsewhere": "cyan",
    "n/a": "dim",
}


def host_as_json(checks: Sequence[Check], ways: Sequence[WayReport], levels: Levels) -> dict[str, Any]:
    """The checklist, the ways, and the isolation that each level would run on."""
    return {
        "checks": [asdict(check) for check in checks],
        "ways": [_way_as_json(report) for report in ways],
        "levels": dict(levels),
    }


def attack_as_json(ways: Sequence[WayReport]) -> dict[str, Any]:
    """What each way showed, by control; a way that cannot be used here has no results."""
    return {
        "ways": [_way_as_json(report) for report in ways],
        "controls": [
            {
                "name": control.name,
                "stops": control.stops,
                "remedy": control.remedy,
                "results": {
                    _name(report): {"state": f.state, "detail": f.detail, "wall_ms": f.wall_ms}
                    for report in ways
                    for f in report.findings
                    if f.control.name == control.name
                },
            }
            for control in CONTROLS
        ],
    }


def print_host(
    console: Console,
    checks: Sequence[Check],
    ways: Sequence[WayReport],
    levels: Levels,
    allowed: Sequence[Isolation],
) -> None:
    """The checklist as a table, with the remedy under each line that has one.

    ``allowed``: the isolations that the settings let this host use.
    """
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    for header in ("check", "", "found"):
        table.add_column(header, overflow="fold")
    rows = list(checks)
    rows += [_way_as_check(report, report.way.isolation in allowed) for report in ways]
    rows += [_level_as_check(level, isolation) for level, isolation in levels.items()]
    for check in rows:
        found = Text(check.value)
        if check.remedy:
            found.append(f"\n→ {check.remedy}", style="dim")
        table.add_row(check.name, _word(check.status), found)
    console.print(table)


def print_attack(console: Console, ways: Sequence[WayReport]) -> None:
    """A table of controls by ways; below it, why a way cannot be used, what got out, and the remedy."""
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    table.add_column("control", no_wrap=True)
    for report in ways:
        table.add_column(f"{report.way.isolation}\n{report.way.backend}", no_wrap=True)
    for control in CONTROLS:
        table.add_row(control.name, *(_word(_cell(report, control.name)) for report in ways))
    console.print(Group(table, Text()))
    for line in _notes(ways):
        console.print(line, soft_wrap=True)


def _way_as_check(report: WayReport, allowed: bool) -> Check:
    name = f"isolation {_name(report)}"
    if report.available and not allowed:
        return Check(name, "ok", "passed its probe; not used: CELLBLOCK_SANDBOX_ISOLATIONS leaves it out")
    if report.available:
        return Check(name, "ok", "passed its probe")
    return Check(name, "warning", report.reason)


def _level_as_check(level: LevelName, isolation: Isolation | None) -> Check:
    if isolation is not None:
        if isolation in get_args(Unisolated):
            return Check(
                f"level {level}", "warning", f"runs on {isolation}", "it isolates nothing: for development"
            )
        return Check(f"level {level}", "ok", f"runs on {isolation}")
    status: Status = "problem" if level == "standard" else "warning"
    remedy = "make one of its isolations work, above, or allow another: CELLBLOCK_SANDBOX_CHAINS"
    return Check(f"level {level}", status, "nothing here satisfies it", remedy)


def _notes(ways: Sequence[WayReport]) -> list[Text]:
    lines = []
    for report in ways:
        name = _name(report)
        if not report.available:
            lines.append(Text(f"{name}: not available: {report.reason}"))
            continue
        proven = sum(finding.state == "proven" for finding in report.findings)
        lines.append(Text(f"{name}: {proven} of {len(CONTROLS)} controls proven in {report.took_s:.1f} s"))
        if report.reason:
            lines.append(Text(f"{name}: {report.reason}", style=_STYLES["NOT PROVEN"]))
        lines += _notes_on(name, report.findings)
    return lines


def _notes_on(name: str, findings: Sequence[ControlFinding]) -> Iterator[Text]:
    """One line for each detail, with the controls that it concerns."""
    by_detail: dict[str, list[ControlFinding]] = {}
    for finding in findings:
        if finding.state != "proven":
            by_detail.setdefault(finding.detail, []).append(finding)
    for detail, alike in by_detail.items():
        yield Text(f"{name}: {', '.join(finding.control.name for finding in alike)}: {detail}")
        if len(alike) == 1 and alike[0].state in ("not proven", "too slow"):
            control = alike[0].control
            yield Text(f"→ it stops {control.stops}; {control.remedy}", style="dim")


def _cell(report: WayReport, control: str) -> str:
    if not report.available:
        return "n/a"
    state = next((f.state for f in report.findings if f.control.name == control), "not proven")
    return state if state in ("proven", "elsewhere") else state.upper()


def _word(word: str) -> Text:
    return Text(word, style=_STYLES[word])


def _way_as_json(report: WayReport) -> dict[str, Any]:
    return {
        "isolation": report.way.isolation,
        "backend": report.way.backend,
        "available": report.available,
        "reason": report.reason or None,
        "took_s": round(report.took_s, 2),
    }


def _name(report: WayReport) -> str:
    return "/".join(report.way)
