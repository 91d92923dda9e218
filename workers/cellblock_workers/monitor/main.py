"""Flower on cellblock's own Celery app: read-only, behind a password, never a source of truth."""

from __future__ import annotations

import logging
import os

from flower import command
from flower.app import Flower
from flower.urls import handlers
from flower.urls import settings as flower_settings
from tornado.ioloop import IOLoop
from tornado.options import options, parse_command_line

from cellblock.errors import NotConfigured
from cellblock.interrupts import on_stop
from cellblock.ledger import Ledger, connect
from cellblock_config import MonitorSettings, Settings, load_settings
from cellblock_workers.broker import create_celery
from cellblock_workers.monitor.address import unusable_address
from cellblock_workers.monitor.events import TASKS_KEPT, JobEvents
from cellblock_workers.parent_death import die_with_parent
from cellblock_workers.process_environment import keep_to_itself
from cellblock_workers.store import refuse

_COLUMNS = "uuid,state,worker,received,runtime,exception,kwargs"


def main() -> None:
    """Runs Flower until TERM, INT or HUP. Raises :class:`NotConfigured`."""
    die_with_parent()
    keep_to_itself()
    settings = load_settings()
    _configure(settings.monitor, settings.telemetry.log_level)
    flower = _flower(settings)
    on_stop(command.sigterm_handler)
    _listen(flower, settings.monitor)
    try:
        flower.start()
    except (KeyboardInterrupt, SystemExit):
        flower.stop()


def _listen(flower: Flower, monitor: MonitorSettings) -> None:
    try:
        flower.start_http_server()
    except OSError as error:
        raise unusable_address(monitor, error) from error


def _configure(monitor: MonitorSettings, log_level: str) -> None:
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
    parse_command_line(["flower", f"--logging={log_level}"])
    command.extract_settings()
    command.setup_logging()
    # Our workers take no remote commands but a few, and Flower warns of each that gets no answer.
    logging.getLogger("flower.inspector").setLevel(logging.ERROR)
    # Flower shows this page without a password; our own metrics do not come from it.
    handlers[:] = [h for h in handlers if not (isinstance(h, tuple) and h[0] == "/metrics")]


def _flower(settings: Settings) -> Flower:
    celery, loop = create_celery(settings), IOLoop.current()
    events = JobEvents(celery, loop, Ledger(connect(settings), settings).reads)
    return Flower(capp=celery, options=options, events=events, io_loop=loop, **flower_settings)


if __name__ == "__main__":
    try:
        main()
    except NotConfigured as error:
        refuse("flower_refuses_its_settings", str(error))
