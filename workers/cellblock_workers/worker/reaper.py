"""The reaper: in every worker, every second, lost jobs go back into their queue."""

from __future__ import annotations

import random
import threading

import structlog
from redis import Redis
from redis.exceptions import RedisError

from cellblock.broker import Publisher, queue_key
from cellblock.errors import StoreUnavailable
from cellblock.ledger import Ledger
from cellblock_config import LedgerSettings

_log = structlog.get_logger(__name__)


class Reaper:
    """Ticks on a thread of its own. Any number of reapers may run: each verdict is one script."""

    def __init__(self, ledger: Ledger, publisher: Publisher, broker: Redis, settings: LedgerSettings) -> None:
        self._ledger = ledger
        self._publisher = publisher
        self._broker = broker
        self._settings = settings
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._tick_on, name="reaper", daemon=True)

    def start(self) -> None:
        """Begin to tick."""
        self._thread.start()

    def stop(self) -> None:
        """Stop ticking."""
        self._closing.set()
        self._thread.join(timeout=5)

    def tick(self) -> None:
        """Requeue what lost its worker, and publish again what lost its message.

        Raises :class:`StoreUnavailable`.
        """
        for reaped in self._ledger.reap():
            _log.warning("job_reaped", job_id=reaped.job_id, verdict=reaped.verdict)
            if reaped.verdict == "requeued":
                self._publisher.publish([reaped.job_id], reaped.priority)
        self._republish()

    def _republish(self) -> None:
        # A message is taken for lost only while its queue is empty: a backlog is not flooded with copies.
        lengths: dict[str, int] = {}
        for job_id, priority in self._ledger.unclaimed():
            if priority not in lengths:
                lengths[priority] = self._queue_length(priority)
            if lengths[priority] == 0:
                _log.warning("job_republished", job_id=job_id)
                self._publisher.publish([job_id], priority)
                self._ledger.republished(job_id)

    def _queue_length(self, priority: str) -> int:
        try:
            length = self._broker.llen(queue_key(priority))
        except RedisError as error:
            raise StoreUnavailable(
                f"the broker cannot be asked for its queue: {type(error).__name__}"
            ) from error
        return int(length)

    def _tick_on(self) -> None:
        while not self._closing.is_set():
            try:
                self.tick()
            except StoreUnavailable as error:
                _log.warning("reaper_without_store", error=str(error))
            except Exception:  # the reaper may not stop for a defect of ours
                _log.exception("reaper_crashed")
            self._closing.wait(self._settings.reap_s * random.uniform(0.8, 1.2))  # noqa: S311 - jitter
