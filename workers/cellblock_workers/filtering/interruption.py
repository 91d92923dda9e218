"""Whether an attempt has to stop while its output is filtered."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cellblock_workers.lease import Lease, StopReason


class Interruption:
    """Notices what stops the attempt from now on; an earlier stop has already been handled.

    So the output of a job that was cancelled while it ran is filtered and kept.
    """

    def __init__(self, lease: Lease | None) -> None:
        self._lease = lease
        self._before = None if lease is None else lease.stopped

    def register(self, poll: select.poll) -> None:
        """Has ``poll`` woken by a stop; not after an earlier stop, which would wake it for ever."""
        if self._lease is not None and self._before is None:
            poll.register(self._lease.fileno(), select.POLLIN)

    @property
    def reason(self) -> StopReason | None:
        """Why the attempt has to stop; None if it may go on."""
        stopped = None if self._lease is None else self._lease.stopped
        return None if stopped == self._before else stopped
