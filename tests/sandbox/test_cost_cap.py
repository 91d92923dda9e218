"""A job that has cost all it may is stopped within half a second, whatever isolation it runs in."""

from __future__ import annotations

import pytest

from cellblock import JobResult, JobSpec, Outcome
from cellblock_config.prices import Rates
from sandbox.harness import Host

pytestmark = pytest.mark.docker

SPIN = "print('begun', flush=True)\nwhile True: pass"
SLEEP = "import time\nprint('begun', flush=True)\ntime.sleep(60)"
BIG = "print('begun', flush=True)\nheld = b'x' * (200 * 2**20)\nimport time\ntime.sleep(60)"
#: A thousand micros: for a CPU second, for a second of wall time with a GiB.
OF_CPU = Rates(per_run=0, per_cpu_second=10**9, per_gib_second=0, percent=100)
OF_MEMORY = Rates(per_run=0, per_cpu_second=0, per_gib_second=10**9, percent=100)


def run(host: Host, code: str, rates: Rates, cap_micros: int) -> JobResult:
    spec = JobSpec(code=code, level="permissive", limits={"timeout_s": 20})
    return host.run_at_price(spec, rates, cap_micros)


def test_a_job_that_spins_is_stopped_at_its_cap(host: Host) -> None:
    result = run(host, SPIN, OF_CPU, 1000)
    assert (result.outcome, result.stdout) == (Outcome.COST_CAP, "begun\n"), result.error
    assert 900 <= result.usage.cpu_ms + result.usage.filter_cpu_ms <= 1500, (
        "a second of CPU time, and half a second to be seen"
    )
    assert result.cost_micros == 1000, "and no more than that is taken"


def test_memory_held_costs_as_time_goes_by(host: Host) -> None:
    result = run(host, BIG, OF_MEMORY, 400)
    assert (result.outcome, result.stdout) == (Outcome.COST_CAP, "begun\n"), result.error
    assert 800 <= result.usage.wall_ms <= 3500


def test_a_job_that_sleeps_uses_no_cpu_and_is_not_stopped(host: Host) -> None:
    result = run(host, SLEEP.replace("60", "2"), OF_CPU, 1000)
    assert (result.outcome, result.cost_micros is not None and result.cost_micros < 1000) == (
        Outcome.OK,
        True,
    )
