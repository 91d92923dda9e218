"""A broker transport that drops corrupt messages instead of dying of them.

kombu's own raises out of the event loop on bytes that are not a message, which ends the worker. The
message was corrupt, its job is not: the ledger's sweep publishes the job again.
"""

from __future__ import annotations

import json
from typing import Any

import structlog
from kombu.transport import TRANSPORT_ALIASES, redis
from kombu.utils.encoding import bytes_to_str

_log = structlog.get_logger(__name__)


class Tolerance:
    """Beside a channel of kombu's: what cannot be read is logged once and gone."""

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)  # type: ignore[misc]
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            _log.error("corrupt_message_dropped", why=type(error).__name__)
            raise redis.Empty from None

    def close(self) -> None:
        """Close, also when the connection is gone already: kombu's own would end the worker over messages
        that it cannot give back then. The ledger's sweep sends them again."""
        if self._is_cut_off():
            self.do_restore = False
        super().close()  # type: ignore[misc]

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledge, but for a message of a connection that is gone: kombu's own would end the worker.
        Should it come again, the ledger drops it."""
        if not self._is_cut_off():
            super().basic_ack(delivery_tag, multiple)  # type: ignore[misc]

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give back, but for a message of a connection that is gone."""
        if not self._is_cut_off():
            super().basic_reject(delivery_tag, requeue)  # type: ignore[misc]

    def _is_cut_off(self) -> bool:
        return self.connection is None or self.connection.client is None  # type: ignore[attr-defined]

    def decode_body(self, body: Any, encoding: str | None = None) -> Any:
        """Give Celery text or bytes; what does not decode it then refuses as any other bad body."""
        try:
            return super().decode_body(body, encoding)  # type: ignore[misc]
        except ValueError as error:
            _log.error("corrupt_body", why=type(error).__name__)
            return b""


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


class TolerantChannel(Tolerance, OneClient, redis.Channel):
    """Of one server."""


class TolerantTransport(Inspection, redis.Transport):
    """To one server."""

    Channel = TolerantChannel


class TolerantSentinelChannel(Tolerance, OneClient, redis.SentinelChannel):
    """Of the master that sentinels name."""


class TolerantSentinelTransport(Inspection, redis.SentinelTransport):
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
