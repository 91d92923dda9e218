"""Requests to systemd, through the programs that come with it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from cellblock_workers.launcher.backend import BackendUnavailable, StartFailed

#: Exists only if systemd is PID 1 (sd_booted(3)).
BOOTED = Path("/run/systemd/system")
_MANAGER = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
_ANSWER_S = 10


def start_scope(name: str, properties: Sequence[tuple[str, ...]]) -> None:
    """Asks for a transient scope, which exists once its process is in its cgroup.

    A property: its name, its D-Bus type, the words of its value. Raises :class:`BackendUnavailable`.
    """
    words = [word for one in properties for word in one]
    # `systemd-run --scope` makes the same call, and costs more (docs/adr/0008).
    _ask(
        "busctl",
        "--system",
        f"--timeout={_ANSWER_S}",
        "call",
        *_MANAGER,
        "StartTransientUnit",
        "ssa(sv)a(sa(sv))",
        name,
        "fail",
        str(len(properties)),
        *words,
        "0",
    )


def unit_file(name: str) -> str:
    """The path of a unit's file; empty for a unit without one. Raises :class:`BackendUnavailable`."""
    return _ask("systemctl", "show", "--property=FragmentPath", "--value", name).strip()


def _ask(*command: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=2 * _ANSWER_S, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        raise StartFailed(f"systemd: {command[0]} cannot be run: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise BackendUnavailable(f"systemd: {command[0]} had no answer in {2 * _ANSWER_S} s") from error
    if done.returncode:
        raise StartFailed(f"systemd: {command[0]} was refused: {done.stderr.strip() or done.returncode}")
    return done.stdout
