"""What a worker answers over Celery's remote control: Flower's questions. It takes no orders.

Write access to Redis is enough to ask, so an order would let everyone with that access stop a fleet.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from celery import Celery
from celery.worker import state as worker_state
from celery.worker.control import Panel
from kombu.pidbox import Node

from cellblock.queue import RUN_TASK
from cellblock_workers.lease import Heart

#: What Flower's pages of a worker ask for. `conf` is missing: a worker's settings must not be readable
#: through Redis. So is `enable_events`: Celery's are about messages.
ANSWERED = frozenset(
    {
        *("ping", "stats", "active", "active_queues", "registered", "reserved", "scheduled", "revoked"),
        *("clock", "hello"),
    }
)
#: What `stats` tells of the broker.
_TOLD_OF_BROKER = ("transport", "hostname", "port", "virtual_host", "userid", "connect_timeout", "heartbeat")


def take_no_orders(app: Celery, heart: Heart) -> None:
    """Refuses every other command of Celery, in this process, and lets questions change nothing.

    Where Celery would tell of its messages, it tells of the jobs that ``heart`` beats for. A command that is
    not known at all would be logged as an error, each time that Flower asks for it.
    """
    for name, command in list(Panel.data.items()):
        Panel.data[name] = _without_arguments(command) if name in ANSWERED else _refuse
    Panel.data["hello"] = _hello
    Panel.data["stats"] = partial(_stats, heart)
    Panel.data["active"] = partial(_active, heart)
    for waiting in ("reserved", "scheduled"):
        Panel.data[waiting] = _no_jobs
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


def _stats(heart: Heart, state: Any, **given: Any) -> dict[str, Any]:
    """Celery's own with its transport's options and the addresses of other sentinels would tell passwords."""
    stats: dict[str, Any] = state.consumer.controller.stats()
    broker = stats.get("broker") or {}
    return {
        **stats,
        "broker": {name: broker[name] for name in _TOLD_OF_BROKER if name in broker},
        "total": {RUN_TASK: heart.begun},
    }


def _active(heart: Heart, state: Any, **given: Any) -> list[dict[str, Any]]:
    """The jobs that run here, as Celery describes a task."""
    return [
        {
            "id": job_id,
            "name": RUN_TASK,
            "type": RUN_TASK,
            "args": [],
            "kwargs": {},
            "hostname": state.hostname,
            "time_start": started,
            "acknowledged": True,
            "delivery_info": {},
            "worker_pid": os.getpid(),
        }
        for job_id, started in heart.running()
    ]


def _no_jobs(state: object, **given: Any) -> list[object]:
    """Jobs wait in the ledger, for whichever worker is first."""
    return []


def _ignore(*_: Any, **__: Any) -> None:
    pass
