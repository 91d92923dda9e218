"""Hears of cancellations at once; without it the next beat brings the news."""

from __future__ import annotations

import threading

from redis import Redis
from redis.exceptions import RedisError

from cellblock.ledger import Keys
from cellblock_workers.lease import Heart
from cellblock_workers.log import get_logger

_log = get_logger(__name__)

_LISTEN_S = 1.0
_AGAIN_S = 1.0


class CancellationListener:
    """Listens on the fleet's control channel, on a thread and a connection of its own.

    A message only makes the heart beat: the ledger decides what becomes of a job, never the channel.
    """

    def __init__(self, redis: Redis, keys: Keys, heart: Heart) -> None:
        self._redis = redis
        self._keys = keys
        self._heart = heart
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="control", daemon=True)

    def start(self) -> None:
        """Begins to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Stops listening."""
        self._closing.set()
        self._thread.join(timeout=5)

    def _keep(self) -> None:
        while not self._closing.is_set():
            try:
                self._listen()
            except RedisError as error:
                _log.warning("control_lost", error=str(error))
                self._closing.wait(_AGAIN_S)
            except Exception:  # a defect of ours must not make this worker deaf
                _log.exception("control_crashed")
                self._closing.wait(_AGAIN_S)

    def _listen(self) -> None:
        with self._redis.pubsub(ignore_subscribe_messages=True) as channel:  # type: ignore[no-untyped-call]
            channel.subscribe(self._keys.control)
            self._heart.nudge()  # for messages that were sent while this did not listen
            while not self._closing.is_set():
                message = channel.get_message(timeout=_LISTEN_S)
                if message is not None:
                    self._heart.nudge(str(message["data"]))
