"""Health of one compose service, seen from inside its container: exit code 0, or a reason on stderr.

It uses what the service itself uses, so it fails when the service would.
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
    """This container's worker says that it is ready, and consumes while jobs wait."""
    from cellblock.ledger import Ledger, connect
    from cellblock_workers.worker.liveness import check_liveness

    settings = load_settings()
    with closing(connect(settings)) as redis:
        verdict = check_liveness(Ledger(redis, settings), socket.gethostname(), settings.worker.silent_s)
    paused = [said for said in verdict.workers.values() if said.get("state") != "ready"]
    if verdict.ok and paused and len(paused) == len(verdict.workers):
        return f"paused: {paused[0]['reason']}"
    return None if verdict.ok else verdict.reason


def archiver() -> str | None:
    """The archiver was heard of, and waits for nothing."""
    from cellblock.ledger import connect
    from cellblock.ledger.archiving import Archiving
    from cellblock.ledger.store import Store

    settings = load_settings()
    with closing(connect(settings)) as redis:
        return Archiving(Store.of(redis, settings)).problem()


def flower() -> str | None:
    """Flower's web server answers."""
    port = load_settings().monitor.port
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthcheck", timeout=_TIMEOUT_S) as answer:
        return None if answer.status == 200 else f"HTTP {answer.status}"


def main() -> None:
    """``health.py launcher|worker|archiver|flower``."""
    services = {"launcher": launcher, "worker": worker, "archiver": archiver, "flower": flower}
    try:
        problem = services[sys.argv[1]]()
    except Exception as error:  # whatever it is, it is the reason
        problem = f"{type(error).__name__}: {error}"
    sys.exit(problem)


if __name__ == "__main__":
    main()
