"""The ``cellblock`` command."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from cellblock.interrupts import interrupts_held, on_stop

#: The exit code of a command that Ctrl-C ended, as shells have it.
INTERRUPTED = 128 + signal.SIGINT


def main() -> None:
    """Entry point of the console script."""
    try:
        _open_standard_streams()
        # They end a run by the way an interrupt takes: its sandbox and its folders are removed.
        on_stop(lambda number, _: sys.exit(128 + number), interrupt=False)
        with interrupts_held():
            from cellblock.cli.root import run_command
        run_command()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _open_standard_streams() -> None:
    """Opens /dev/null where stdin, stdout or stderr is closed: else the next file would take its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - it stays open


__all__ = ["INTERRUPTED", "main"]
