"""A worker that is not ready says why, in its log too, and once for each reason."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from cellblock_workers.launcher.client import LauncherClient
from cellblock_workers.worker.health import Health
from parts import wait_until


def test_a_worker_that_never_becomes_ready_says_so_once(tmp_path: Path) -> None:
    health = Health(LauncherClient(tmp_path / "nobody.sock", timeout_s=1), 0.02)
    with capture_logs() as lines:
        health.start()
        wait_until(lambda: "nobody.sock" in str(health.status()["reason"]), 5, "the reason")
        wait_until(lambda: not health.wait_ready(0.3), 5, "several more looks")
        health.stop()
    assert [line["event"] for line in lines] == ["worker_paused"]
    assert "nobody.sock" in lines[0]["reason"]
