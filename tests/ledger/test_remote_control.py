"""Workers take no orders from Celery's remote control: one message in Redis could stop them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock import Client, JobSpec, Outcome
from cellblock.broker import create_celery
from cellblock_config import load_settings
from parts import NAMESPACES, launcher_process, worker_process

pytestmark = pytest.mark.way("namespaces")


def test_a_worker_neither_stops_nor_answers_when_celery_asks_it_to(tmp_path: Path, redis_url: str) -> None:
    with (
        launcher_process(tmp_path, **NAMESPACES) as (socket, _),
        worker_process(tmp_path, redis_url, socket),
        Client(redis_url) as client,
    ):
        assert client.submit(JobSpec(code="0")).result(timeout_s=60).outcome is Outcome.OK
        app = create_celery(load_settings(redis={"url": redis_url}))
        assert app.control.ping(timeout=2) == []
        assert app.control.inspect(timeout=1).conf() is None
        app.control.shutdown()
        app.control.pool_shrink(100)
        assert client.submit(JobSpec(code="1")).result(timeout_s=60).outcome is Outcome.OK
        app.close()
