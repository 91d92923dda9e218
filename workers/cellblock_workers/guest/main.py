"""How a guest begins: as a program of its own, or in a fork of a zygote."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from typing import Any

from .ending import leave
from .guest import Guest, send
from .job import become_job, run_job, warm_up
from .messages import Frame
from .pipes import PIECE_BYTES, WORK_DIR, Pipes
from .preload import import_ahead
from .processes import adopt_orphans
from .shared_kernel import start_series


def start(options: dict[str, Any]) -> None:
    """Forks the waiting job process; returns in the child, never in the guest."""
    for fd in (0, 1):  # one socket: gVisor makes the first one it takes over non-blocking for the other
        os.set_blocking(fd, True)
    if os.getpid() != 1:
        adopt_orphans()
    pipes = Pipes(options["uid"])
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a guest may ignore it
        become_job(pipes, options)
        return
    pipes.close_job_ends()
    send(Frame.READY, b"")
    Guest(pipes, child, options).run()
    # The host reads the last frame and then takes the sandbox down; without a host, stdin ends.
    while os.read(0, PIECE_BYTES):
        pass
    os._exit(0)


def prepare(preload: list[str], folder: str = WORK_DIR) -> None:
    """Does what an interpreter can do once for all its guests: imports these modules, and warms up."""
    import_ahead(preload)
    warm_up(folder)


def main(options: dict[str, Any]) -> None:
    """Runs the guest on descriptors 0 and 1, after :func:`prepare`. Never returns.

    ``uid``: the job's; ``shares_uid``: whether the guest has the same; ``rlimits``: its per-process limits,
    by the kernel's names; ``folder``: where it works, if not in the usual place; ``series``: how many jobs
    share this sandbox (shared_kernel.py); 0 for one.
    """
    if options.get("series"):
        start_series(options)
    else:
        start(options)
    leave(run_job())


def be_one_of_series(pipes: Pipes, options: dict[str, Any]) -> None:
    """Runs the job in one sandbox of a series (series.py). Never returns. ``options``: as for
    :func:`main`."""
    become_job(pipes, options)
    leave(run_job())


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    prepare(given.get("preload", []), given.get("folder", WORK_DIR))
    gc.freeze()  # what is alive now outlives the job: the collector need not look at it
    main(given)
