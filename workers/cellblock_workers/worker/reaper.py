"""The reaper puts lost jobs back into their queue. Every worker has one; the one that leads does the work."""

from __future__ import annotations

import random
import secrets
import threading
from collections.abc import Callable, Iterable

from redis import Redis
from redis.exceptions import RedisError, ResponseError

from cellblock.blobs import Blobs
from cellblock.errors import StoreUnavailable
from cellblock.ledger import Following, Ledger, Round, Transition
from cellblock.ledger.pressure import ADMITS_BELOW, LEAVE_ABOVE
from cellblock.ledger.upkeep_replies import ExpireWord, ReapWord
from cellblock.queue import MESSAGES_MOST, Publisher, queue_key
from cellblock_config import Settings
from cellblock_workers.log import get_logger
from cellblock_workers.worker.blob_removal import BlobRemoval
from cellblock_workers.worker.blob_sweep import BlobSweep

_log = get_logger(__name__)

#: A follower asks this many seconds after the lead may have ended, each at a random moment between the two.
_ASKS_AFTER_S = (0.05, 0.5)
#: While memory is short, rounds come faster, in parts of the usual pause.
_HURRY = 0.2


class Reaper:
    """Ticks on a thread of its own. Any number of reapers may run: one of them leads, the others check
    whether it still does."""

    def __init__(
        self,
        ledger: Ledger,
        publisher: Publisher,
        broker: Redis,
        settings: Settings,
        *,
        worker: str,
        blobs: Blobs | None = None,
    ) -> None:
        self._ledger = ledger
        self._publisher = publisher
        self._broker = broker
        self._settings = settings
        self._name = f"{worker} {secrets.token_hex(8)}"  # containers may share a host's name and a pid
        self._removal = BlobRemoval(ledger, blobs) if blobs is not None else None
        self._sweep = BlobSweep(ledger, blobs) if blobs is not None else None
        self._leads = False
        self._said_full = False
        self._failed = True  # a worker that has just started cannot know whether the store was away
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._tick_on, name="reaper", daemon=True)

    def start(self) -> None:
        """Begins to tick."""
        self._thread.start()

    def stop(self) -> None:
        """Stops ticking, and leaves the lead to the next."""
        self._closing.set()
        self._thread.join(timeout=5)
        if self._leads:
            try:
                self._ledger.upkeep.resign(self._name)
            except StoreUnavailable as error:
                _log.warning("lead_not_given_up", error=str(error))

    def tick(self) -> float:
        """If this reaper leads, or none does: requeues jobs that lost their worker, publishes again what lost
        its message, and makes room. Returns the seconds until the next tick.

        Raises :class:`StoreUnavailable`.
        """
        if not self._leads and not self._failed:
            ends_in_s = self._ledger.upkeep.lead_ends_in_s()
            if ends_in_s is not None:
                return _after(ends_in_s)
        begun = self._ledger.upkeep.tick(self._name, failed=self._failed)
        self._failed = False
        if isinstance(begun, Following):
            self._leads = False
            return _after(begun.ends_in_s)
        if not self._leads:
            _log.info("leads_the_upkeep", epoch=begun.epoch)
        self._leads = True
        if begun.extended:
            _log.warning("leases_extended_after_outage", count=begun.extended)
        self._round(begun)
        if self._removal is not None:
            self._removal.maybe_start()
        if self._sweep is not None:
            self._sweep.maybe_start()
        pause_s = self._settings.ledger.reap_s * random.uniform(0.8, 1.2)  # noqa: S311 - jitter
        hurries = begun.pressure.above(LEAVE_ABOVE) > 0 or self._ledger.retention.crowded_tenants.any_waits()
        return pause_s * (_HURRY if hurries else 1)

    def _round(self, begun: Round) -> None:
        self._say_how_full(begun)
        steps: tuple[Callable[[], object], ...] = (
            lambda: self._publish(self._ledger.upkeep.reap()),  # jobs whose worker is lost
            lambda: self._publish(self._ledger.upkeep.expire()),  # those that were not started in time
            lambda: self._publisher.wake(self._ledger.upkeep.wake_delayed()),
            lambda: self._publisher.wake(self._ledger.upkeep.look_at_parked()),
            self._republish,
            lambda: self._ledger.upkeep.trim_events(begun),
            lambda: self._ledger.retention.make_room(begun),
            self._ledger.upkeep.forget_the_dead,
        )
        for step in steps:
            try:
                step()
            except StoreUnavailable as error:
                if not isinstance(error.__cause__, ResponseError):
                    raise
                _log.error("reaper_step_refused", reason=str(error))
            except Exception:  # a defect in one step must not stop the others
                _log.exception("reaper_step_crashed")

    def _say_how_full(self, begun: Round) -> None:
        full = begun.pressure.percent >= ADMITS_BELOW
        if full and not self._said_full:
            _log.error(
                "store_full",
                percent=round(begun.pressure.percent),
                limit_bytes=begun.pressure.limit_bytes,
                remedy="nothing is admitted until jobs that have ended have left; give Redis more maxmemory, "
                "or lower CELLBLOCK_LEDGER_RESULT_TTL_S",
            )
        elif self._said_full and not full:
            _log.info("store_has_room", percent=round(begun.pressure.percent))
        self._said_full = full

    def _publish(self, reaped: Iterable[Transition[ReapWord]] | Iterable[Transition[ExpireWord]]) -> None:
        for done in reaped:
            _log.warning("job_reaped", job_id=done.job_id, transition=done.word)
            self._publisher.wake(done.wake)

    def _republish(self) -> None:
        """Sends messages again for jobs that could be claimed for a while, if no message is on its way, or
        too few are for a long backlog."""
        try:
            on_their_way = self._broker.llen(queue_key(self._settings))
        except RedisError as error:  # says nothing of the ledger's Redis
            _log.warning("broker_unavailable", reason=type(error).__name__)
            return
        half = MESSAGES_MOST // 2
        few = on_their_way < half and self._ledger.figures.depth() - on_their_way > half
        if (on_their_way == 0 or few) and (unclaimed := self._ledger.upkeep.unclaimed()):
            _log.warning("messages_sent_again", count=len(unclaimed))
            self._publisher.wake(unclaimed)

    def _tick_on(self) -> None:
        pause_s = 0.0
        while not self._closing.wait(pause_s):
            try:
                pause_s = self.tick()
                continue
            except StoreUnavailable as error:
                self._failed = True
                _log.warning("reaper_without_store", error=str(error))
            except Exception:  # the reaper must not stop for a defect of ours
                _log.exception("reaper_crashed")
            pause_s = self._settings.ledger.reap_s


def _after(lead_ends_in_s: float) -> float:
    return lead_ends_in_s + random.uniform(*_ASKS_AFTER_S)  # noqa: S311 - jitter
