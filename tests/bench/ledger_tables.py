"""What ledger_costs.py measured, as tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from cellblock.ledger.declarations import script_names

#: Each column's heading, and the figure in it.
_SCRIPT = {
    "inner calls": "inner",
    "µs": "us",
    "median µs": "us_median",
    "bytes in": "bytes_in",
    "bytes out": "bytes_out",
}
_JOB = {
    "round trips": "reads",
    "commands": "top_level",
    "inner calls": "inner",
    "bytes in": "bytes_in",
    "bytes out": "bytes_out",
    "AOF bytes": "aof_bytes",
    "CPU µs": "cpu_us",
    "ms": "ms",
}
_KEPT = {
    "ended jobs": "jobs",
    "a job": "job_bytes",
    "its events": "events_bytes",
    "an event": "event_bytes",
    "events": "events",
}
_CARRIED = {
    "CPU µs": "cpu_us",
    "main thread µs": "main_us",
    "in scripts µs": "script_us",
    "ceiling jobs/s": "ceiling_jobs_per_s",
    "reached jobs/s": "reached_jobs_per_s",
}
_IDLE = {
    "measured": "workers",
    "commands": "commands",
    "top level": "top_level",
    "round trips": "reads",
    "bytes in": "bytes_in",
    "bytes out": "bytes_out",
    "CPU µs": "cpu_us",
}


def tables(found: Mapping[str, Any]) -> Iterator[Table]:
    """One for each part that was measured."""
    for plan, groups in found.get("scripts", {}).items():
        yield _of_scripts(f"one call of a script, {plan}", groups)
    for title, columns, rows in (
        ("a whole job, submit to result", _JOB, _flat(found.get("job", {}), "figures")),
        ("bytes of memory kept", _KEPT, found.get("kept", {})),
        ("admit, claim and finish, no broker", _CARRIED, _flat(found.get("carried", {}))),
        ("an idle worker, in a second", _IDLE, found.get("idle", {})),
    ):
        if rows:
            table = Table("", *columns, title=title)
            for name, figures in rows.items():
                table.add_row(name, *_cells(figures, columns))
            yield table


def _of_scripts(title: str, groups: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Table:
    table = Table("", "script", *_SCRIPT, title=title)
    for group, scripts in groups.items():
        for script, figures in scripts.items():
            table.add_row(group, script, *_cells(figures, _SCRIPT))
        if group.startswith("job"):
            whole = {
                figure: sum(one[figure] * one["calls"] for one in scripts.values())
                for figure in _SCRIPT.values()
            }
            table.add_row(group, "all", *_cells(whole, _SCRIPT), style="bold")
        table.add_section()
    called = {script for scripts in groups.values() for script in scripts}
    if missing := [script for script in script_names() if script not in called]:
        table.caption = f"not called: {', '.join(missing)}"
    return table


def _flat(nested: Mapping[str, Mapping[str, Any]], inner: str | None = None) -> dict[str, Any]:
    """By both names together."""
    return {
        f"{outer}, {name}": one[inner] if inner else one
        for outer, several in nested.items()
        for name, one in several.items()
    }


def _cells(figures: Mapping[str, float], columns: Mapping[str, str]) -> Iterator[str]:
    for figure in columns.values():
        value = figures[figure]
        yield f"{value:,.0f}" if value >= 100 or value == round(value) else f"{value:.1f}"
