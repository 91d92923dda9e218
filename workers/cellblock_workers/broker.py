"""Celery as the wake-up: the app configuration of workers and of Flower. queue.py sends the messages.

A message is a list of job ids; the ledger holds everything else. Each setting answers a failure
mode listed in docs/adr/0002-ledger-over-acks.md.
"""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import quote

from celery import Celery
from kombu import Exchange, Queue

from cellblock.ledger.connection import address_of, sentinel_options, tls_options
from cellblock.queue import QUEUE, broker_prefix
from cellblock_config import Settings


def broker_options(settings: Settings) -> dict[str, Any]:
    """Celery's options for the broker's address: its own if one is set, else the ledger's."""
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
    """A configured Celery app. Makes no connection yet."""
    app = Celery("cellblock", set_as_current=False)
    app.conf.update(
        **broker_options(settings),
        # A message that was taken is not kept: if it is lost, the sweep of the ledger sends another.
        task_queues=[Queue(QUEUE, Exchange("cellblock", "direct"), QUEUE, no_ack=True)],
        task_default_queue=QUEUE,
        task_create_missing_queues=False,
        task_serializer="json",
        accept_content=["json"],
        task_protocol=2,
        task_acks_late=True,  # or Celery would take more messages than it has threads for
        task_reject_on_worker_lost=False,
        task_acks_on_failure=True,
        task_acks_on_timeout=True,
        task_ignore_result=True,
        worker_send_task_events=False,  # its tasks are wake-ups; the ledger tells of jobs
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
