"""How long a sandbox takes to start is nobody's choice."""

from __future__ import annotations

import time
import uuid

import pytest

from cellblock.admission import resolve_limits
from cellblock.models import Limits
from sandbox.conftest import Run
from sandbox.harness import MIB, Host

pytestmark = pytest.mark.docker


def start_s(host: Host, cpus: float) -> float:
    """Seconds until a sandbox that nobody has ready is there."""
    fresh_bytes = (100 + uuid.uuid4().int % 900) * MIB + 4096 * (uuid.uuid4().int % 200)
    limits = resolve_limits("permissive", Limits(cpus=cpus, memory_bytes=fresh_bytes), host.settings)
    began = time.monotonic()
    lent = host.launcher.acquire(uuid.uuid4().hex, 1, "permissive", "python", limits)
    took_s = time.monotonic() - began
    host.launcher.kill(lent)
    return took_s


def test_a_small_share_of_a_processor_starts_as_fast_as_a_whole_one(
    sandbox_hosts: dict[str, Host], any_way: str
) -> None:
    host = sandbox_hosts[any_way]
    whole_s = min(start_s(host, 1.0) for _ in range(3))
    small_s = min(start_s(host, 0.05) for _ in range(3))
    assert small_s < 4 * whole_s + 0.3, "its quota held the start up, and whoever waits behind it"


def test_its_job_has_the_share_it_asked_for(run: Run, way: str) -> None:
    code = "import time\nuntil = time.monotonic() + 3\nwhile time.monotonic() < until: pass"
    used_ms = run(code, way=way, limits={"cpus": 0.2, "timeout_s": 20}).usage.cpu_ms
    assert used_ms < 1500, "of three seconds, a fifth"
