"""Starting a launcher as a child of whoever needs one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cellblock.errors import SandboxUnavailable
from cellblock_config import Settings

COMMAND = (sys.executable, "-m", "cellblock_workers.launcher.server")
_START_S = 15.0


@contextmanager
def running_launcher(settings: Settings, *, warm: int) -> Iterator[Path]:
    """The socket of the configured launcher, or of a private one that lives as long as the block."""
    if "socket" in settings.launcher.model_fields_set:
        yield settings.launcher.socket
        return
    with tempfile.TemporaryDirectory(prefix="cellblock-") as folder:
        path = Path(folder) / "launcher.sock"
        environment = {
            **os.environ,
            "CELLBLOCK_LAUNCHER_SOCKET": str(path),
            "CELLBLOCK_LAUNCHER_OWNER": f"embedded-{os.getpid()}",
            "CELLBLOCK_LAUNCHER_WARM": str(warm),
            "CELLBLOCK_TELEMETRY_LOG_LEVEL": "error",
        }
        process = subprocess.Popen(COMMAND, env=environment)
        try:
            wait_for_socket(path, process)
            yield path
        finally:
            process.terminate()
            process.wait(timeout=60)


def wait_for_socket(path: Path, process: subprocess.Popen[bytes]) -> None:
    """Until the launcher accepts. Raises :class:`SandboxUnavailable` when it ends or takes too long."""
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
