"""A broker transport that keeps nothing of a message, and that neither corrupt bytes nor a full Redis end.

kombu's own writes down every message until it is acknowledged, looks through all of them every few seconds,
and raises out of the event loop what Redis or a message's bytes refuse it, which ends the worker. Here a
message is only a wake-up: what becomes of one, the ledger's sweep sends another.
"""

from __future__ import annotations

import json
from typing import Any

import structlog
from kombu.transport import TRANSPORT_ALIASES, redis
from kombu.utils.encoding import bytes_to_str
from redis.exceptions import OutOfMemoryError

_log = structlog.get_logger(__name__)


class Tolerance:
    """Beside a channel of kombu's: what cannot be read is logged once and gone."""

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)  # type: ignore[misc]
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            _log.error("corrupt_message_dropped", why=type(error).__name__)
            raise redis.Empty from None

    def decode_body(self, body: Any, encoding: str | None = None) -> Any:
        """Give Celery text or bytes; what does not decode it then refuses as any other bad body."""
        try:
            return super().decode_body(body, encoding)  # type: ignore[misc]
        except ValueError as error:
            _log.error("corrupt_body", why=type(error).__name__)
            return b""


class Unkept(redis.QoS):
    """Of a message that was taken nothing is written down, so there is nothing to take back."""

    def ack(self, delivery_tag: str) -> None:
        """Nothing waits for it."""

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Nothing waits for it; Runtime.run sends again what this worker cannot run."""

    def restore_visible(self, *_: Any, **__: Any) -> None:
        """Kombu's timers ask for it."""

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """A channel that closes asks for it."""


class Unbound:
    """Beside a channel of kombu's: no table of bindings is kept, for nobody looks one up. Jobs' messages are
    put into their queue by its name, and what is for all goes through a channel of Redis."""

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        if self.typeof(exchange).type == "fanout":  # type: ignore[attr-defined]
            self._fanout_queues[queue] = (exchange, routing_key.replace("#", "*"))  # type: ignore[attr-defined]

    def maybe_refresh_binding_expiry(self) -> None:
        """Kombu's timers ask for it."""

    def _size(self, queue: str) -> int:
        """How many messages wait. Kombu's own asks in a transaction, all of which a full Redis refuses."""
        with self.conn_or_acquire() as client:  # type: ignore[attr-defined]
            steps = self.priority_steps  # type: ignore[attr-defined]
            return sum(client.llen(self._q_for_pri(queue, step)) for step in steps)  # type: ignore[attr-defined]


class OneClient:
    """Beside a channel of kombu's: what is published and acknowledged goes through one client.

    Kombu makes one for each message, which took a seventh of a worker's own time under load.
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
    """Beside a transport of kombu's: looks at a message's frame before anything relies on it."""

    def _deliver(self, message: Any, queue: str) -> None:
        problem = _problem_of(message)
        if problem is None:
            super()._deliver(message, queue)  # type: ignore[misc]
        else:
            _log.error("corrupt_message_dropped", why=problem, queue=bytes_to_str(queue))


class Patience:
    """Beside a transport of kombu's: a full Redis is waited for, as one that is away."""

    connection_errors = (*redis.Transport.connection_errors, OutOfMemoryError)
    #: How long an idle worker's one question to the queue waits for an answer, in seconds: each is a command.
    brpop_timeout = 5


class TolerantChannel(Tolerance, Unbound, OneClient, redis.Channel):
    """Of one server."""

    QoS = Unkept


class TolerantTransport(Inspection, Patience, redis.Transport):
    """To one server."""

    Channel = TolerantChannel


class TolerantSentinelChannel(Tolerance, Unbound, OneClient, redis.SentinelChannel):
    """Of the master that sentinels name."""

    QoS = Unkept


class TolerantSentinelTransport(Inspection, Patience, redis.SentinelTransport):
    """To the master that sentinels name."""

    Channel = TolerantSentinelChannel


def install() -> None:
    """Use it for every Redis broker of this process; called by the worker's main, never at import."""
    path = f"{__name__}:{TolerantTransport.__name__}"
    sentinel = f"{__name__}:{TolerantSentinelTransport.__name__}"
    TRANSPORT_ALIASES.update(redis=path, rediss=path, sentinel=sentinel)


def _problem_of(message: Any) -> str | None:
    """What is missing of the frame kombu writes around every body, None if nothing is."""
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
