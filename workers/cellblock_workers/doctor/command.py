"""The two commands of the doctor: the checklist, and the attacks."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import Progress

from cellblock_config import LEVELS, Isolation, LevelName, Settings, load_settings
from cellblock_workers.doctor import report
from cellblock_workers.doctor.checks import Check
from cellblock_workers.doctor.kernel import kernel_checks
from cellblock_workers.doctor.launcher import ask_launcher, is_elsewhere
from cellblock_workers.doctor.programs import program_checks, service_checks
from cellblock_workers.doctor.report import Levels
from cellblock_workers.doctor.user_ids import user_ids_check
from cellblock_workers.doctor.ways import WayReport, attack, known_ways, probe_all
from cellblock_workers.launcher.user_ids import id_ranges
from cellblock_workers.telemetry import configure_logging
from cellblock_workers.worker.canaries import CONTROLS, ControlFinding


def run_doctor(*, attacks: bool, json_output: bool) -> int:
    """Examines this host, or attacks every way in which it makes sandboxes. Returns the exit code: 0 or 1."""
    settings = load_settings()
    configure_logging(settings.telemetry.model_copy(update={"log_level": "error"}))
    return (_attack if attacks else _examine)(settings, json_output)


def _examine(settings: Settings, json_output: bool) -> int:
    """Returns 0 if there is no problem and the level standard has an isolation that works, else 1."""
    checks, reports, levels = (_of_launcher if is_elsewhere(settings) else _of_host)(settings)
    ok = levels["standard"] is not None and all(check.status != "problem" for check in checks)
    if json_output:
        _print_json({"ok": ok, **report.host_as_json(checks, reports, levels)})
    else:
        report.print_host(
            console=Console(), checks=checks, ways=reports, levels=levels, allowed=settings.sandbox.usable
        )
    return 0 if ok else 1


def _of_launcher(settings: Settings) -> tuple[list[Check], list[WayReport], Levels]:
    """What concerns a worker whose launcher is elsewhere: this host, or container, makes no sandbox."""
    launcher, levels = ask_launcher(settings)
    return [*service_checks(settings), launcher], [], levels


def _of_host(settings: Settings) -> tuple[list[Check], list[WayReport], Levels]:
    checks = [
        *kernel_checks(),
        user_ids_check(list(id_ranges(settings.launcher.first_user_id).values())),
        *program_checks(settings),
        *service_checks(settings),
    ]  # forks, so before there are threads
    ways = known_ways(settings)
    with _progress("starting a sandbox in each way", len(ways), Console(stderr=True)) as advance:
        reports = probe_all(ways, settings, lambda: advance(1))
    usable = {way.way.isolation for way in reports if way.available}
    levels: dict[LevelName, Isolation | None] = {
        level: next((name for name in settings.sandbox.chain(level) if name in usable), None)
        for level in LEVELS
    }
    open_to_all = settings.sandbox.unisolated
    for level in LEVELS:  # requested by name, and nothing to prove
        if levels[level] is None and open_to_all in settings.sandbox.chain(level):
            levels[level] = open_to_all
    return checks, reports, levels


def _attack(settings: Settings, json_output: bool) -> int:
    """Returns 0 if at least one way can be used, and nothing got out of any way that can; else 1."""
    ways = known_ways(settings)
    reports: list[WayReport] = []
    with _progress("attacking", len(ways) * len(CONTROLS), Console(stderr=True)) as advance:
        for way in ways:
            tried = itertools.count()

            def found(_: ControlFinding, tried: Iterator[int] = tried) -> None:
                next(tried)
                advance(1)

            reports.append(attack(way, settings, found))
            advance(len(CONTROLS) - next(tried))  # the rest: the way cannot be used, or broke off
    ok = _holds(reports)
    if json_output:
        _print_json({"ok": ok, **report.attack_as_json(reports)})
    else:
        report.print_attack(Console(), reports)
    return 0 if ok else 1


def _holds(reports: Sequence[WayReport]) -> bool:
    usable = [way for way in reports if way.available]
    return bool(usable) and all(way.proven for way in usable)


@contextmanager
def _progress(what: str, total: int, console: Console) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, nothing elsewhere; the block says how many steps it has taken."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        yield lambda steps: progress.advance(task, steps)


def _print_json(found: dict[str, Any]) -> None:
    print(json.dumps(found))  # noqa: T201 - the command's one line of output
