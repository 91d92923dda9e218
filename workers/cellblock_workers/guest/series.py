"""One guest for a series of jobs, each in a sandbox of its own that waits for it beside the others."""

from __future__ import annotations

import os
import resource
import signal
from typing import Any

from .guest import Guest, send
from .messages import Frame
from .pipes import Pipes


class SeriesGuest(Guest):
    """The guest of one job of a series. The job is the first process of its own PID namespace, so its end
    ends all that it started. The others of the series wait beside it."""

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
        return None  # its work folder went with it

    def end_all(self) -> bool:
        return True  # they ended with their first process

    def used(self) -> resource.struct_rusage:
        return self.usage


def serve_series(waiting: list[tuple[Pipes, int]], options: dict[str, Any]) -> None:
    """Serves one job after the other, each in a sandbox that waits for it. Never returns."""
    send(Frame.READY, b"")
    inbox = bytearray()
    for pipes, child in waiting:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            continue  # it has died waiting, and gets no job
        guest = SeriesGuest(pipes, child, options, inbox)
        guest.run()
        guest.close()
    os.read(0, 1)  # a further request gets no answer
    os._exit(0)
