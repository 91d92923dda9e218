"""Waiting for results by notification: one thread and one subscription for all jobs of a client.

The ledger publishes on a job's channel when it ends. Notifications can be lost (a reconnect), so the
waiting set is also swept, all jobs in one round trip, every few seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from redis import Redis
from redis.client import PubSub
from redis.exceptions import RedisError

from cellblock.contract.models import JobResult
from cellblock.errors import CellblockError, StoreUnavailable
from cellblock.ledger import Ledger
from cellblock.ledger.results import heard

_SWEEP_S = 2.0


class ResultWaiter:
    """Hands out a future per job id, completed with its JobResult or the error of fetching it."""

    def __init__(
        self, redis: Redis, ledger: Ledger, opened: Callable[[JobResult], JobResult] = lambda result: result
    ) -> None:
        """``opened``: what to make of a result before it is handed out."""
        self._opened = opened
        self._redis = redis
        self._ledger = ledger
        self._waiting: dict[str, Future[JobResult]] = {}
        self._lock = threading.Lock()
        self._pubsub: PubSub | None = None
        self._over: set[str] = set()  # channels to leave
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def wait_for(self, job_id: str) -> Future[JobResult]:
        """A future for the job's result. Subscribes first and looks second, so no end is missed."""
        with self._lock:
            known = self._waiting.get(job_id)
            if known is not None:
                return known
            future: Future[JobResult] = Future()
            if self._closed.is_set():
                future.cancel()
                return future
            self._waiting[job_id] = future
            subscribed = self._subscribe(job_id)
        if not subscribed:
            self.forget(job_id)
            future.set_exception(
                StoreUnavailable(
                    f"Redis cannot be reached while waiting for job {job_id}: check CELLBLOCK_REDIS_URL"
                )
            )
        return future

    def job_of(self, future: Future[JobResult]) -> str | None:
        """Which job this future waits for; None when it waits no more."""
        with self._lock:
            return next((job_id for job_id, one in self._waiting.items() if one is future), None)

    def forget(self, job_id: str) -> None:
        """Stop watching a job nobody waits for any more."""
        with self._lock:
            if self._waiting.pop(job_id, None) is not None:
                self._over.add(self._ledger.keys.done(job_id))

    def close(self) -> None:
        """Stop the thread; futures still open are cancelled."""
        with self._lock:
            self._closed.set()
            thread = self._thread
        if thread is not None:
            thread.join(timeout=5)
        with self._lock:
            for future in self._waiting.values():
                future.cancel()
            self._waiting.clear()
            if self._pubsub is not None:
                self._pubsub.close()

    def _subscribe(self, job_id: str) -> bool:
        if self._pubsub is None:
            self._pubsub = self._redis.pubsub()
        channel = self._ledger.keys.done(job_id)
        self._over.discard(channel)
        # Who has heard from the store before waits for it, by the sweep: it may be failing over.
        ok = self._quietly(self._pubsub.subscribe, channel) or self._thread is not None
        if self._thread is None:
            self._thread = threading.Thread(target=self._listen, name="cellblock-results", daemon=True)
            self._thread.start()
        return ok

    def _listen(self) -> None:
        assert self._pubsub is not None  # noqa: S101 - set before the thread starts
        prefix = len(self._ledger.keys.done(""))
        next_sweep = time.monotonic() + _SWEEP_S
        while not self._closed.is_set():
            try:
                message: dict[str, Any] | None = self._pubsub.get_message(timeout=0.2)
            except Exception:  # whatever goes wrong here, the thread has to go on: everybody waits on it
                # redis-py resubscribes by itself on the next call; the sweep covers the gap.
                self._closed.wait(0.2)
                message = None
            if time.monotonic() >= next_sweep:
                next_sweep = time.monotonic() + _SWEEP_S
                self._sweep()
            if message is not None and message["type"] in {"message", "subscribe"}:
                # "subscribe" is the server's word that later ends will be heard: look now for an earlier one.
                told = str(message["data"]) if message["type"] == "message" else ""
                self._settle(str(message["channel"])[prefix:], told)

    def _sweep(self) -> None:
        with self._lock:
            waiting = list(self._waiting)
            over, self._over = self._over, set()
            if over and self._pubsub is not None:  # together: each by itself is a round trip
                self._quietly(self._pubsub.unsubscribe, *over)
        try:
            settled = self._ledger.reads.settled(waiting) if waiting else []
        except CellblockError:
            return  # the store is away; whoever waits keeps waiting, up to its own timeout
        for job_id in settled:
            self._settle(job_id)

    def _settle(self, job_id: str, told: str = "") -> None:
        """Complete the future of a job that has ended, by what was told or what the store says; an
        unreachable store is asked again later."""
        with self._lock:
            future = self._waiting.get(job_id)
        if future is None or future.done():
            return
        try:
            result = heard(job_id, told) or self._ledger.reads.result(job_id)
            result = result and self._opened(result)
        except StoreUnavailable:
            return
        except Exception as error:  # handed to whoever waits for this job
            self.forget(job_id)
            if not future.done():
                future.set_exception(error)
            return
        if result is not None:
            if not future.done():
                future.set_result(result)
            self.forget(job_id)

    @staticmethod
    def _quietly(call: Any, *channels: str) -> bool:
        """Subscriptions are a speed-up; the sweep is what makes waiting sure."""
        try:
            call(*channels)
        except (RedisError, OSError):
            return False
        return True
