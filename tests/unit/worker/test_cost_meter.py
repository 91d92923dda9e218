"""A job's cost while it runs: looked at as seldom as its cap allows, and stopped soon after it is reached."""

from __future__ import annotations

import time

import pytest

from cellblock.admission.costs import Charge
from cellblock.admission.resolve import ResolvedLimits
from cellblock_config.prices import Rates
from cellblock_workers.launcher.evidence import Evidence
from cellblock_workers.worker.cost_meter import CostMeter

LIMITS = ResolvedLimits(timeout_s=10, cpu_s=11, memory_bytes=2**30, cpus=1.0, pids=10, output_bytes=1000)
#: A thousand micros a CPU second, nothing else.
RATES = Rates(per_run=0, per_cpu_second=10**9, per_gib_second=0, percent=100)


def meter(cap_micros: int, cpu_ms: list[int]) -> CostMeter:
    """Injected: the kernel says these CPU times, one after the other, the last one again and again."""
    said = iter(cpu_ms)
    last = cpu_ms[-1]
    return CostMeter(
        Charge(rates=RATES, cap_micros=cap_micros), LIMITS, lambda: Evidence(cpu_ms=next(said, last))
    )


def test_a_job_that_cannot_reach_its_cap_is_not_looked_at() -> None:
    assert meter(10_000, [0]).due_in_s == pytest.approx(10, abs=0.2)


def test_a_look_is_due_when_the_cap_could_be_reached_and_no_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    watched = meter(2000, [500, 1900, 2000])
    assert watched.due_in_s == 2
    clock[0] = 2.0
    assert watched.due_in_s == 0
    assert not watched.over()
    assert watched.due_in_s == 1.5, "it has used half a second of its two"
    clock[0] = 3.5
    assert not watched.over()
    assert watched.due_in_s == pytest.approx(0.2)
    clock[0] = 3.7
    assert watched.over()


def test_near_the_cap_it_is_looked_at_five_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    watched = meter(1000, [999])
    watched.over()
    assert watched.due_in_s == pytest.approx(0.2)


def test_memory_that_is_taken_late_is_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its peak counts for all the time there was: what was cheap so far may be over the cap in a moment."""
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    rates = Rates(per_run=0, per_cpu_second=0, per_gib_second=10**8, percent=100)
    peak = [0]
    watched = CostMeter(
        Charge(rates=rates, cap_micros=400), LIMITS, lambda: Evidence(cpu_ms=0, peak_memory_bytes=peak[0])
    )
    assert watched.due_in_s == pytest.approx(4), "a GiB for four seconds"
    while clock[0] < 8:
        clock[0] += watched.due_in_s
        assert not watched.over()
    peak[0] = 2**30
    clock[0] += watched.due_in_s
    assert watched.over()
    assert clock[0] < 8.5


def test_what_earlier_attempts_used_is_no_part_of_its_cap() -> None:
    charge = Charge(rates=RATES, cap_micros=1000)
    watched = CostMeter(charge, LIMITS, lambda: Evidence(cpu_ms=150), lambda: 900)
    assert watched.due_in_s <= 0.2
    assert watched.over()
