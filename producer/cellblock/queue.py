"""The queue that wakes workers: its list in Redis, and how a message gets there.

Messages are Celery's (protocol 2, as kombu's Redis transport frames them), written without Celery or kombu.
One call sends any number of them. It succeeds in a full Redis too: there the jobs they wake make room.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Iterable, Sequence
from importlib import resources

from redis import Redis

from cellblock.errors import StoreUnavailable
from cellblock.ledger.connection import store_errors
from cellblock_config import Settings

_log = logging.getLogger(__name__)

RUN_TASK = "cellblock.run"
#: There is one queue. The ledger decides which job a message lets run, by plan, tenant and priority.
QUEUE = "cellblock.jobs"
#: The most waiting messages. A longer backlog stays in the ledger, and the sweep sends as the queue drains.
MESSAGES_MOST = 5_000


def broker_prefix(settings: Settings) -> str:
    """The prefix of Celery's keys; fleets with different prefixes can share a Redis."""
    return f"{settings.redis.key_prefix}:broker:"


def queue_key(settings: Settings) -> str:
    """The Redis list behind the queue."""
    return broker_prefix(settings) + QUEUE


class Publisher:
    """Sends job ids to the queue of this Redis. Thread-safe."""

    def __init__(self, broker: Redis, settings: Settings) -> None:
        self._queue = queue_key(settings)
        self._origin = f"{os.getpid()}@{socket.gethostname()}"
        source = (resources.files("cellblock") / "publish.lua").read_text()
        self._script = broker.register_script(source)

    def wake(self, job_ids: Sequence[str]) -> None:
        """Sends the messages of jobs that can be claimed; the sweep sends those that fail now."""
        try:
            self.publish(job_ids)
        except StoreUnavailable as error:
            _log.warning("wake-ups of %d jobs were not sent (%s); the sweep will", len(job_ids), error)

    def publish(self, job_ids: Iterable[str]) -> None:
        """Wakes a worker for each of these jobs. Safe to repeat: a message with nothing to claim is dropped.

        Raises :class:`StoreUnavailable` when the broker is out of reach.
        """
        messages = [_message(job_id, self._origin) for job_id in job_ids]
        if messages:
            with store_errors("sending wake-ups"):
                self._script(keys=[self._queue], args=[MESSAGES_MOST, *messages])


def _message(job_id: str, origin: str) -> str:
    """A call of the one task, as a worker's Celery reads it, without optional fields.

    https://docs.celeryq.dev/en/stable/internals/protocol.html
    """
    return json.dumps(
        {
            "body": json.dumps([[[job_id]], {}, {}]),
            "content-type": "application/json",
            "content-encoding": "utf-8",
            "headers": {
                "lang": "py",
                "task": RUN_TASK,
                "id": job_id,
                "root_id": job_id,
                "retries": 0,
                "argsrepr": repr([[job_id]]),
                "kwargsrepr": "{}",
                "origin": origin,
                "ignore_result": True,
            },
            "properties": {
                "correlation_id": job_id,
                "delivery_info": {"exchange": "", "routing_key": QUEUE},
                "delivery_tag": job_id,
                "priority": 0,
            },
        },
        separators=(",", ":"),
    )
