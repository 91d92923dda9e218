"""Short jobs first: a sandbox that has computed for a while gives way to sandboxes whose jobs have just
begun.

Most jobs end within milliseconds of processor time. With equal weights such a job waits for a turn at every
step beside jobs that compute without a pause; with three times their weight it waits less. All jobs that
compute long share the rest equally; on a host full of short jobs each of them gets a third of what a short
job gets.
"""

from __future__ import annotations

import threading

from cellblock_workers.launcher.backend import Sandbox
from cellblock_workers.log import get_logger

_log = get_logger(__name__)

#: The milliseconds that a job may use before it gives way: several times what a short one uses.
_SHORT_CPU_MS = 100
#: Seconds between two looks: a job on one processor is past the limit after one or two looks.
_LOOK_S = 0.1


class Precedence:
    """Watches the sandboxes in use, in a thread of its own until :meth:`close`."""

    def __init__(self) -> None:
        self._new: dict[str, Sandbox] = {}  # in use, and not giving way yet
        self._changed = threading.Condition()
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="precedence", daemon=True).start()

    def add(self, sandbox: Sandbox) -> None:
        """Watches a sandbox whose job begins."""
        with self._changed:
            self._new[sandbox.id] = sandbox
            self._changed.notify()

    def back(self, sandbox: Sandbox) -> None:
        """Stops watching a sandbox whose job is over. Idempotent."""
        with self._changed:
            self._new.pop(sandbox.id, None)

    def close(self) -> None:
        """Stops the thread."""
        with self._changed:
            self._closed.set()
            self._changed.notify()

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_S):
            with self._changed:
                self._changed.wait_for(lambda: self._new or self._closed.is_set())
                new = list(self._new.values())
            for sandbox in new:
                if self._gives_way(sandbox):
                    self.back(sandbox)

    def _gives_way(self, sandbox: Sandbox) -> bool:
        try:
            return sandbox.give_way(_SHORT_CPU_MS)
        except Exception:  # a defect of ours must not end the watch over all others
            _log.exception("precedence_crashed", sandbox=sandbox.id)
            return True
