"""The installed OCI runtimes: how to call them, and what they say when they refuse."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cellblock_workers.launcher.backend import NotOnThisHost, StartFailed

_SYSTEM_FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class OciRuntime:
    """One program. ``options`` always stand before its command."""

    program: str
    package: str
    options: tuple[str, ...] = ()

    def locate(self, isolation: str) -> str:
        """The program's path. Raises :class:`NotOnThisHost`."""
        path = shutil.which(self.program, path=_SYSTEM_FOLDERS)
        if path is None:
            raise NotOnThisHost(
                f"{isolation}: the OCI runtime {self.program} is not installed in "
                f"{_SYSTEM_FOLDERS}; apt-get install {self.package}, or run config/host/setup.sh"
            )
        return path

    def command(self, path: str, state: Path, bundle: Path) -> list[str]:
        """The call that makes and starts the container of a bundle; its process ends once the container
        runs."""
        return [
            path,
            *("--root", str(state / self.program)),
            *("--log", str(bundle / "log"), "--log-format", "json"),
            *self.options,
            *("run", "--detach", "--bundle", str(bundle), "--pid-file", str(bundle / "pid"), bundle.name),
        ]


RUNTIMES = {
    # Nothing of the host's network; the filter of system calls holds inside the sentry too.
    "gvisor": OciRuntime("runsc", "runsc", ("--network=none", "--oci-seccomp")),
    "runc": OciRuntime("runc", "runc"),
}


def run(command: Sequence[str], bundle: Path, stream: socket.socket, isolation: str, timeout_s: float) -> int:
    """Starts a container on a stream. Returns the pid of its first process. Raises :class:`StartFailed`."""
    # The container's stderr too: what a guest says there goes to no log. It is a pipe without a reader,
    # broken once the runtime is done with it; not /dev/null, which under gVisor any job could open as
    # /proc/1/fd/2.
    unread, nowhere = os.pipe()
    try:
        done = subprocess.run(
            command,
            stdin=stream.fileno(),
            stdout=stream.fileno(),
            stderr=nowhere,
            env={"PATH": _SYSTEM_FOLDERS},
            cwd="/",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StartFailed(f"{isolation}: {command[0]} did not finish within {timeout_s:g} s") from None
    finally:
        os.close(nowhere)
        os.close(unread)
    if done.returncode != 0:
        raise StartFailed(f"{isolation}: {command[0]} refused: {_last_error(bundle / 'log')}")
    return int((bundle / "pid").read_text())


def _last_error(log: Path) -> str:
    """The last line of a runtime's log, for an operator to read."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        lines = []
    for line in reversed(lines):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.get("msg"):
            return str(entry["msg"])[:500]
    return lines[-1][:500] if lines else "without saying why"
