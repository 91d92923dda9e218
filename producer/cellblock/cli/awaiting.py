"""Waiting for the end of a job, with words for what it waits for itself."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from cellblock.errors import ResultTimeout
from cellblock.interrupts import interrupts_held

if TYPE_CHECKING:
    from cellblock.client import Client
    from cellblock.contract.results import JobResult

_HINT_S = 5.0


def awaited(
    client: Client, job_id: str, timeout_s: float | None = None, *, waited_s: float = 0.0
) -> JobResult:
    """The result of a job. Says after a while what the job waits for. Raises :class:`ResultTimeout`.

    ``waited_s``: the part of ``timeout_s`` that has been waited already.
    """
    left_s = None if timeout_s is None else timeout_s - waited_s
    ends = None if left_s is None else time.monotonic() + left_s
    hint_s = _HINT_S - waited_s
    try:
        return client.result(job_id, timeout_s=hint_s if left_s is None else min(hint_s, left_s))
    except ResultTimeout:
        if (why := _waits_for(client, job_id)) is not None:
            typer.echo(f"cellblock: job {job_id} {why}", err=True)
    try:
        return client.result(job_id, timeout_s=None if ends is None else max(0.0, ends - time.monotonic()))
    except ResultTimeout:
        raise ResultTimeout(f"job {job_id} has not ended after {timeout_s:g} s; it goes on") from None


def _waits_for(client: Client, job_id: str) -> str | None:
    """What a job that does not run waits for; None for one that runs or has ended."""
    with interrupts_held():
        from cellblock.contract.job_status import JobState

    status = client.status(job_id)
    if status.state is JobState.PARKED:
        return "still waits for a slot: its tenant runs as many jobs as it may at once"
    if status.state is not JobState.QUEUED:
        return None
    if status.attempt == 0:
        return "still waits for a worker; is one running? (cellblock worker)"
    none_runs = "" if client.counts().workers else "; no worker is running (cellblock worker)"
    return f"waits to be tried again: attempt {status.attempt} did not end well{none_runs}"


@contextmanager
def progress(words: str = "running…") -> Iterator[None]:
    """A line that moves, on a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    with interrupts_held():
        from rich.console import Console

        status = Console(stderr=True).status(words)  # imports the rest
    with status:
        yield
