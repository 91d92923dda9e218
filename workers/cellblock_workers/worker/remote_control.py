"""What a worker answers over Celery's remote control: Flower's questions. It takes no orders.

A message in Redis is enough to ask, so an order would let everybody who can write there stop a fleet.
"""

from __future__ import annotations

from celery.worker.control import Panel

#: What Flower's pages of a worker ask for, and the turning on of events that are always on here. Not `conf`:
#: a worker's settings are nobody's business in Redis.
ANSWERED = frozenset(
    {
        *("ping", "stats", "active", "active_queues", "registered", "reserved", "scheduled", "revoked"),
        *("clock", "hello", "enable_events"),
    }
)


def take_no_orders() -> None:
    """Forget every other command of Celery, in this process."""
    for name in set(Panel.data) - ANSWERED:
        del Panel.data[name]
