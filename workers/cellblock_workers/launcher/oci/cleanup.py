"""Finds and removes what a sandbox made by an OCI runtime leaves on the host.

The runtimes' own ``delete`` would do the same, with a process of 20 ms for each sandbox.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

from cellblock_workers.launcher.backend import BackendUnavailable
from cellblock_workers.launcher.cgroup_tree import PARENT

_CGROUPS = Path("/sys/fs/cgroup")
_PATIENCE_S = 5.0


class Remains:
    """Everything that one sandbox left anywhere, found by its id alone."""

    def __init__(self, state: Path, program: str, sandbox_id: str) -> None:
        self._state = state
        self._program = program
        self._id = sandbox_id

    def processes(self) -> list[int]:
        """The processes in its cgroup."""
        found: set[int] = set()
        for folder in self._cgroups():
            with suppress(OSError):  # gone this moment
                found.update(int(pid) for pid in (folder / "cgroup.procs").read_text().split())
        return sorted(found)

    def kill(self) -> None:
        """Kills until no process is left. Raises :class:`BackendUnavailable` if one does not die."""
        deadline = time.monotonic() + _PATIENCE_S
        while processes := self.processes():
            for pid in processes:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise BackendUnavailable(
                    f"{self._program}: processes {processes} of sandbox {self._id} cannot be killed"
                )
            time.sleep(0.002)

    def remove(self) -> None:
        """Removes its cgroups, its runtime's notes and its bundle. Everything in it must be dead.

        Raises :class:`BackendUnavailable` if a cgroup cannot be removed.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while left := [folder for folder in self._cgroups() if not _removed(folder)]:
            if time.monotonic() > deadline:
                raise BackendUnavailable(f"{self._program}: the cgroup {left[0]} cannot be removed")
            time.sleep(0.002)
        notes = self._state / self._program
        for path in (notes / self._id, *notes.glob(f"*{self._id}*")):
            _discard(path)
        _discard(self._state / self._id)

    def _cgroups(self) -> list[Path]:
        roots = [_CGROUPS, *(path for path in _CGROUPS.iterdir() if path.is_dir() and not path.is_symlink())]
        return [path for root in roots if (path := root / PARENT / self._id).is_dir()]


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _discard(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
