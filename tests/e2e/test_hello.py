"""The thin line through every layer: client, ledger, Celery, launcher, gVisor, result."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock import Client, JobSpec, Outcome
from parts import launcher_process, worker_process


@pytest.mark.docker
def test_hello_through_a_fleet_as_it_is_without_any_setting(tmp_path: Path, redis_url: str) -> None:
    with (
        launcher_process(tmp_path) as (launcher, _),
        worker_process(tmp_path, redis_url, launcher),
        Client(redis_url) as client,
    ):
        result = client.submit(JobSpec(code="print(6*7)")).result(timeout_s=30)
    assert result.outcome is Outcome.OK
    assert result.stdout == "42\n"
    assert result.isolation == "gvisor"
    assert result.attempt == 1
