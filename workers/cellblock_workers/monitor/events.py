"""What Flower watches: the ledger's events, and its workers' heartbeats on the broker."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from celery import Celery
from flower.events import Events
from tornado.ioloop import IOLoop

from cellblock import Event
from cellblock.errors import StoreUnavailable
from cellblock.ledger.reads import Reads
from cellblock_workers.monitor.jobs import JobsState

_log = logging.getLogger(__name__)

#: The most jobs in memory; the one that changed longest ago leaves first.
TASKS_KEPT = 10_000
#: A Flower that starts reads this many events of the past: three for a job.
_PAST_EVENTS = 3 * TASKS_KEPT
#: Events that are taken over at once. Flower answers no request meanwhile.
_BATCH = 200
_WAIT_S = 1.0
#: The pause after events: those of one job then come together.
_PAUSE_S = 0.2
_AGAIN_S = 2.0


class JobEvents(Events):  # type: ignore[misc]
    """Flower's receiver of workers' events, with a second thread that follows the ledger's."""

    def __init__(self, celery: Celery, loop: IOLoop, reads: Reads) -> None:
        super().__init__(celery, loop, enable_events=False, max_tasks_in_memory=TASKS_KEPT)
        self.state = JobsState(max_tasks_in_memory=TASKS_KEPT)
        self._reads = reads
        self._follower = threading.Thread(target=self._follow, name="ledger-events", daemon=True)

    def start(self) -> None:
        """Starts both threads."""
        super().start()
        self._follower.start()

    def _follow(self) -> None:
        after: str | None = None
        while True:
            try:
                if after is None:
                    after = self._reads.event_before_last(_PAST_EVENTS)
                events = self._reads.events(after, limit=_BATCH, wait_s=_WAIT_S)
            except StoreUnavailable as error:
                _log.warning(
                    "the ledger's events are out of reach, trying again in %g s: %s", _AGAIN_S, error
                )
                time.sleep(_AGAIN_S)
                continue
            if events:
                self._take(events)
                after = events[-1].id
                if len(events) < _BATCH:
                    time.sleep(_PAUSE_S)

    def _take(self, events: Sequence[Event]) -> None:
        """Has the loop take these over, and waits for it: what Flower cannot follow stays in the ledger."""
        taken = threading.Event()

        def take() -> None:
            try:
                self.state.take(events)
            finally:
                taken.set()

        self.io_loop.add_callback(take)
        taken.wait()
