"""Whether an attempt has to stop while its words are looked through."""

from __future__ import annotations

import select

from cellblock_workers.lease import Lease, StopReason


class Interruption:
    """Hears of what stops the attempt from now on; what has stopped it before has been heeded.

    Of a job that was cancelled while it ran the output is looked through and kept.
    """

    def __init__(self, lease: Lease | None) -> None:
        self._lease = lease
        self._before = None if lease is None else lease.stopped

    def register(self, poll: select.poll) -> None:
        """Have it woken; where it was stopped before, that would wake it for ever."""
        if self._lease is not None and self._before is None:
            poll.register(self._lease.fileno(), select.POLLIN)

    @property
    def reason(self) -> StopReason | None:
        """Why the attempt has to stop; None if it may go on."""
        stopped = None if self._lease is None else self._lease.stopped
        return None if stopped == self._before else stopped
