"""Waits for results by notification: one thread and one subscription for all jobs of a client.

The ledger publishes on a job's channel when it ends. Notifications can be lost (a reconnect), so every few
seconds the thread also asks for all jobs that are waited for, in one round trip.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from redis import Redis
from redis.client import PubSub
from redis.exceptions import RedisError

from cellblock.contract.results import JobResult
from cellblock.errors import CellblockError, ResultTimeout, StoreUnavailable
from cellblock.ledger import Ledger
from cellblock.ledger.stored_results import heard

_SWEEP_S = 2.0


def closed_while_waiting(job_id: str) -> ResultTimeout:
    """The error for a wait that ended with its client, or began after that."""
    return ResultTimeout(
        f"the client was closed while waiting for job {job_id}, or before; the job goes on: use a client "
        "inside its with block"
    )


class _Wait(Future[JobResult]):
    """A future that a forked child can end by itself."""

    def give_up_after_fork(self, job_id: str) -> None:
        """In a forked child, which has one thread: ends the wait, calling nobody.

        Its callbacks and waiting threads are the parent's, and another thread might have held its lock.
        """
        self._condition = threading.Condition()
        self._done_callbacks: list[object] = []
        self._waiters.clear()
        if not self.done():
            self.set_exception(
                ResultTimeout(
                    f"this process was forked, and the wait for job {job_id} stayed with its parent; the job "
                    f"goes on: ask again with client.result_future({job_id!r})"
                )
            )


class ResultWaiter:
    """Gives one future per job id, which ends with its JobResult or the error of fetching it."""

    def __init__(
        self, redis: Redis, ledger: Ledger, opened: Callable[[JobResult], JobResult] = lambda result: result
    ) -> None:
        """``opened``: applied to each result, for instance to open a sealed one."""
        self._opened = opened
        self._redis = redis
        self._ledger = ledger
        self._waiting: dict[str, _Wait] = {}
        self._lock = threading.Lock()
        self._pubsub: PubSub | None = None
        self._over: set[str] = set()  # channels to leave
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def wait_for(self, job_id: str) -> Future[JobResult]:
        """A future for the job's result. It subscribes first and looks then, so it misses no end."""
        with self._lock:
            known = self._waiting.get(job_id)
            if known is not None:
                return known
            future = _Wait()
            if self._closed.is_set():
                future.cancel()
                return future
            self._waiting[job_id] = future
            try:
                subscribed = self._subscribe(job_id)
            except BaseException:  # Ctrl-C: the next wait has to subscribe
                del self._waiting[job_id]
                raise
        if not subscribed:
            self.forget(job_id)
            future.set_exception(
                StoreUnavailable(
                    f"Redis cannot be reached while waiting for job {job_id}: check CELLBLOCK_REDIS_URL"
                )
            )
        return future

    def job_of(self, future: Future[JobResult]) -> str | None:
        """The id of the job that this future waits for; None if it does not wait any more."""
        with self._lock:
            return next((job_id for job_id, one in self._waiting.items() if one is future), None)

    def forget(self, job_id: str) -> None:
        """Stops watching a job that no caller waits for."""
        with self._lock:
            if self._waiting.pop(job_id, None) is not None:
                self._over.add(self._ledger.keys.done(job_id))

    def close(self) -> None:
        """Stops the thread and cancels the open futures."""
        with self._lock:
            self._closed.set()
            thread = self._thread
        if thread is not None and thread.ident is not None:
            thread.join(timeout=5)
        with self._lock:
            for future in self._waiting.values():
                future.cancel()
            self._waiting.clear()
            if self._pubsub is not None:
                self._pubsub.close()

    def give_up_after_fork(self) -> None:
        """In a forked child: ends all waits and gives up the connection, which is the parent's."""
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._closed.set()  # the child might have been forked on the thread that listens
        for job_id, future in list(self._waiting.items()):
            future.give_up_after_fork(job_id)
        if self._pubsub is not None:
            self._pubsub.connection = None

    def _subscribe(self, job_id: str) -> bool:
        if self._pubsub is None:
            self._pubsub = self._redis.pubsub()
        channel = self._ledger.keys.done(job_id)
        self._over.discard(channel)
        # A client that has reached the store before goes on waiting by the sweep: the store might fail over.
        ok = self._quietly(self._pubsub.subscribe, channel) or self._thread is not None
        if self._thread is None:
            self._thread = threading.Thread(target=self._listen, name="cellblock-results", daemon=True)
        if self._thread.ident is None:  # also where Ctrl-C came between the two
            self._thread.start()
        return ok

    def _listen(self) -> None:
        assert self._pubsub is not None  # noqa: S101 - set before the thread starts
        prefix = len(self._ledger.keys.done(""))
        next_sweep = time.monotonic() + _SWEEP_S
        while not self._closed.is_set():
            try:
                message: dict[str, Any] | None = self._pubsub.get_message(timeout=0.2)
            except Exception:  # the thread has to go on after any error: all callers wait on it
                # redis-py resubscribes by itself on the next call; the sweep covers the gap.
                self._closed.wait(0.2)
                message = None
            if time.monotonic() >= next_sweep:
                next_sweep = time.monotonic() + _SWEEP_S
                self._sweep()
            if message is not None and message["type"] in {"message", "subscribe"}:
                # "subscribe" confirms that later ends will be heard: look now for an earlier one.
                told = str(message["data"]) if message["type"] == "message" else ""
                self._settle(str(message["channel"])[prefix:], told)

    def _sweep(self) -> None:
        with self._lock:
            waiting = list(self._waiting)
            over, self._over = self._over, set()
            if over and self._pubsub is not None:  # all in one call: each call is a round trip
                self._quietly(self._pubsub.unsubscribe, *over)
        try:
            settled = self._ledger.reads.settled(waiting) if waiting else []
        except CellblockError:
            return  # the store is away; callers keep waiting, up to their own timeouts
        for job_id in settled:
            self._settle(job_id)

    def _settle(self, job_id: str, told: str = "") -> None:
        """Completes the future of a job that has ended, from its notification or from the store. A store that
        is out of reach is asked again later."""
        with self._lock:
            future = self._waiting.get(job_id)
        if future is None or future.done():
            return
        try:
            result = heard(job_id, told)
            if result is None and (result := self._ledger.reads.result(job_id)) is not None:
                with suppress(StoreUnavailable):  # else it is kept longer than it has to be
                    self._ledger.note_fetched(job_id)
            result = result and self._opened(result)
        except StoreUnavailable:
            return
        except Exception as error:  # for the callers that wait for this job
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
        """Calls a subscription method and returns whether it worked. The sweep makes up for failures."""
        try:
            call(*channels)
        except (RedisError, OSError):
            return False
        return True
