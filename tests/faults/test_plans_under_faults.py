"""Money and slots when workers die, and what a nested run takes from a parent that runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock import JobSpec, JobState, Limits, Outcome
from faults.one_host import Host, one_host
from parts import wait_until

pytestmark = [pytest.mark.docker, pytest.mark.no_rerun]


@pytest.fixture
def host(tmp_path: Path, redis_url: str) -> Iterator[Host]:
    with one_host(tmp_path, redis_url) as opened:
        yield opened


@pytest.mark.long("waits for leases to run out")
def test_a_job_whose_worker_was_killed_is_charged_once_and_its_slot_is_back(host: Host) -> None:
    """What the lost attempt used is on us; of the one that ended its tenant pays what it used."""
    code = "import time\nbegun = time.monotonic()\nwhile time.monotonic() - begun < 2: pass"
    with host.worker("doomed") as doomed:
        first = host.begun(JobSpec(code=code, plan="freemium"))
        second = host.client.submit(JobSpec(code="print(1)", plan="freemium"))
        assert second.status().state is JobState.PARKED
        doomed.kill()
        doomed.wait()
        killed = time.monotonic()
        (before,) = host.client.usage("default")
        assert before.spent_micros == 0
        with host.worker("other"):
            wait_until(lambda: first.status().attempt == 2, 20, "the job running again")
            back_s = time.monotonic() - killed
            results = [job.result(timeout_s=30) for job in (first, second)]
    assert back_s < 3 + 2 + 5, "a lease of 3 s, a reaper's round, and another worker's start"
    assert [result.outcome for result in results] == [Outcome.OK, Outcome.OK]
    assert results[0].attempt == 2
    costs = [result.cost_micros or 0 for result in results]
    assert costs[0] > costs[1] > 0
    (day,) = host.client.usage("default")
    assert (day.runs, day.reserved_micros, day.spent_micros) == (2, 0, sum(costs))
    assert host.client._redis.exists(host.client._ledger.keys.slots("default")) == 0


@pytest.mark.long("money is spent by the second")
def test_a_running_parent_is_stopped_when_what_it_did_not_lend_is_spent(host: Host) -> None:
    with host.worker(CELLBLOCK_WORKER_CONCURRENCY="1", CELLBLOCK_WORKER_DRAIN_S="50") as worker:
        # What it cannot lend is counted as if it used all it may; with so little it does, on any machine.
        little = Limits(cpus=0.25, memory_bytes=64 * 2**20, timeout_s=50)
        spin = JobSpec(code="while True: pass", plan="premium", nested_cost_micros=90_000, limits=little)
        parent = host.begun(spin)
        known = host.client._ledger.parent(parent.id, "default")
        lent, kept = known.left_micros - 10, known.accrued_micros + 10  # it goes on spending meanwhile
        started = time.monotonic()
        child = host.client.submit(
            JobSpec(code="print(1)", parent=parent.id, nested_cost_micros=90_000, max_cost_micros=lent)
        )
        worker.terminate()  # else it would look at the nested run next, and end it
        result = parent.result(timeout_s=55)
        assert result.outcome is Outcome.COST_CAP, result
        assert time.monotonic() - started < 45, "it would have had fifty seconds"
        (day,) = host.client.usage("default")
        assert day.reserved_micros == lent, "the nested run has its money still"
        assert day.spent_micros <= kept
        host.client.cancel(child.id)
        (day,) = host.client.usage("default")
        assert day.reserved_micros == 0


@pytest.mark.long("a parent sleeps beside its nested run")
def test_a_nested_run_and_its_parent_run_side_by_side_in_one_slot(host: Host) -> None:
    with host.worker(CELLBLOCK_WORKER_CONCURRENCY="2"):
        waits = "import time\nprint('begun', flush=True)\ntime.sleep(8)"
        parent = host.begun(JobSpec(code=waits, plan="freemium", nested_cost_micros=500))
        child = host.client.submit(JobSpec(code="print('nested')", parent=parent.id))
        assert child.result(timeout_s=7).stdout == "nested\n"
        assert parent.status().state is JobState.RUNNING
        assert parent.result(timeout_s=20).ok
