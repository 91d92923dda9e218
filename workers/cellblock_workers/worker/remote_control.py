"""What a worker answers over Celery's remote control: Flower's questions. It takes no orders.

Write access to Redis is enough to ask, so an order would let everyone with that access stop a fleet.
"""

from __future__ import annotations

from typing import Any

from celery.worker.control import Panel

#: What Flower's pages of a worker ask for, and the command to turn on events, which are always on here.
#: `conf` is missing: a worker's settings must not be readable through Redis.
ANSWERED = frozenset(
    {
        *("ping", "stats", "active", "active_queues", "registered", "reserved", "scheduled", "revoked"),
        *("clock", "hello", "enable_events"),
    }
)


def take_no_orders() -> None:
    """Refuses every other command of Celery, in this process.

    A command that is not known at all would be logged as an error, each time that Flower asks for it.
    """
    for name in set(Panel.data) - ANSWERED:
        Panel.data[name] = _refuse


def _refuse(state: object, **given: Any) -> dict[str, str]:
    return {"error": "this worker takes no orders and tells no settings"}
