"""Flower on cellblock's own Celery app: read-only, behind a password, never a source of truth."""

from __future__ import annotations

import os
import signal

from flower import command
from flower.app import Flower
from flower.urls import handlers
from flower.urls import settings as flower_settings
from tornado.ioloop import IOLoop
from tornado.options import options, parse_command_line

from cellblock.errors import NotConfigured
from cellblock.ledger import Ledger, connect
from cellblock_config import MonitorSettings, Settings, load_settings
from cellblock_workers.broker import create_celery
from cellblock_workers.monitor.events import TASKS_KEPT, JobEvents
from cellblock_workers.process_environment import keep_to_itself
from cellblock_workers.telemetry import die_with_parent

_COLUMNS = "uuid,state,worker,received,runtime,exception,kwargs"


def main() -> None:
    """Runs Flower until TERM."""
    die_with_parent()
    keep_to_itself()
    settings = load_settings()
    _configure(settings.monitor)
    flower = _flower(settings)
    signal.signal(signal.SIGTERM, command.sigterm_handler)
    flower.start_http_server()
    try:
        flower.start()
    except (KeyboardInterrupt, SystemExit):
        flower.stop()


def _configure(monitor: MonitorSettings) -> None:
    """Sets Flower's options. The password goes through the environment: others can read an argument list."""
    if monitor.password is None:
        raise NotConfigured("Flower needs a password: set CELLBLOCK_MONITOR_PASSWORD")
    os.environ.update(
        FLOWER_READ_ONLY="true",
        FLOWER_BASIC_AUTH=f"{monitor.user}:{monitor.password.get_secret_value()}",
        FLOWER_ADDRESS=monitor.address,
        FLOWER_PORT=str(monitor.port),
        FLOWER_MAX_TASKS=str(TASKS_KEPT),
        FLOWER_PURGE_OFFLINE_WORKERS="60",
        FLOWER_TASKS_COLUMNS=_COLUMNS,
    )
    command.apply_env_options()
    parse_command_line(["flower"])
    command.extract_settings()
    command.setup_logging()
    # Flower shows this page without a password; our own metrics do not come from it.
    handlers[:] = [h for h in handlers if not (isinstance(h, tuple) and h[0] == "/metrics")]


def _flower(settings: Settings) -> Flower:
    celery, loop = create_celery(settings), IOLoop.current()
    events = JobEvents(celery, loop, Ledger(connect(settings), settings).reads)
    return Flower(capp=celery, options=options, events=events, io_loop=loop, **flower_settings)


if __name__ == "__main__":
    main()
