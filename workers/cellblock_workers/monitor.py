"""Flower on cellblock's own Celery app: read-only, behind a password, never a source of truth."""

from __future__ import annotations

import os

from flower.urls import handlers

from cellblock.errors import NotConfigured
from cellblock_config import load_settings
from cellblock_workers.broker import create_celery
from cellblock_workers.process_environment import keep_to_itself
from cellblock_workers.telemetry import die_with_parent

_TASKS_KEPT = "10000"


def main() -> None:
    """Runs Flower until TERM. Secrets go through the environment, not the argument list."""
    die_with_parent()
    keep_to_itself()
    settings = load_settings()
    monitor = settings.monitor
    if monitor.password is None:
        raise NotConfigured("Flower needs a password: set CELLBLOCK_MONITOR_PASSWORD")
    os.environ.update(
        FLOWER_READ_ONLY="true",
        FLOWER_BASIC_AUTH=f"{monitor.user}:{monitor.password.get_secret_value()}",
        FLOWER_ADDRESS=monitor.address,
        FLOWER_PORT=str(monitor.port),
        FLOWER_MAX_TASKS=_TASKS_KEPT,
        FLOWER_PURGE_OFFLINE_WORKERS="60",
    )
    # Flower shows this page without a password; our own metrics do not come from it.
    handlers[:] = [h for h in handlers if not (isinstance(h, tuple) and h[0] == "/metrics")]
    create_celery(settings).start(["flower"])


if __name__ == "__main__":
    main()
