"""The reaper: in every worker, every second, lost jobs go back into their queue."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable

import structlog
from redis import Redis
from redis.exceptions import RedisError

from cellblock.errors import StoreUnavailable
from cellblock.ledger import Ledger, Transition
from cellblock.queue import Publisher, queue_key
from cellblock_config import Settings

_log = structlog.get_logger(__name__)


class Reaper:
    """Ticks on a thread of its own. Any number of reapers may run: each verdict is one script."""

    def __init__(self, ledger: Ledger, publisher: Publisher, broker: Redis, settings: Settings) -> None:
        self._ledger = ledger
        self._publisher = publisher
        self._broker = broker
        self._settings = settings
        self._failed = True  # who has just been started cannot know whether the store was away
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
        extended = self._ledger.tick(failed=self._failed)
        self._failed = False
        if extended:
            _log.warning("leases_extended_after_outage", count=extended)
        steps: tuple[Callable[[], None], ...] = (
            lambda: self._judge(self._ledger.reap()),  # jobs whose worker is lost
            lambda: self._judge(self._ledger.expire()),  # those that were not started in time
            lambda: self._publisher.wake(self._ledger.wake_delayed()),
            lambda: self._publisher.wake(self._ledger.look_at_parked()),
            self._ledger.forget_the_dead,
            self._ledger.forget_old_events,
            self._republish,
        )
        for step in steps:
            try:
                step()
            except StoreUnavailable:
                raise
            except Exception:  # a defect in one step must not stop the others, in every worker
                _log.exception("reaper_step_crashed")

    def _judge(self, judged: Iterable[Transition]) -> None:
        for done in judged:
            _log.warning("job_reaped", job_id=done.job_id, verdict=done.word)
            self._publisher.wake(done.wake)

    def _republish(self) -> None:
        """Send messages again where jobs could be claimed for a while and none is on its way."""
        try:
            on_their_way = self._broker.llen(queue_key(self._settings))
        except RedisError as error:  # says nothing of the ledger's Redis
            _log.warning("broker_unavailable", reason=type(error).__name__)
            return
        if on_their_way == 0 and (unclaimed := self._ledger.unclaimed()):
            _log.warning("messages_sent_again", count=len(unclaimed))
            self._publisher.wake(unclaimed)

    def _tick_on(self) -> None:
        while not self._closing.is_set():
            try:
                self.tick()
            except StoreUnavailable as error:
                self._failed = True
                _log.warning("reaper_without_store", error=str(error))
            except Exception:  # the reaper must not stop for a defect of ours
                _log.exception("reaper_crashed")
            self._closing.wait(self._settings.ledger.reap_s * random.uniform(0.8, 1.2))  # noqa: S311 - jitter
