"""How long a sandbox takes to start is nobody's choice."""

from __future__ import annotations

import time
import uuid
from contextlib import closing
from pathlib import Path

import pytest

from cellblock import JobSpec, Outcome
from cellblock.admission.resolve import resolve_limits
from cellblock.contract.job_spec import Limits
from cellblock_config.prices import Rates
from parts import launcher_process, wait_until
from sandbox.conftest import Run
from sandbox.harness import MIB, Host
from suite.ways import environment_of

pytestmark = pytest.mark.docker


def start_s(host: Host, cpus: float) -> float:
    """Seconds until a sandbox that nobody has ready is there."""
    fresh_bytes = (100 + uuid.uuid4().int % 900) * MIB + 4096 * (uuid.uuid4().int % 200)
    limits = resolve_limits("permissive", Limits(cpus=cpus, memory_bytes=fresh_bytes), host.settings)
    began = time.monotonic()
    lent = host.launcher.acquire(
        job_id=uuid.uuid4().hex, fence=1, level="permissive", image="python", limits=limits
    )
    took_s = time.monotonic() - began
    host.launcher.kill(lent)
    return took_s


def test_a_small_share_of_a_processor_starts_as_fast_as_a_whole_one(
    sandbox_hosts: dict[str, Host], any_way: str
) -> None:
    host = sandbox_hosts[any_way]
    whole_s = min(start_s(host, 1.0) for _ in range(3))
    small_s = min(start_s(host, 0.05) for _ in range(3))
    assert small_s < 4 * whole_s + 0.3, "its quota must not slow down its start"


def test_its_job_has_the_share_it_asked_for(run: Run, way: str) -> None:
    code = "import time\nuntil = time.monotonic() + 3\nwhile time.monotonic() < until: pass"
    used_ms = run(code, way=way, limits={"cpus": 0.2, "timeout_s": 20}).usage.cpu_ms
    assert used_ms < 1000, "of three seconds, a fifth"


def test_a_start_for_one_job_alone_is_on_its_bill(sandbox_hosts: dict[str, Host], any_way: str) -> None:
    """A micro for each millisecond of CPU time, and limits that no other test asks for."""
    host = sandbox_hosts[any_way]
    rates = Rates(per_run=0, per_cpu_second=10**9, per_gib_second=0, percent=100)
    spec = JobSpec(code="print(1)", level="permissive", limits={"memory_bytes": 333 * MIB})
    results = [host.run_at_price(spec, rates, 10**6) for _ in range(5)]
    starts_ms = [result.usage.start_cpu_ms for result in results]
    assert min(starts_ms[:3]) > 0, starts_ms
    assert max(starts_ms[3:]) == 0, "what many ask for is kept ready, and nobody's order"
    for result in results:
        assert result.cost_micros is not None
        assert abs(result.cost_micros - result.usage.paid_cpu_ms) <= 2


@pytest.mark.way("gvisor-oci")
def test_no_job_ends_for_what_its_start_took(sandbox_hosts: dict[str, Host]) -> None:
    """The cap is what the job itself may use; the start is on the bill as far as that allows."""
    host = sandbox_hosts["gvisor-oci"]
    rates = Rates(per_run=0, per_cpu_second=10**9, per_gib_second=0, percent=100)
    limits = Limits(memory_bytes=334 * MIB, cpus=0.1, timeout_s=1.0)
    spec = JobSpec(code="import time; time.sleep(0.5)", level="strict", limits=limits)
    result = host.run_at_price(spec, rates, 100)
    assert (result.outcome, result.cost_micros) == (Outcome.OK, 100), result
    assert result.usage.start_cpu_ms > 100


@pytest.mark.way("gvisor-oci")
def test_what_cannot_start_ends_at_once_and_at_a_price(sandbox_hosts: dict[str, Host]) -> None:
    """Limits that an image does not start with, where the operator has not said so."""
    socket = sandbox_hosts["gvisor-oci"].settings.launcher.socket
    host = Host(socket, sandbox={"image_memory_min_bytes": {}}, ledger={"fault_retries": 2})
    spec = JobSpec(
        code="print(1)", image="datascience", level="permissive", limits={"memory_bytes": 64 * MIB}
    )
    rates = Rates(per_run=10**8, per_cpu_second=0, per_gib_second=0, percent=100)
    with closing(host.launcher):
        result = host.run_at_price(spec, rates, 500)
    assert result.error is not None
    assert (result.outcome, result.error.type, result.cost_micros) == (
        Outcome.REJECTED,
        "SandboxNotStarting",
        100,
    )
    assert "ask for more (limits.memory_bytes)" in result.error.message


@pytest.mark.way("runc-oci")
def test_an_image_that_does_not_start_at_all_is_nobodys_fault(tmp_path: Path) -> None:
    """An operator's slip: a module to preload that the image lacks. No job pays for it."""
    slip = {"CELLBLOCK_SANDBOX_PRELOAD": '{"datascience": ["no_such_module"]}'}
    with launcher_process(tmp_path, **environment_of("runc-oci"), **slip) as (socket, _):
        host = Host(socket)
        wait_until(lambda: host.launcher.probe().isolations, 60, "the launcher's probe")
        rates = Rates(per_run=10**8, per_cpu_second=0, per_gib_second=0, percent=100)
        with closing(host.launcher):
            result = host.run_at_price(
                JobSpec(code="print(1)", image="datascience", level="permissive"), rates, 500
            )
    assert (result.outcome, result.cost_micros or 0) == (Outcome.SANDBOX_ERROR, 0)
