"""Any order of any calls, on time or stale: the ledger does what a few lines of plain Python do."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from redis import Redis

from cellblock import JobState, Outcome
from cellblock.ledger import Claim, Dropped, Ledger
from ledger.kit import STORES, events_of, expire_lease, finish, manifest, open_ledger, operation

LOSS_LIMIT = 2
ENDS = [Outcome.OK, Outcome.MEMORY, Outcome.CANCELLED, Outcome.SANDBOX_ERROR]


@dataclass
class Expected:
    """What a job is, by the rules of ARCHITECTURE.md."""

    state: JobState = JobState.QUEUED
    attempt: int = 0
    losses: int = 0
    cancel: bool = False
    lease_over: bool = False
    story: list[str] = field(default_factory=lambda: ["queued"])

    def end(self, state: JobState) -> None:
        self.state = state
        self.story.append(state.value)


#: Which of the two youngest jobs, and how many attempts too late the caller is.
WHICH = st.sampled_from([0, 0, 1])
LATE = st.sampled_from([0, 0, 1])


class Interleavings(RuleBasedStateMachine):
    """Calls of several workers on several jobs, in any order, on time or one attempt too late."""

    ledger: Ledger
    redis: Redis

    def __init__(self) -> None:
        super().__init__()
        self.redis.flushall()
        self.expected: dict[str, Expected] = {}
        self.admit()
        self.admit()

    def pick(self, which: int) -> tuple[str, Expected]:
        return list(self.expected.items())[-1 - which]

    def held(self, which: int, late: int) -> tuple[Claim, Expected, bool]:
        """A claim on the job, and whether it is the one in force."""
        job_id, job = self.pick(which)
        claimed = Claim(job_id, job.attempt - late, "w", manifest(), 0, 0)
        return claimed, job, job.state is JobState.RUNNING and not late

    @precondition(lambda self: any(job.state.terminal for job in self.expected.values()))
    @rule()
    def admit(self) -> None:
        job_id = f"job{len(self.expected)}"
        assert self.ledger.admit(job_id, manifest()).fresh
        self.expected[job_id] = Expected()

    @rule(which=WHICH)
    def claim(self, which: int) -> None:
        job_id, job = self.pick(which)
        claimed = self.ledger.claim(job_id, "w", operation())
        if job.state is JobState.QUEUED:
            assert isinstance(claimed, Claim)
            job.state, job.attempt, job.lease_over = JobState.RUNNING, job.attempt + 1, False
            job.story.append("started")
            assert claimed.fence == job.attempt
        else:
            assert claimed == Dropped("running" if job.state is JobState.RUNNING else "terminal")

    @rule(which=WHICH, late=LATE)
    def beat(self, which: int, late: int) -> None:
        held, job, owned = self.held(which, late)
        (word,) = self.ledger.beat("w", [(held.job_id, held.fence)], {}).values()
        assert word == (("cancel" if job.cancel else "held") if owned else "lost")
        job.lease_over = job.lease_over and not owned

    @rule(which=WHICH, late=LATE, outcome=st.sampled_from(ENDS))
    def finish(self, which: int, late: int, outcome: Outcome) -> None:
        held, job, owned = self.held(which, late)
        assert finish(self.ledger, held, outcome) is owned
        if owned:
            job.end(JobState.after(outcome))

    @rule(which=WHICH, late=LATE)
    def release(self, which: int, late: int) -> None:
        held, job, owned = self.held(which, late)
        reply = self.ledger.release(held, operation())
        assert reply == (("cancelled" if job.cancel else "released") if owned else "stale")
        if owned and job.cancel:
            job.end(JobState.CANCELLED)
        elif owned:
            job.state = JobState.QUEUED

    @rule(which=WHICH)
    def cancel(self, which: int) -> None:
        job_id, job = self.pick(which)
        reply = self.ledger.cancel(job_id)
        if job.state is JobState.QUEUED:
            assert reply == "cancelled"
            job.end(JobState.CANCELLED)
        elif job.state is JobState.RUNNING:
            assert reply == "requested"
            job.cancel = True
        else:
            assert reply == "terminal"

    @rule(which=WHICH)
    def lose_the_worker(self, which: int) -> None:
        job_id, job = self.pick(which)
        if job.state is JobState.RUNNING:
            expire_lease(self.ledger, self.redis, job_id)
            job.lease_over = True

    @rule()
    def reap(self) -> None:
        expected = {}
        for job_id, job in self.expected.items():
            if job.state is JobState.RUNNING and job.lease_over:
                job.losses += 1
                if job.cancel:
                    expected[job_id] = "cancelled"
                    job.end(JobState.CANCELLED)
                elif job.losses >= LOSS_LIMIT:
                    expected[job_id] = "lost"
                    job.end(JobState.FAILED)
                else:
                    expected[job_id] = "requeued"
                    job.state = JobState.QUEUED
        assert {reaped.job_id: reaped.verdict for reaped in self.ledger.reap()} == expected

    @rule(which=WHICH)
    def run_and_lose(self, which: int) -> None:
        """The longest of the usual ways, in one step so that it happens often."""
        self.claim(which)
        self.lose_the_worker(which)
        self.reap()

    @invariant()
    def the_ledger_agrees(self) -> None:
        for job_id, job in (self.pick(0), self.pick(1)):
            status = self.ledger.status(job_id)
            assert (status.state, status.attempt, status.losses) == (job.state, job.attempt, job.losses)
        running = {id for id, job in self.expected.items() if job.state is JobState.RUNNING}
        waiting = {id for id, job in self.expected.items() if job.state is JobState.QUEUED}
        assert set(self.redis.zrange(self.ledger.keys.leases, 0, -1)) == running
        assert set(self.redis.zrange(self.ledger.keys.waiting, 0, -1)) == waiting

    def teardown(self) -> None:
        for job_id, job in self.expected.items():
            events = events_of(self.ledger, job_id)
            assert [event.type.removeprefix("agent.run.") for event in events] == job.story
            assert sum(event.terminal for event in events) == job.state.terminal
            assert (self.ledger.result(job_id) is not None) is job.state.terminal


@pytest.mark.timeout(300)  # seconds when it passes; a failing example takes a while to be made small
@pytest.mark.parametrize("store", STORES)
def test_every_interleaving_ends_each_job_at_most_once(store: str, redis_url: str) -> None:
    with open_ledger(store, redis_url, ledger={"loss_limit": LOSS_LIMIT}) as (ledger, redis):
        machine = type("Interleavings", (Interleavings,), {"ledger": ledger, "redis": redis})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=100,
                stateful_step_count=25,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow],
            ),
        )
