"""A worker that notes when its stages begin and end; `bench/stages.py` starts it.

Its last act is to write them to the file in BENCH_STAGES, as JSON: [stage, begin, end], monotonic clock.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cellblock.ledger import Ledger
from cellblock_workers.filtering.outgoing_filter import OutgoingFilter
from cellblock_workers.launcher.client import LauncherClient
from cellblock_workers.worker import main, runner
from cellblock_workers.worker.claiming import Claiming
from cellblock_workers.worker.session import Session

#: Where a stage is one call of a function: its name, whose, and how it is called there.
STAGES: tuple[tuple[str, Any, str], ...] = (
    ("task", main.WorkerRuntime, "run"),
    ("claim", Claiming, "claim"),
    ("unpack", runner, "open_manifest"),
    ("acquire", LauncherClient, "acquire"),
    ("session", Session, "run"),
    ("give back", LauncherClient, "give_back"),
    ("filter", OutgoingFilter, "look"),
    ("finish", Ledger, "finish"),
)


def noted(
    stage: str, function: Callable[..., Any], notes: list[tuple[str, float, float]]
) -> Callable[..., Any]:
    """The same function; every call leaves a note."""

    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.monotonic()
        try:
            return function(*args, **kwargs)
        finally:
            notes.append((stage, began, time.monotonic()))

    return timed


def note_all(stages: tuple[tuple[str, Any, str], ...]) -> list[tuple[str, float, float]]:
    """From here on, each of these leaves notes in the list."""
    notes: list[tuple[str, float, float]] = []
    for stage, owner, name in stages:
        setattr(owner, name, noted(stage, getattr(owner, name), notes))
    return notes


if __name__ == "__main__":
    kept = note_all(STAGES)
    try:
        main.main()
    finally:
        Path(os.environ["BENCH_STAGES"]).write_text(json.dumps(kept))
