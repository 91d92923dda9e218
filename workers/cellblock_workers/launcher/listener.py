"""The launcher's listening socket."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from cellblock_workers.launcher.private_folder import require_out_of_reach
from cellblock_workers.launcher.streams import refuse_descriptors


def listen(path: Path, *, open_to_others: bool) -> socket.socket:
    """A socket at ``path``. It appears there only once it listens: no client that sees it is refused.

    The folder is the launcher's own; peer credentials decide who may speak.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    require_out_of_reach(path.parent, "CELLBLOCK_LAUNCHER_SOCKET")
    if path.is_socket():
        _refuse_if_alive(path)
    elif path.exists():
        raise SystemExit(f"{path} is not a socket; set CELLBLOCK_LAUNCHER_SOCKET to another path")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    refuse_descriptors(listener)
    unready = path.with_name(f".{os.getpid()}")  # no longer than most names: a socket's path is short
    unready.unlink(missing_ok=True)
    listener.bind(str(unready))
    unready.chmod(0o666 if open_to_others else 0o600)
    listener.listen(128)
    unready.rename(path)
    listener.setblocking(False)
    return listener


def _refuse_if_alive(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return
    raise SystemExit(
        f"another launcher already listens on {path}; set CELLBLOCK_LAUNCHER_SOCKET to another path"
    )
