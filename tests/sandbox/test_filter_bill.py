"""Looking through what a job said is on its bill, and under its cap."""

from __future__ import annotations

import pytest

from cellblock import JobSpec, Outcome
from cellblock_config.prices import Rates
from sandbox.harness import Host

pytestmark = pytest.mark.docker

#: A thousand micros for a CPU second.
OF_CPU = Rates(per_run=0, per_cpu_second=10**9, per_gib_second=0, percent=100)
#: Base64 of packed beginnings of tokens: a moment to write, and seconds to look through.
HOSTILE = """
import base64, zlib
run = ("gh" "p_" "xox" "b-" "AK" "IA") * 20_000
text = base64.b64encode(zlib.compress(run.encode(), 0)).decode()
open("a.txt", "w").write(text)
open("b.txt", "w").write("honest")
print("hello")
"""


@pytest.fixture
def host(sandbox_hosts: dict[str, Host], evaluation_way: str) -> Host:
    """Filtered by the same worker: no kernel decides anything here."""
    return sandbox_hosts[evaluation_way]


def spec() -> JobSpec:
    return JobSpec(code=HOSTILE, level="permissive", artifacts=("*.txt",), limits={"timeout_s": 20})


@pytest.mark.timeout(120)
def test_what_it_took_is_charged(host: Host) -> None:
    result = host.run_at_price(spec(), OF_CPU, 10**9)
    assert (result.outcome, result.stdout) == (Outcome.OK, "hello\n")
    assert result.usage.filter_cpu_ms > 100
    assert result.cost_micros is not None
    assert result.cost_micros >= result.usage.cpu_ms + result.usage.filter_cpu_ms


@pytest.mark.timeout(120)
def test_what_there_is_no_money_for_is_withheld(host: Host) -> None:
    cap = host.run_at_price(spec(), OF_CPU, 10**9).usage.cpu_ms * 2 + 150
    result = host.run_at_price(spec(), OF_CPU, cap)
    assert (result.outcome, result.stdout) == (Outcome.COST_CAP, "hello\n"), result.error
    assert result.cost_micros is not None
    assert cap / 2 < result.cost_micros <= cap
    assert "a.txt" in {one.path for one in result.artifacts_skipped}
    assert any("max_cost_micros" in one.reason for one in result.artifacts_skipped)
