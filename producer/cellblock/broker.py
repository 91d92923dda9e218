"""Celery as the wake-up: the one app configuration that producers and workers share.

The message is a list of job ids; the ledger holds everything else. Each setting answers a failure
mode listed in docs/adr/0002-ledger-over-acks.md.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from celery import Celery
from kombu import Exchange, Queue
from kombu.exceptions import OperationalError

from cellblock.errors import StoreUnavailable
from cellblock.ledger.connection import address_of, sentinel_options, tls_options
from cellblock_config import Settings

_log = logging.getLogger(__name__)

RUN_TASK = "cellblock.run"


#: One queue: which job a message lets run is the ledger's word, by plan, tenant and priority.
QUEUE = "cellblock.jobs"


def broker_prefix(settings: Settings) -> str:
    """What Celery's own keys start with; fleets with different prefixes can share a Redis."""
    return f"{settings.redis.key_prefix}:broker:"


def queue_key(settings: Settings) -> str:
    """The Redis list behind the queue."""
    return broker_prefix(settings) + QUEUE


def broker_options(settings: Settings) -> dict[str, Any]:
    """Celery's words for the broker's address: its own if one is set, else the ledger's."""
    address = address_of(settings, broker=True)
    login = ""
    if address.username or address.password:
        login = f"{quote(address.username or '', safe='')}:{quote(address.password or '', safe='')}@"
    scheme = "sentinel" if address.service else ("rediss" if address.tls else "redis")
    options: dict[str, Any] = {
        "broker_url": ";".join(
            f"{scheme}://{login}{_host(host)}:{port}/{address.db}" for host, port in address.hosts
        ),
        "broker_transport_options": {
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
    }
    if address.service:
        options["broker_transport_options"] |= {
            "master_name": address.service,
            "sentinel_kwargs": sentinel_options(address, settings.redis),
        }
    if address.tls:
        tls = tls_options(address, settings.redis)
        options["broker_use_ssl"] = {**tls, "ssl_cert_reqs": ssl.CERT_REQUIRED}
        del options["broker_use_ssl"]["ssl"]
    return options


def _host(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def create_celery(settings: Settings) -> Celery:
    """A configured Celery app; connects to nothing yet."""
    app = Celery("cellblock", set_as_current=False)
    app.conf.update(
        **broker_options(settings),
        task_queues=[Queue(QUEUE, Exchange("cellblock", "direct"), QUEUE)],
        task_default_queue=QUEUE,
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
    )
    return app


class Publisher:
    """Sends job ids to the queue. Thread-safe."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def wake(self, job_ids: Iterable[str]) -> None:
        """Send the messages of jobs that can be claimed; what cannot be sent now is left to the sweep."""
        for job_id in job_ids:
            try:
                self.publish([job_id])
            except StoreUnavailable as error:
                _log.warning("the wake-up of job %s was not sent (%s); the sweep will", job_id, error)

    def publish(self, job_ids: Sequence[str]) -> None:
        """Wake a worker once for each of these. Harmless to repeat: with nothing to claim it is dropped.

        Raises :class:`StoreUnavailable` when the broker is out of reach.
        """
        try:
            self._app.send_task(
                RUN_TASK,
                args=[list(job_ids)],
                task_id=job_ids[0],
                queue=QUEUE,
                ignore_result=True,
                retry=False,
            )
        except (OperationalError, OSError, TimeoutError) as error:
            # Its text names host, port and cause; a password is in the address only.
            raise StoreUnavailable(f"the broker took no message: {error or type(error).__name__}") from error
