"""Loggers of the fleet's own processes. structlog is imported with the first line at the latest."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO


class _Destination:
    """Where lines go. ``prepare`` is called once, before the first line."""

    level = logging.NOTSET
    prepare: Callable[[], None] | None = None
    lock = threading.Lock()


def send_to(prepare: Callable[[], None] | None, level: int) -> None:
    """Logs lines of this level and above, whatever the level of a single logger; ``prepare`` configures
    structlog before the first one, if that is still to be done."""
    _Destination.level, _Destination.prepare = level, prepare


class Logger:
    """Writes events with fields, as structlog's loggers do."""

    __slots__ = ("_bound", "_name", "_writer")

    def __init__(self, name: str, bound: dict[str, object]) -> None:
        self._name = name
        self._bound = bound
        self._writer: Any = None

    def bind(self, **fields: object) -> Logger:
        """A logger whose lines have these fields too."""
        return Logger(self._name, {**self._bound, **fields})

    def debug(self, event: str, **fields: object) -> None:
        """For a person who looks for a defect."""
        self._write(logging.DEBUG, "debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        """What happens in the course of things."""
        self._write(logging.INFO, "info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """What an operator might want to change."""
        self._write(logging.WARNING, "warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        """What an operator has to look after."""
        self._write(logging.ERROR, "error", event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """A defect of ours, with the place of the exception that is being handled."""
        self._write(logging.ERROR, "exception", event, fields)

    def _write(self, level: int, method: str, event: str, fields: dict[str, object]) -> None:
        if level < _Destination.level:
            return
        try:
            if self._writer is None:
                self._writer = _writer(self._name)
            getattr(self._writer, method)(event, **self._bound, **fields)
        except Exception:  # without descriptors, say, there is no import; who logs goes on
            report_lost_line(sys.stderr, self._name)


def report_lost_line(stream: TextIO, name: str) -> None:
    """Says that a line of this logger could not be written, and nothing of what it was made from."""
    with suppress(OSError, ValueError):
        stream.write(f"a log line of {name} could not be written\n")


def get_logger(name: str) -> Logger:
    """The logger of a module."""
    return Logger(name, {})


def _writer(name: str) -> Any:
    import structlog

    with _Destination.lock:
        if _Destination.prepare is not None:
            _Destination.prepare()
            _Destination.prepare = None
    return structlog.get_logger(name)
