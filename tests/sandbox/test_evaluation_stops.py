"""An evaluation is stopped between two runs as in the middle of one, whatever kind of tests it has."""

from __future__ import annotations

import time

import pytest

from cellblock import Outcome
from cellblock.contract.evaluations import Check, Evaluation, FunctionCheck, StdioCase, StdioCheck, Trial
from cellblock.contract.job_status import JobState
from parts import wait_until
from sandbox.harness import Host

#: Each run takes so long that a stop comes between two of many, and so short that none is waited for.
SLOW_S = 0.2
RUNS = 100
#: Half of what all of them take: on a host whose every processor is busy a sandbox's start takes seconds.
LONG_BEFORE_S = RUNS * SLOW_S / 2
CASES = StdioCheck(cases=tuple(StdioCase(stdin="", stdout="done\n") for _ in range(RUNS)))
CALLS = FunctionCheck(functions=("f",), tests="assert f() == 1")
KINDS: dict[str, tuple[Check, int, str]] = {
    "cases of one program": (CASES, 1, f"import time\ntime.sleep({SLOW_S})\nprint('done')"),
    "programs that are called": (
        CALLS,
        RUNS,
        f"import time\ndef f():\n    time.sleep({SLOW_S})\n    return 1",
    ),
}

pytestmark = pytest.mark.docker


@pytest.fixture
def host(sandbox_hosts: dict[str, Host], kernel_way: str) -> Host:
    return sandbox_hosts[kernel_way]


@pytest.fixture(params=KINDS)
def evaluation(request: pytest.FixtureRequest) -> Evaluation:
    check, count, source = KINDS[request.param]
    trials = tuple(Trial(id=str(n), source=f"{source}\n# {n}", check=0) for n in range(count))
    return Evaluation(checks=(check,), trials=trials)


def in_use(host: Host) -> int:
    counts = host.launcher.probe().counts
    assert counts is not None
    return counts["in_use"]


def test_a_cancelled_one_ends_long_before_it_would_have(host: Host, evaluation: Evaluation) -> None:
    with host.running(None, evaluation=evaluation, limits={"timeout_s": 5}) as (job_id, wait):
        wait_until(lambda: in_use(host), what="its first sandbox")
        time.sleep(4 * SLOW_S)
        asked = time.monotonic()
        assert host.ledger.cancel(job_id).word == "requested"
        host.heart.beat()
        result = wait()
    assert time.monotonic() - asked < LONG_BEFORE_S
    assert result.outcome is Outcome.CANCELLED
    assert [trial.id for trial in result.trials] == [trial.id for trial in evaluation.trials]
    last = result.trials[-1]
    assert (last.verdict.value, last.error and last.error.type) == ("unjudged", "Unjudged")
    wait_until(lambda: not in_use(host), what="its sandboxes being gone")


def test_a_drained_worker_gives_it_back(host: Host, evaluation: Evaluation) -> None:
    worker = Host(host.settings.launcher.socket)  # one that drains never works again
    with worker.running(None, evaluation=evaluation, limits={"timeout_s": 5}) as (job_id, _):
        wait_until(lambda: in_use(host), what="its first sandbox")
        time.sleep(4 * SLOW_S)
        asked = time.monotonic()
        worker.heart.drain()
        wait_until(
            lambda: worker.ledger.reads.status(job_id).state is JobState.QUEUED, what="its being given back"
        )
    assert time.monotonic() - asked < LONG_BEFORE_S
    assert worker.ledger.reads.result(job_id) is None
    wait_until(lambda: not in_use(host), what="its sandboxes being gone")
