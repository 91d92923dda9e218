"""How a worker ends: running jobs get a while to finish, then they are given back, uncounted.

At TERM Celery stops consuming and then waits for its tasks without a limit; the limit is set here. Celery's
own QUIT would leave the threads of tasks behind, so QUIT is a TERM without patience. Its HUP would start the
worker anew, under no supervisor, so HUP is a TERM.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

from celery import signals

from cellblock_workers.log import get_logger

_log = get_logger(__name__)

_ONE_WISH_S = 0.2


class Shutdown:
    """At TERM: calls ``drain`` after ``drain_s`` seconds. At QUIT, or a second TERM: calls it at once."""

    def __init__(self, drain: Callable[[], None], drain_s: float) -> None:
        self._drain = drain
        self._drain_s = drain_s
        self._seen = False
        self._hangs_up = True
        self._last = float("-inf")

    def install(self) -> None:
        """Connects to Celery's shutdown signals."""
        signals.worker_shutting_down.connect(self._on_shutdown, weak=False)
        signals.worker_ready.connect(self._take_signals, weak=False)
        self._hangs_up = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN

    def _take_signals(self, **_: object) -> None:
        signal.signal(signal.SIGQUIT, self._on_quit)
        signal.signal(signal.SIGHUP, self._on_hangup if self._hangs_up else signal.SIG_IGN)

    @staticmethod
    def _on_hangup(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    def _on_quit(self, *_: object) -> None:
        self._seen, self._last = True, float("-inf")
        signal.raise_signal(signal.SIGTERM)

    def _on_shutdown(self, **_: object) -> None:
        # Called from a signal handler: everything that takes a lock belongs on a thread of its own.
        now = time.monotonic()
        if now - self._last < _ONE_WISH_S:  # a signal to a process and to its group is one wish, not two
            return
        grace_s = 0.0 if self._seen else self._drain_s
        self._seen, self._last = True, now
        timer = threading.Timer(grace_s, self._give_back, (grace_s,))
        timer.daemon = True
        timer.start()

    def _give_back(self, grace_s: float) -> None:
        _log.warning("draining_ends", after_s=grace_s, note="jobs that still run are given back")
        self._drain()
