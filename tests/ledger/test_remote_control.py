"""Workers answer what Flower asks by Celery's remote control, and take no orders: one could stop them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock import Client, JobSpec, JobState, Outcome
from cellblock_config import load_settings
from cellblock_workers.broker import create_celery
from parts import NAMESPACES, launcher_process, wait_until, worker_process

pytestmark = [pytest.mark.way("namespaces"), pytest.mark.no_rerun]


@pytest.mark.long("what is not answered is waited for")
def test_a_worker_answers_flower_and_takes_no_orders(tmp_path: Path, redis_url: str) -> None:
    with (
        launcher_process(tmp_path, **NAMESPACES) as (socket, _),
        worker_process(tmp_path, redis_url, socket),
        Client(redis_url) as client,
    ):
        assert client.submit(JobSpec(code="0")).result(timeout_s=60).outcome is Outcome.OK
        app = create_celery(load_settings(redis={"url": redis_url}))
        asked = app.control.inspect(timeout=2)
        assert [list(answer.values()) for answer in app.control.ping(timeout=2)] == [[{"ok": "pong"}]]
        for told in (asked.stats(), asked.active_queues(), asked.registered(), asked.active()):
            assert len(told) == 1, "a page of Flower is made of it"
        long = client.submit(JobSpec(code="import time; time.sleep(60)"))
        wait_until(lambda: long.status().state is JobState.RUNNING, what="a job that runs")
        (active,) = asked.active().values()
        assert [task["id"] for task in active] == [long.id], "jobs, not messages"
        assert abs(active[0]["time_start"] - long.status().timings.started) < 0.01
        (stats,) = asked.stats().values()
        assert stats["total"] == {"cellblock.run": 2}
        assert [list(told.values()) for told in (asked.reserved(), asked.scheduled())] == [[[]], [[]]]
        long.cancel()
        settings = app.control.broadcast("conf", reply=True, timeout=2)
        assert [sorted(answer) for one in settings for answer in one.values()] == [["error"]]
        app.control.shutdown()
        app.control.pool_shrink(100)
        app.control.cancel_consumer("celery")
        app.control.rate_limit("cellblock.run", "1/h")
        app.control.time_limit("cellblock.run", hard=0.001)
        for _ in range(3):
            assert client.submit(JobSpec(code="1")).result(timeout_s=60).outcome is Outcome.OK
        app.close()
