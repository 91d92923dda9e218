"""The thin line through every layer: client, ledger, Celery, launcher, gVisor, result."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock import Client, JobSpec, Outcome
from parts import worker_process


@pytest.mark.docker
def test_hello_through_the_fleet(tmp_path: Path, redis_url: str, launcher_socket: Path) -> None:
    with worker_process(tmp_path, redis_url, launcher_socket), Client(redis_url) as client:
        result = client.submit(JobSpec(code="print(6*7)")).result(timeout_s=30)
    assert result.outcome is Outcome.OK
    assert result.stdout == "42\n"
    assert result.isolation == "gvisor"
    assert result.attempt == 1
