"""Health of one compose service, seen from inside its container: exit code 0 or a reason on stderr.

docker-compose mounts this file; it uses what the service itself uses, so it fails when the service would.
"""

from __future__ import annotations

import socket
import sys
import urllib.request
from contextlib import closing

from cellblock_config import load_settings

_TIMEOUT_S = 5.0


def launcher() -> str | None:
    """The launcher answers on its socket, and an isolation has passed its probe."""
    from cellblock_workers.launcher.client import LauncherClient

    with closing(LauncherClient(load_settings().launcher.socket, timeout_s=_TIMEOUT_S)) as client:
        reply = client.probe()
    return None if reply.isolations else f"no isolation works: {reply.reasons}"


def worker() -> str | None:
    """The ledger has a fresh record from this container's worker, and it says ready."""
    from cellblock.ledger import Ledger, connect

    settings = load_settings()
    with closing(connect(settings)) as redis:
        records = Ledger(redis, settings).workers().values()
    mine = [record for record in records if record.get("host") == socket.gethostname()]
    if not mine:
        return "this worker has not said anything for three beats"
    return None if any(record.get("state") == "ready" for record in mine) else f"paused: {mine[0]['reason']}"


def flower() -> str | None:
    """Flower's web server answers."""
    port = load_settings().monitor.port
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthcheck", timeout=_TIMEOUT_S) as answer:
        return None if answer.status == 200 else f"HTTP {answer.status}"


def main() -> None:
    """``health.py launcher|worker|flower``."""
    try:
        problem = {"launcher": launcher, "worker": worker, "flower": flower}[sys.argv[1]]()
    except Exception as error:  # whatever it is, it is the reason
        problem = f"{type(error).__name__}: {error}"
    sys.exit(problem)


if __name__ == "__main__":
    main()
