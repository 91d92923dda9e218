"""A broker transport that stores nothing of a message, and that survives corrupt bytes and a full Redis.

kombu's own transport writes down every message until it is acknowledged, and looks through all of them every
few seconds. When Redis refuses it, or a message has corrupt bytes, it raises out of the event loop, which
ends the worker. Here a message is only a wake-up: if one is lost, the ledger's sweep sends another.
"""

from __future__ import annotations

import json
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis
from kombu.utils.encoding import bytes_to_str
from redis.exceptions import OutOfMemoryError

from cellblock_workers.log import get_logger

_log = get_logger(__name__)


class Tolerance:
    """Extends a channel of kombu's: what cannot be read is logged once and dropped."""

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)  # type: ignore[misc]
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            _log.error("corrupt_message_dropped", why=type(error).__name__)
            raise redis.Empty from None

    def decode_body(self, body: Any, encoding: str | None = None) -> Any:
        """Gives Celery text or bytes; Celery then refuses what does not decode, like any other bad body."""
        try:
            return super().decode_body(body, encoding)  # type: ignore[misc]
        except ValueError as error:
            _log.error("corrupt_body", why=type(error).__name__)
            return b""


class Unkept(redis.QoS):
    """Writes nothing down of a message that was taken, so there is nothing to take back."""

    def ack(self, delivery_tag: str) -> None:
        """Does nothing: no record waits for it."""

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Does nothing: WorkerRuntime.run sends again what this worker cannot run."""

    def restore_visible(self, *_: Any, **__: Any) -> None:
        """Does nothing; kombu's timers call it."""

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """Does nothing; a channel that closes calls it."""


class Unbound:
    """Extends a channel of kombu's: keeps no table of bindings, as no code looks one up. Messages of jobs are
    put into their queue by its name, and broadcasts go through a channel of Redis."""

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        if self.typeof(exchange).type == "fanout":  # type: ignore[attr-defined]
            self._fanout_queues[queue] = (exchange, routing_key.replace("#", "*"))  # type: ignore[attr-defined]

    def maybe_refresh_binding_expiry(self) -> None:
        """Does nothing; kombu's timers call it."""

    def _size(self, queue: str) -> int:
        """How many messages wait. Kombu asks in a transaction, and a full Redis refuses all of it."""
        with self.conn_or_acquire() as client:  # type: ignore[attr-defined]
            steps = self.priority_steps  # type: ignore[attr-defined]
            return sum(client.llen(self._q_for_pri(queue, step)) for step in steps)  # type: ignore[attr-defined]


class OneClient:
    """Extends a channel of kombu's: uses one client for all that is published and acknowledged.

    Kombu makes a client for each message, which took a seventh of a worker's own time under load.
    """

    _clients: tuple[Any, Any] = (None, None)

    def _create_client(self, asynchronous: bool = False) -> Any:
        if asynchronous:
            return super()._create_client(asynchronous)  # type: ignore[misc]
        pool = self.pool  # type: ignore[attr-defined]  # another one after a connection was lost
        if self._clients[0] is not pool:
            self._clients = (pool, super()._create_client())  # type: ignore[misc]
        return self._clients[1]


class Inspection:
    """Extends a transport of kombu's: checks a message's frame before anything relies on it."""

    def _deliver(self, message: Any, queue: str) -> None:
        problem = _problem_of(message)
        if problem is None:
            super()._deliver(message, queue)  # type: ignore[misc]
        else:
            _log.error("corrupt_message_dropped", why=problem, queue=bytes_to_str(queue))


class Patience:
    """Extends a transport of kombu's: waits for a full Redis as for one that is away."""

    connection_errors = (*redis.Transport.connection_errors, OutOfMemoryError)
    #: How long an idle worker's one question to the queue waits for an answer, in seconds: each is a command.
    brpop_timeout = 5


class TolerantChannel(Tolerance, Unbound, OneClient, redis.Channel):
    """The channel to a single Redis server."""

    QoS = Unkept


class TolerantTransport(Inspection, Patience, redis.Transport):
    """The transport to a single Redis server."""

    Channel = TolerantChannel


class TolerantSentinelChannel(Tolerance, Unbound, OneClient, redis.SentinelChannel):
    """The channel to the master that sentinels name."""

    QoS = Unkept


class TolerantSentinelTransport(Inspection, Patience, redis.SentinelTransport):
    """The transport to the master that sentinels name."""

    Channel = TolerantSentinelChannel


def install() -> None:
    """Uses these transports for every Redis broker of this process. Called by the worker's main, never at
    import."""
    path = f"{__name__}:{TolerantTransport.__name__}"
    sentinel = f"{__name__}:{TolerantSentinelTransport.__name__}"
    TRANSPORT_ALIASES.update(redis=path, rediss=path, sentinel=sentinel)


def _problem_of(message: Any) -> str | None:
    """What is missing from the frame that kombu writes around every body; None if nothing is."""
    if not isinstance(message, dict):
        return "not an object"
    properties = message.get("properties")
    if not isinstance(properties, dict) or not isinstance(properties.get("delivery_tag"), str):
        return "no delivery tag"
    delivery = properties.get("delivery_info")
    if not isinstance(delivery, dict) or not {"exchange", "routing_key"} <= delivery.keys():
        return "no delivery information"
    if not isinstance(message.get("headers"), dict) or not isinstance(message.get("body"), str):
        return "no headers or body"
    return None
