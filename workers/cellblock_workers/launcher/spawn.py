"""Starts a launcher as a child of the process that needs one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cellblock.errors import SandboxUnavailable
from cellblock.interrupts import interrupts_held
from cellblock_config import LEVELS, LevelName, Settings
from cellblock_workers.forks import Process, can_fork, fork
from cellblock_workers.log import get_logger
from cellblock_workers.parent_death import SUPERVISOR_VARIABLE
from cellblock_workers.process_environment import LAUNCHER, environment_of

_log = get_logger(__name__)

#: -P: a module in the folder that the command was called in must not replace one of ours.
COMMAND = (sys.executable, "-P", "-m", "cellblock_workers.launcher.server")
_START_S = 15.0
_SOCKET_PATH_BYTES = 107  #: unix(7), without the zero at its end
_STOP_S = 60.0


@dataclass(frozen=True, slots=True)
class StartedLauncher:
    """A launcher that was started, or that runs already. ``process``: the one that was started here."""

    path: Path
    process: Process | None = None

    def wait(self) -> Path:
        """Its socket, once it accepts. Raises :class:`SandboxUnavailable`."""
        if self.process is not None:
            wait_for_socket(self.path, self.process)
        return self.path


@contextmanager
def running_launcher(
    settings: Settings,
    level: LevelName,
    context_roots: Sequence[Path] = (),
    *,
    main_of_fork: Callable[[], None] | None = None,
) -> Iterator[StartedLauncher]:
    """The configured launcher, or a private one that lives as long as the block.

    The private launcher proves nothing and keeps nothing ahead of need: it is for jobs of this level, whose
    context may come from ``context_roots``. ``main_of_fork``: see :func:`private_launcher`.
    """
    if "socket" in settings.launcher.model_fields_set:
        yield StartedLauncher(settings.launcher.socket)
        return
    chains = {other: settings.sandbox.chain(other) if other == level else [] for other in LEVELS}
    environment = {
        "CELLBLOCK_SANDBOX_CHAINS": json.dumps(chains),
        "CELLBLOCK_LAUNCHER_CONTEXT_ROOTS": json.dumps([str(root) for root in context_roots]),
    }
    with private_launcher("embedded", environment, main_of_fork=main_of_fork) as launcher:
        yield launcher


@contextmanager
def private_launcher(
    purpose: str, environment: Mapping[str, str], *, main_of_fork: Callable[[], None] | None = None
) -> Iterator[StartedLauncher]:
    """A launcher that lives as long as the block, keeps nothing warm and logs only errors.

    ``main_of_fork``: the launcher's main function, to call in a fork of this process if it has one thread.
    """
    with tempfile.TemporaryDirectory(prefix="cellblock-") as folder:
        path = Path(folder) / "launcher.sock"
        if len(os.fsencode(path)) > _SOCKET_PATH_BYTES:
            raise SandboxUnavailable(
                f"the launcher's socket would be {path}, and Linux takes {_SOCKET_PATH_BYTES} bytes at most: "
                "set TMPDIR to another folder"
            )
        variables = {
            **environment_of(LAUNCHER, os.environ),
            # If this process is killed, or interrupted before it holds the launcher, it could not end it.
            SUPERVISOR_VARIABLE: str(os.getpid()),
            "CELLBLOCK_LAUNCHER_SOCKET": str(path),
            "CELLBLOCK_LAUNCHER_OWNER": f"{purpose}-{os.getpid()}",
            "CELLBLOCK_LAUNCHER_WARM": "0",
            "CELLBLOCK_TELEMETRY_LOG_LEVEL": "error",
            **environment,
        }
        process: Process | None = None
        try:
            with interrupts_held():
                if main_of_fork is not None and can_fork():
                    process = fork(main_of_fork, variables)
                else:
                    process = _executed(variables)
            yield StartedLauncher(path, process)
        finally:
            if process is not None:
                _end(process, purpose)


def _end(process: Process, purpose: str) -> None:
    process.terminate()
    try:
        process.wait(timeout=_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        _log.error("launcher_killed", reason=f"it did not stop within {_STOP_S} s", purpose=purpose)


def _executed(variables: Mapping[str, str]) -> Process:
    # In a group of its own: a terminal's Ctrl-C goes to this process, which ends the launcher, even in an
    # import.
    return subprocess.Popen(COMMAND, env=variables, process_group=0)


def wait_for_socket(path: Path, process: Process) -> None:
    """Waits until the launcher accepts. Raises :class:`SandboxUnavailable` when it ends or takes too long."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SandboxUnavailable(f"the launcher ended at once with exit code {process.returncode}")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            try:
                probe.connect(str(path))
            except OSError:
                time.sleep(0.02)
                continue
            return
    raise SandboxUnavailable(f"the launcher did not listen on {path} within {_START_S:g} s")
