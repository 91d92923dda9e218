"""One guest for a series of jobs, each in a sandbox of its own that waits for it beside the others."""

from __future__ import annotations

import os
import resource
import signal
from typing import Any

from .guest import Guest, send
from .messages import Frame
from .pipes import Pipes


class JobFolders:
    """What one job of a series has written. By itself it ends with the job's namespaces."""

    def full(self) -> str | None:
        """What a file system of the job's has none left of: "bytes" or "inodes"; else None."""
        return None

    def clear(self) -> None:
        """Frees what is left of a job that has ended."""


class SeriesGuest(Guest):
    """The guest of one job of a series. The job is the first process of its own PID namespace, so its end
    ends all that it started. The others of the series wait beside it."""

    def __init__(
        self, pipes: Pipes, child: int, options: dict[str, Any], inbox: bytearray, folders: JobFolders
    ) -> None:
        super().__init__(pipes, child, options, inbox)
        self.folders = folders

    def before_job(self) -> None:
        """Leaves out of the job's CPU time what it used while it got ready, beside all the others."""
        with open(f"/proc/{self.child}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        self.cpu_ms_before = (int(fields[11]) + int(fields[12])) * 1000 // os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        try:
            os.kill(self.child, signal.SIGKILL)
        except ProcessLookupError:
            return

    def reap(self) -> None:
        pid, status, used = os.wait4(self.child, os.WNOHANG)
        if pid and self.started is None:
            os._exit(2)  # it died waiting, and the next job would be judged by its end
        if pid:
            self.status, self.usage = status, used

    def full(self) -> str | None:
        return self.folders.full()

    def end_all(self) -> bool:
        return (
            True  # the kernel ends them with their first process; under gVisor JobFolders.clear waits for it
        )

    def used(self) -> resource.struct_rusage:
        return self.usage


def serve_series(
    waiting: list[tuple[Pipes, int]], options: dict[str, Any], folders: list[JobFolders] | None = None
) -> None:
    """Serves one job after the other, each in a sandbox that waits for it. Never returns.

    ``folders``: of each job, if what it writes does not end with its namespaces.
    """
    send(Frame.READY, b"")
    inbox = bytearray()
    for (pipes, child), written in zip(waiting, folders or [JobFolders()] * len(waiting)):
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            continue  # it has died waiting, and gets no job
        guest = SeriesGuest(pipes, child, options, inbox, written)
        guest.run()
        guest.close()
        written.clear()
    os.read(0, 1)  # a further request gets no answer
    os._exit(0)
