"""Any order of any calls, on time or stale: the ledger does what a page of plain Python does.

Settings: SEED to repeat a run, EXAMPLES (100) for a longer one.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    get_state_machine_test,
    invariant,
    precondition,
    rule,
)
from redis import Redis

from cellblock import JobState, Outcome
from cellblock.ledger import Claim, Dropped, Ledger
from ledger.kit import (
    STORES,
    be_late,
    events_of,
    expire_lease,
    manifest,
    open_ledger,
    operation,
    result_of,
)

LOSS_LIMIT = 2
FAULT_RETRIES = 1
SLOTS = 1
RULES = {
    "loss_limit": LOSS_LIMIT,
    "fault_retries": FAULT_RETRIES,
    "retry_backoff_s": 60,
    "tenant_slots": SLOTS,
}
ENDS = [Outcome.OK, Outcome.MEMORY, Outcome.CANCELLED, Outcome.SANDBOX_ERROR]


@dataclass
class Expected:
    """What a job is, by the rules of ARCHITECTURE.md."""

    state: JobState = JobState.QUEUED
    attempt: int = 0
    losses: int = 0
    faults: int = 0
    cancel: bool = False
    lease_over: bool = False
    kept: bool = False  #: promoted: a slot waits for it
    adrift: bool = False  #: promoted, and its slot went to another before it was claimed
    delayed: bool = False
    dead: bool = False
    story: list[str] = field(default_factory=lambda: ["queued"])

    @property
    def in_line(self) -> bool:
        return self.state is JobState.PARKED and not (self.kept or self.adrift)

    def end(self, state: JobState, *, dead: bool = False) -> None:
        self.state, self.dead = state, dead
        self.kept = self.delayed = self.adrift = False
        self.story.append(state.value)

    def requeue(self, *, delayed: bool = False) -> None:
        self.state, self.delayed = JobState.QUEUED, delayed


class Model(dict[str, Expected]):
    """All jobs of one tenant, in the order of their admission."""

    def parked(self) -> list[Expected]:
        return [job for job in self.values() if job.in_line]

    def taken(self) -> int:
        return sum(job.state is JobState.RUNNING or job.kept for job in self.values())

    def promote(self) -> None:
        while self.parked() and self.taken() < SLOTS:
            self.parked()[0].kept = True

    def claim(self, job: Expected) -> str:
        """What becomes of a delivery."""
        if job.state is JobState.RUNNING:
            return "running"
        if job.state.terminal:
            return "terminal"
        if job.delayed:
            return "delayed"
        if not job.kept and (self.parked() or self.taken() >= SLOTS):
            job.state, job.adrift = JobState.PARKED, False
            self.promote()
            return "parked"
        job.state, job.attempt = JobState.RUNNING, job.attempt + 1
        job.kept = job.adrift = job.lease_over = False
        job.story.append("started")
        return "claimed"


#: Which of the two youngest jobs, and how many attempts too late the caller is.
WHICH = st.sampled_from([0, 0, 1])
LATE = st.sampled_from([0, 0, 1])


class Interleavings(RuleBasedStateMachine):
    """Calls of several workers on jobs of one tenant, in any order, on time or one attempt too late."""

    ledger: Ledger
    redis: Redis
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.redis.flushall()
        self.model = Model()
        self.outage = False  #: no reaper has ticked for longer than a lease
        self.ledger.tick()
        self.admit()
        self.admit()

    def pick(self, which: int) -> tuple[str, Expected]:
        return list(self.model.items())[-1 - which]

    def held(self, which: int, late: int) -> tuple[Claim, Expected, bool]:
        """A claim on the job, and whether it is the one in force."""
        job_id, job = self.pick(which)
        claimed = Claim(job_id, max(0, job.attempt - late), "w", manifest(), 0, 0)
        return claimed, job, job.state is JobState.RUNNING and claimed.fence == job.attempt

    @precondition(lambda self: any(job.state.terminal for job in self.model.values()))
    @rule()
    def admit(self) -> None:
        job_id = f"job{len(self.model):04}"
        assert self.ledger.admit(job_id, manifest()).fresh
        self.model[job_id] = Expected()

    @rule(which=WHICH)
    def claim(self, which: int) -> None:
        job_id, job = self.pick(which)
        claimed = self.ledger.claim(job_id, "w", operation())
        word = self.model.claim(job)
        if isinstance(claimed, Dropped):
            assert claimed.why == word
        else:
            assert (word, claimed.fence) == ("claimed", job.attempt)

    @rule(which=WHICH, late=LATE)
    def beat(self, which: int, late: int) -> None:
        held, job, owned = self.held(which, late)
        (word,) = self.ledger.beat("w", [(held.job_id, held.fence)], {}).values()
        assert word == (("cancel" if job.cancel else "held") if owned else "lost")
        job.lease_over = job.lease_over and not owned

    @rule(which=WHICH, late=LATE, outcome=st.sampled_from(ENDS))
    def finish(self, which: int, late: int, outcome: Outcome) -> None:
        held, job, owned = self.held(which, late)
        word = self.ledger.finish(held, result_of(held, outcome), operation()).word
        if not owned:
            assert word == "stale"
            return
        fault = outcome is Outcome.SANDBOX_ERROR
        job.faults += fault and not job.cancel
        if fault and not job.cancel and job.faults <= FAULT_RETRIES:
            assert word == "retried"
            job.requeue(delayed=True)
            job.story.append("retried")
        else:
            assert word == "finished"
            job.end(
                JobState.CANCELLED if fault and job.cancel else JobState.after(outcome),
                dead=fault and not job.cancel,
            )
        self.model.promote()

    @rule(which=WHICH, late=LATE)
    def release(self, which: int, late: int) -> None:
        held, job, owned = self.held(which, late)
        word = self.ledger.release(held, operation()).word
        assert word == (("cancelled" if job.cancel else "released") if owned else "stale")
        if owned and job.cancel:
            job.end(JobState.CANCELLED)
        elif owned:
            job.requeue()
            job.story.append("retried")
        self.model.promote()

    @rule(which=WHICH)
    def cancel(self, which: int) -> None:
        job_id, job = self.pick(which)
        word = self.ledger.cancel(job_id).word
        if job.state is JobState.RUNNING:
            assert word == "requested"
            job.cancel = True
        elif job.state.terminal:
            assert word == "terminal"
        else:
            assert word == "cancelled"
            job.end(JobState.CANCELLED)
            self.model.promote()

    @rule(which=WHICH)
    def end_pause(self, which: int) -> None:
        job_id, job = self.pick(which)
        if job.delayed:
            self.redis.zadd(self.ledger.keys.delayed, {job_id: 1}, xx=True)
            assert [wake.job_id for wake in self.ledger.wake_delayed()] == [job_id]
            job.delayed = False

    @rule(which=WHICH)
    def let_it_wait_for_too_long(self, which: int) -> None:
        job_id, job = self.pick(which)
        if job.state in {JobState.QUEUED, JobState.PARKED}:
            be_late(self.ledger, self.redis, job_id)
            assert self.ledger.claim(job_id, "w", operation()) == Dropped(
                "delayed" if job.delayed else "late"
            )
            assert [done.job_id for done in self.ledger.expire()] == [job_id]
            job.end(JobState.REJECTED)
            self.model.promote()

    @rule(which=WHICH)
    def forget_a_promotion(self, which: int) -> None:
        job_id, job = self.pick(which)
        if job.kept and self.model.parked():
            self.redis.zadd(self.ledger.keys.slots("default"), {job_id: 1}, xx=True)
            job.kept, job.adrift = False, True
            self.model.promote()
            (promoted,) = self.ledger.promote_parked()
            assert self.model[promoted.job_id].kept

    @rule(which=WHICH)
    def retry_dead(self, which: int) -> None:
        job_id, job = self.pick(which)
        word = self.ledger.retry_dead(job_id, operation()).word
        assert word == ("retried" if job.dead else "alive")
        if job.dead:
            job.requeue()
            job.losses, job.faults, job.cancel, job.dead = 0, 0, False, False
            job.story.append("queued")

    @rule(which=WHICH)
    def lose_the_worker(self, which: int) -> None:
        job_id, job = self.pick(which)
        if job.state is JobState.RUNNING:
            expire_lease(self.ledger, self.redis, job_id)
            job.lease_over = True

    @rule()
    def reap(self) -> None:
        expected = {}
        for job_id, job in self.model.items():
            if job.state is JobState.RUNNING and job.lease_over and not self.outage:
                job.losses += 1
                if job.cancel:
                    expected[job_id] = "cancelled"
                    job.end(JobState.CANCELLED)
                elif job.losses >= LOSS_LIMIT:
                    expected[job_id] = "lost"
                    job.end(JobState.FAILED, dead=True)
                else:
                    expected[job_id] = "requeued"
                    job.requeue()
                    job.story.append("retried")
                self.model.promote()
        assert {reaped.job_id: reaped.word for reaped in self.ledger.reap()} == expected

    @rule()
    def go_without_reapers(self) -> None:
        self.redis.set(self.ledger.keys.ticked, 1)
        self.outage = True

    @rule()
    def tick(self) -> None:
        running = [job for job in self.model.values() if job.state is JobState.RUNNING]
        assert self.ledger.tick() == (len(running) if self.outage else None)
        for job in running:
            job.lease_over = job.lease_over and not self.outage
        self.outage = False

    @rule()
    def look_for_missed_promotions(self) -> None:
        assert self.ledger.promote_parked() == []

    @rule(which=WHICH)
    def run_and_lose(self, which: int) -> None:
        """The longest of the usual ways, in one step so that it happens often."""
        self.claim(which)
        self.lose_the_worker(which)
        self.reap()

    @invariant()
    def the_ledger_agrees(self) -> None:
        Interleavings.steps += 1
        for job_id, job in (self.pick(0), self.pick(1)):
            status = self.ledger.status(job_id)
            assert (status.state, status.attempt, status.losses) == (job.state, job.attempt, job.losses)
        jobs, keys = self.model, self.ledger.keys
        waiting = {id for id, job in jobs.items() if job.state is JobState.QUEUED and not job.delayed}
        indices = {
            keys.leases: {id for id, job in jobs.items() if job.state is JobState.RUNNING},
            keys.waiting: waiting | {id for id, job in jobs.items() if job.kept or job.adrift},
            keys.delayed: {id for id, job in jobs.items() if job.delayed},
            keys.dead: {id for id, job in jobs.items() if job.dead},
            keys.deadlines: {
                id for id, job in jobs.items() if job.state in {JobState.QUEUED, JobState.PARKED}
            },
            keys.slots("default"): {
                id for id, job in jobs.items() if job.state is JobState.RUNNING or job.kept
            },
        }
        assert {key: set(self.redis.zrange(key, 0, -1)) for key in indices} == indices
        assert len(indices[keys.slots("default")]) <= SLOTS
        parked = [f"normal {id}" for id, job in jobs.items() if job.in_line]
        assert self.redis.zrange(keys.parked("default"), 0, -1) == parked

    def teardown(self) -> None:
        for job_id, job in self.model.items():
            events = events_of(self.ledger, job_id)
            assert [event.type.removeprefix("agent.run.") for event in events] == job.story
            accepted = job.story.count("queued")
            assert sum(event.terminal for event in events) == accepted - (not job.state.terminal)
            assert (self.ledger.result(job_id) is not None) is job.state.terminal


@pytest.mark.timeout(300)  # seconds when it passes; a failing example takes a while to be made small
@pytest.mark.parametrize("store", STORES)
def test_every_interleaving_ends_each_job_at_most_once(store: str, redis_url: str) -> None:
    with open_ledger(store, redis_url, ledger=RULES) as (ledger, redis):
        machine = type("Interleavings", (Interleavings,), {"ledger": ledger, "redis": redis})
        rules = settings(
            max_examples=int(os.environ.get("EXAMPLES", "100")),
            stateful_step_count=30,
            deadline=None,
            database=None,
            suppress_health_check=[HealthCheck.too_slow],
        )
        number = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 30)))
        print(f"SEED={number}")
        Interleavings.steps = 0
        seed(number)(get_state_machine_test(machine, settings=rules))()
        print(f"{Interleavings.steps} steps")
