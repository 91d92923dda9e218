"""Loggers import structlog late, and a line that cannot be written ends nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

BEGIN = """
import resource, sys
from cellblock_config import TelemetrySettings
from cellblock_workers.log import get_logger
from cellblock_workers.telemetry import configure_logging
configure_logging(TelemetrySettings(log_level=LEVEL))
log = get_logger("a.module").bind(job_id="7")
"""


def run(level: str, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BEGIN.replace("LEVEL", repr(level)) + program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(("level", "imported"), [("error", False), ("warning", True), ("info", True)])
def test_only_a_process_that_logs_errors_alone_does_without_structlog(level: str, imported: bool) -> None:
    done = run(level, "log.debug('not_shown')\nprint('structlog' in sys.modules)")
    assert (done.stdout, done.stderr) == (f"{imported}\n", "")


def test_the_first_line_has_the_form_of_every_other() -> None:
    done = run("error", "log.warning('not_shown')\nlog.error('went_wrong', way='oci')")
    assert '"job_id": "7"' in done.stderr
    assert '"event": "went_wrong"' in done.stderr
    assert '"logger": "a.module"' in done.stderr
    assert "not_shown" not in done.stderr


def test_a_first_line_without_descriptors_is_reported_lost_and_raises_nothing() -> None:
    done = run(
        "error",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\nlog.error('accept_failed')\nprint('goes on')",
    )
    assert (done.returncode, done.stdout) == (0, "goes on\n")
    assert done.stderr == "a log line of a.module could not be written\n"
