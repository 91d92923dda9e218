"""Any order of any calls, on time or stale: the ledger does what a few lines of plain Python do."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
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


class Interleavings(RuleBasedStateMachine):
    """Calls of several workers on several jobs, in any order; old claims stay in use on purpose."""

    ledger: Ledger
    redis: Redis
    jobs = Bundle("jobs")
    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.expected: dict[str, Expected] = {}

    @initialize()
    def start_empty(self) -> None:
        self.redis.flushall()

    @rule(target=jobs)
    def admit(self) -> str:
        job_id = f"job{len(self.expected)}"
        assert self.ledger.admit(job_id, manifest()).fresh
        self.expected[job_id] = Expected()
        return job_id

    @rule(target=claims, job_id=jobs)
    def claim(self, job_id: str) -> Claim:
        job = self.expected[job_id]
        claimed = self.ledger.claim(job_id, "w", operation())
        if job.state is JobState.QUEUED:
            assert isinstance(claimed, Claim)
            job.state, job.attempt, job.lease_over = JobState.RUNNING, job.attempt + 1, False
            job.story.append("started")
            assert claimed.fence == job.attempt
            return claimed
        assert claimed == Dropped("running" if job.state is JobState.RUNNING else "terminal")
        return Claim(job_id, job.attempt, "w", manifest(), 0, 0)  # whoever forges the fence in force holds it

    def owns(self, held: Claim) -> bool:
        job = self.expected[held.job_id]
        return job.state is JobState.RUNNING and job.attempt == held.fence

    @rule(held=claims)
    def beat(self, held: Claim) -> None:
        job = self.expected[held.job_id]
        (word,) = self.ledger.beat("w", [(held.job_id, held.fence)], {}).values()
        if self.owns(held):
            job.lease_over = False
            assert word == ("cancel" if job.cancel else "held")
        else:
            assert word == "lost"

    @rule(held=claims, outcome=st.sampled_from(ENDS))
    def finish(self, held: Claim, outcome: Outcome) -> None:
        owned = self.owns(held)
        assert finish(self.ledger, held, outcome) is owned
        if owned:
            self.expected[held.job_id].end(JobState.after(outcome))

    @rule(held=consumes(claims))
    def release(self, held: Claim) -> None:
        job = self.expected[held.job_id]
        reply = self.ledger.release(held, operation())
        if not self.owns(held):
            assert reply == "stale"
        elif job.cancel:
            assert reply == "cancelled"
            job.end(JobState.CANCELLED)
        else:
            assert reply == "released"
            job.state = JobState.QUEUED

    @rule(job_id=jobs)
    def cancel(self, job_id: str) -> None:
        job = self.expected[job_id]
        reply = self.ledger.cancel(job_id)
        if job.state is JobState.QUEUED:
            assert reply == "cancelled"
            job.end(JobState.CANCELLED)
        elif job.state is JobState.RUNNING:
            assert reply == "requested"
            job.cancel = True
        else:
            assert reply == "terminal"

    @rule(job_id=jobs)
    def lose_the_worker(self, job_id: str) -> None:
        job = self.expected[job_id]
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

    @invariant()
    def the_ledger_agrees(self) -> None:
        for job_id, job in self.expected.items():
            status = self.ledger.status(job_id)
            assert (status.state, status.attempt, status.losses) == (job.state, job.attempt, job.losses)
            assert (self.ledger.result(job_id) is not None) is job.state.terminal
        running = {id for id, job in self.expected.items() if job.state is JobState.RUNNING}
        waiting = {id for id, job in self.expected.items() if job.state is JobState.QUEUED}
        if self.expected:
            assert set(self.redis.zrange(self.ledger.keys.leases, 0, -1)) == running
            assert set(self.redis.zrange(self.ledger.keys.waiting, 0, -1)) == waiting

    def teardown(self) -> None:
        for job_id, job in self.expected.items():
            events = events_of(self.ledger, job_id)
            assert [event.type.removeprefix("agent.run.") for event in events] == job.story
            assert sum(event.terminal for event in events) == job.state.terminal


@pytest.mark.parametrize("store", STORES)
def test_every_interleaving_ends_each_job_at_most_once(store: str, redis_url: str) -> None:
    with open_ledger(store, redis_url, ledger={"loss_limit": LOSS_LIMIT}) as (ledger, redis):
        machine = type("Interleavings", (Interleavings,), {"ledger": ledger, "redis": redis})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=25 if store == "redis" else 15,
                stateful_step_count=25,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow],
            ),
        )
