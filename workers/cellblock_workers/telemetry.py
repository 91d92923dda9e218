"""Logs and error reports of the fleet's own processes: ids and counts, never code or output."""

from __future__ import annotations

import logging
import re
import sys
import traceback
from pathlib import Path
from typing import Any

from cellblock.errors import OperatorError
from cellblock_config import TelemetrySettings
from cellblock_workers import log

_CAUSES_MOST = 5
#: The event of one of our log lines, in the form that reaches an error report.
_EVENT_NAME = re.compile(r"'event': '([\w ]{1,80})'")
_PAYLOAD_WORDS = (
    "code",
    "stdin",
    "stdout",
    "stderr",
    "manifest",
    "spec",
    "args",
    "traceback",
    "chunk",
    "payload",
    "text",
    "result",
)


def configure_logging(settings: TelemetrySettings) -> None:
    """Sends all logs to stderr in one format, also those of the standard library's loggers."""
    root = logging.getLogger()
    root.handlers[:] = [_Handler(sys.stderr, settings.log_format)]
    root.setLevel(settings.log_level.upper())
    if root.level < logging.ERROR:
        _configure_structlog()
        log.send_to(None, root.level)
    else:  # a first command and its launcher log next to nothing, and do without structlog until they do
        log.send_to(_configure_structlog, root.level)
    logging.getLogger("celery").setLevel(max(logging.INFO, root.level))
    # httpx would log whole addresses, and a webhook's may hold tokens. Alembic names its plugins one by one.
    for chatty in ("urllib3", "docker", "kombu", "amqp", "httpx", "httpcore", "alembic.runtime.plugins"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _configure_structlog() -> None:
    import structlog

    structlog.configure(
        processors=[*_shared_processors(), structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _shared_processors() -> list[Any]:
    """What every line goes through, be it ours or a library's."""
    import structlog

    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso"),
    ]


def _formatter(log_format: str) -> logging.Formatter:
    import structlog

    renderer: Any = (
        structlog.processors.JSONRenderer() if log_format == "json" else structlog.dev.ConsoleRenderer()
    )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_shared_processors(),
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _outline_exception,
            renderer,
        ],
    )


class _Handler(logging.StreamHandler[Any]):
    """Makes its formatter for the first line, and reports that a line failed, instead of printing what it was
    made from."""

    def __init__(self, stream: Any, log_format: str) -> None:
        super().__init__(stream)
        self._log_format = log_format

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        if self.formatter is None:
            self.formatter = _formatter(self._log_format)
        return super().format(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Called when formatting or writing a record has failed."""
        log.report_lost_line(self.stream, record.name)


def _outline_exception(logger: object, method: str, event: Any) -> Any:
    """Types and places instead of a traceback: a library's message may quote a job's data."""
    given = event.pop("exc_info", None)
    error = sys.exc_info()[1] if given is True else given[1] if isinstance(given, tuple) and given else given
    if isinstance(error, BaseException):
        try:
            event["exception"] = _outline(error)
        except Exception:  # it cannot even be named: a log line must not fail over it
            event["exception"] = type(error).__name__
    return event


def _outline(error: BaseException, depth: int = 0) -> str:
    places = [
        f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in traceback.extract_tb(error.__traceback__)
    ]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    said = f": {error}" if isinstance(error, OperatorError) else ""
    # A chain of causes can be a ring.
    behind = f" after {_outline(cause, depth + 1)}" if cause is not None and depth < _CAUSES_MOST else ""
    return f"{type(error).__name__}{said} ({' > '.join(places[-12:])}){behind}"


def configure_sentry(settings: TelemetrySettings, *, transport: Any = None) -> bool:
    """Reports our own faults, if a DSN is set. Job ids go out; code, stdin and output never do.

    Returns whether a DSN is set.
    """
    if settings.sentry_dsn is None:
        return False
    import sentry_sdk
    from sentry_sdk.integrations.celery import CeleryIntegration

    # Personal data stays out by default; the option that said so is deprecated.
    sentry_sdk.init(
        dsn=settings.sentry_dsn.get_secret_value(),
        environment=settings.environment,
        transport=transport,
        integrations=[CeleryIntegration()],
        default_integrations=True,
        include_local_variables=False,
        max_breadcrumbs=0,
        before_send=_strip,
    )
    return True


def _strip(event: Any, hint: Any) -> Any:
    """The last filter of an error report: removes locals, task arguments and everything named like a
    payload."""
    for group in ("exception", "threads"):
        for value in (event.get(group) or {}).get("values", []):
            if value.get("type") not in _names_of(OperatorError):
                value["value"] = ""  # a library's message may quote a job's data
            for frame in (value.get("stacktrace") or {}).get("frames", []):
                frame.pop("vars", None)
    said = str((event.pop("logentry", None) or {}).get("message", ""))
    named = _EVENT_NAME.search(said)
    event["message"] = named[1] if named else str(event.get("logger", ""))
    event.pop("breadcrumbs", None)
    event.pop("request", None)
    event["extra"] = _without_payload(event.get("extra") or {})
    event["contexts"] = _without_payload(event.get("contexts") or {})
    return event


def _names_of(kind: type[BaseException]) -> set[str]:
    return {kind.__name__}.union(*map(_names_of, kind.__subclasses__()))


def _without_payload(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: "[stripped]" if str(key).lower() in _PAYLOAD_WORDS else _without_payload(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_without_payload(item) for item in value]
    return value
