"""Celery as the wake-up: the one app configuration that producers and workers share.

The message is a list of job ids; the ledger holds everything else. Each setting answers a failure
mode listed in docs/adr/0002-ledger-over-acks.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from celery import Celery
from kombu import Exchange, Queue
from kombu.exceptions import OperationalError

from cellblock.errors import NotConfigured, StoreUnavailable
from cellblock.models import PRIORITY_CLASSES, PriorityClass
from cellblock_config import Settings

RUN_TASK = "cellblock.run"


def queue_name(priority: PriorityClass | str) -> str:
    """The Celery queue of a priority class."""
    return f"cellblock.{priority}"


def broker_prefix(settings: Settings) -> str:
    """What Celery's own keys start with; fleets with different prefixes can share a Redis."""
    return f"{settings.redis.key_prefix}:broker:"


def queue_key(settings: Settings, priority: PriorityClass | str) -> str:
    """The Redis list behind a priority class's queue."""
    return broker_prefix(settings) + queue_name(priority)


def broker_url(settings: Settings) -> str:
    """The broker's address: its own if one is set, else the ledger's."""
    url = settings.redis.broker_url or settings.redis.url
    if url is None:
        raise NotConfigured(
            "no Redis is configured: set CELLBLOCK_REDIS_URL, for example redis://127.0.0.1:6379/0"
        )
    return url.get_secret_value()


def create_celery(settings: Settings) -> Celery:
    """A configured Celery app; connects to nothing yet."""
    app = Celery("cellblock", set_as_current=False)
    app.conf.update(
        broker_url=broker_url(settings),
        task_queues=[
            Queue(queue_name(p), Exchange("cellblock", "direct"), queue_name(p)) for p in PRIORITY_CLASSES
        ],
        task_default_queue=queue_name("normal"),
        task_create_missing_queues=False,
        task_serializer="json",
        accept_content=["json"],
        task_protocol=2,
        # Late acks are only the second net: the ledger requeues, Celery never does.
        task_acks_late=True,
        task_reject_on_worker_lost=False,
        task_acks_on_failure=True,
        task_acks_on_timeout=True,
        task_ignore_result=True,
        task_send_sent_event=True,
        task_track_started=True,
        worker_send_task_events=True,
        worker_prefetch_multiplier=1,
        worker_disable_prefetch=True,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_hijack_root_logger=False,
        worker_eta_task_limit=10,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_pool_acquire_timeout=5,
        control_queue_expires=60,
        event_queue_expires=60,
        broker_transport_options={
            "global_keyprefix": broker_prefix(settings),
            "visibility_timeout": settings.worker.visibility_timeout_s,
            "unacked_restore_interval": 10,
            "unacked_restore_throttle": 1,
            "unacked_mutex_expire": 60,
            "socket_timeout": 15,
            "socket_connect_timeout": 2,
            "socket_keepalive": True,
            "health_check_interval": 10,
        },
    )
    return app


class Publisher:
    """Sends job ids to their queue. Thread-safe."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def publish(self, job_ids: Sequence[str], priority: PriorityClass | str) -> None:
        """Wake a worker for these jobs. Harmless to repeat: a claimed job's message is dropped.

        Raises :class:`StoreUnavailable` when the broker is out of reach.
        """
        try:
            self._app.send_task(
                RUN_TASK,
                args=[list(job_ids)],
                task_id=job_ids[0],
                queue=queue_name(priority),
                ignore_result=True,
                retry=False,
            )
        except (OperationalError, OSError, TimeoutError) as error:
            raise StoreUnavailable(
                f"the broker cannot be reached while publishing: {type(error).__name__}"
            ) from error
