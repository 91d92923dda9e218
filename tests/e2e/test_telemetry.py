"""What leaves the fleet besides results: error reports and logs hold no code, input or output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.transport import Transport

from cellblock import Client, JobSpec
from cellblock.errors import OperatorError, StoreUnavailable
from cellblock_config import TelemetrySettings
from cellblock_workers.telemetry import _outline_exception, _strip, configure_sentry
from parts import worker_process

MARKER = "marker-7f3a9c"


class LocalTransport(Transport):
    """Keeps envelopes instead of sending them."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.sent: list[bytes] = []

    def capture_envelope(self, envelope: Any) -> None:
        """Serialise as the network would see it."""
        self.sent.append(envelope.serialize())


def fail_with(code: str) -> None:
    """A fault of ours while a job's payload is in a local variable."""
    stdin = {"stdin": code}
    raise RuntimeError(f"internal fault {stdin['stdin']}")  # as a library may say it


def test_sentry_is_off_without_a_dsn() -> None:
    assert configure_sentry(TelemetrySettings()) is False


def test_an_error_report_carries_the_fault_and_no_payload() -> None:
    transport = LocalTransport()
    settings = TelemetrySettings.model_validate({"sentry_dsn": "http://key@127.0.0.1:9/1"})
    assert configure_sentry(settings, transport=transport)
    try:
        with sentry_sdk.new_scope() as scope:
            scope.set_extra("code", MARKER)
            scope.set_context("job", {"stdin": MARKER, "job_id": "abc"})
            sentry_sdk.add_breadcrumb(message=MARKER)
            try:
                fail_with(MARKER)
            except RuntimeError as error:
                sentry_sdk.capture_exception(error)
        sentry_sdk.flush()
        sent = b"".join(transport.sent)
    finally:
        sentry_sdk.init()
    assert b"RuntimeError" in sent
    assert b"fail_with" in sent
    assert b"abc" in sent
    assert MARKER.encode() not in sent


@pytest.mark.docker
def test_the_workers_log_holds_ids_and_no_payload(
    tmp_path: Path, redis_url: str, launcher_socket: Path
) -> None:
    with worker_process(tmp_path, redis_url, launcher_socket), Client(redis_url) as client:
        code = f"import sys; print('{MARKER}', sys.stdin.read()); raise ValueError('{MARKER}')"
        job = client.submit(JobSpec(code=code, stdin=MARKER))
        assert MARKER in job.result(timeout_s=30).stdout
    log = (tmp_path / "worker.log").read_text()
    assert job.id in log
    assert MARKER not in log


class Unspeakable(OperatorError):
    """Its message cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError(MARKER)


def ring() -> Exception:
    first, second = ValueError(MARKER), KeyError(MARKER)
    first.__cause__, second.__cause__ = second, first
    return first


@pytest.mark.parametrize("error", [ValueError(MARKER), Unspeakable(), ring()], ids=["plain", "mute", "ring"])
def test_a_logged_exception_is_named_and_not_quoted(error: Exception) -> None:
    event = _outline_exception(None, "error", {"event": "x", "exc_info": error})
    assert type(error).__name__ in event["exception"]
    assert MARKER not in event["exception"]


def test_what_an_operator_has_to_mend_is_quoted() -> None:
    event = _outline_exception(None, "error", {"exc_info": StoreUnavailable("Redis cannot be reached")})
    assert "Redis cannot be reached" in event["exception"]


def test_an_error_reports_log_line_is_its_name_alone() -> None:
    sent = _strip(
        {"logger": "a.b", "logentry": {"message": f"{{'event': 'x_failed', 'error': '{MARKER}'}}"}}, {}
    )
    assert sent["message"] == "x_failed"
    assert MARKER not in str(sent)
