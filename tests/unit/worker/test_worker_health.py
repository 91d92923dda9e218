"""A worker that is not ready says why, in its log too, and once for each reason."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from structlog.testing import capture_logs

from cellblock_workers.launcher.client import LauncherClient
from cellblock_workers.worker.health import Health
from cellblock_workers.worker.health_endpoint import Endpoint
from cellblock_workers.worker.liveness import Liveness
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


def test_health_tells_everybody_that_the_archive_is_behind_and_not_where_it_is() -> None:
    why = "the archive failed while writing jobs: db.internal:5432/jobs: nothing listens there"
    endpoint = Endpoint(
        "127.0.0.1", 0, lambda: Liveness(ok=True, reason="", waiting=0, oldest_s=0, workers={}, archive=why)
    )
    endpoint.start()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/health", timeout=5) as answer:
            told = answer.read().decode()
    finally:
        endpoint.stop()
    assert "db.internal" not in told
    assert "behind" in json.loads(told)["archive"]
