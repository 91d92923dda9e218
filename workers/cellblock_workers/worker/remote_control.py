"""What a worker answers over Celery's remote control: Flower's questions. It takes no orders.

Write access to Redis is enough to ask, so an order would let everyone with that access stop a fleet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from celery import Celery
from celery.worker import state as worker_state
from celery.worker.control import Panel
from kombu.pidbox import Node

#: What Flower's pages of a worker ask for, and the command to turn on events, which are always on here.
#: `conf` is missing: a worker's settings must not be readable through Redis.
ANSWERED = frozenset(
    {
        *("ping", "stats", "active", "active_queues", "registered", "reserved", "scheduled", "revoked"),
        *("clock", "hello", "enable_events"),
    }
)
#: What `stats` tells of the broker.
_TOLD_OF_BROKER = ("transport", "hostname", "port", "virtual_host", "userid", "connect_timeout", "heartbeat")


def take_no_orders(app: Celery) -> None:
    """Refuses every other command of Celery, in this process, and lets questions change nothing.

    A command that is not known at all would be logged as an error, each time that Flower asks for it.
    """
    for name, command in list(Panel.data.items()):
        Panel.data[name] = _without_arguments(command) if name in ANSWERED else _refuse
    Panel.data["hello"] = _hello
    Panel.data["stats"] = _stats
    # Whose id is in this set is never run. Celery has no setting for it, and keeps references to the set.
    vars(worker_state.revoked).update(add=_ignore, update=_ignore)
    app.control.mailbox.node_cls = _Node


class _Node(Node):
    """Replies to those who ask, where kombu would publish to any queue that a question names, or that who
    asks has bound to the exchange of replies: the job queue too."""

    def reply(self, data: object, exchange: str, routing_key: str, ticket: str, **options: Any) -> None:
        mailbox, channel = cast(Any, self.mailbox), cast(Any, self.channel)
        if exchange != mailbox.reply_exchange.name:
            return
        if all(queue.endswith(f".{exchange}") for queue in channel._lookup(exchange, routing_key)):
            super().reply(data, exchange, routing_key, ticket, **options)  # type: ignore[no-untyped-call]


def _refuse(state: object, **given: Any) -> dict[str, str]:
    return {"error": "this worker takes no orders and tells no settings"}


def _without_arguments(command: Callable[[Any], Any]) -> Callable[..., Any]:
    """Flower's questions have none; with some, a question tells more than Flower asks for."""
    return lambda state, **given: command(state)


def _hello(state: Any, **given: Any) -> dict[str, Any]:
    """Celery's own would take the ids of the caller's ``revoked`` over, and run none of these jobs."""
    return {"revoked": [], "clock": state.app.clock.forward()}


def _stats(state: Any, **given: Any) -> dict[str, Any]:
    """Celery's own with its transport's options and the addresses of other sentinels would tell passwords."""
    stats: dict[str, Any] = state.consumer.controller.stats()
    broker = stats.get("broker") or {}
    return {**stats, "broker": {name: broker[name] for name in _TOLD_OF_BROKER if name in broker}}


def _ignore(*_: Any, **__: Any) -> None:
    pass
