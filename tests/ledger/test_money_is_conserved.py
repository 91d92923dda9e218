"""Any order of any calls over several tenants: every micro is held, spent or given back, no limit is passed.

Settings: SEED to repeat a run, EXAMPLES (60; a quarter on fakeredis) for a longer one.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, get_state_machine_test, invariant, rule
from redis import Redis

from cellblock import BudgetExceeded, JobState, Outcome, PolicyDenied, RateLimited
from cellblock.ledger import Claim, Ledger
from ledger.kit import (
    EXAMPLES,
    EXAMPLES_ON,
    OPEN,
    STORES,
    be_late,
    expire_lease,
    manifest,
    open_ledger,
    operation,
    result_of,
)

pytestmark = pytest.mark.no_rerun

TENANTS = ("one", "two", "three")
BUDGET = 1000
GATES = replace(
    OPEN, parallel=2, emission_us=1_000_000, burst=30, runs_per_day=25, queue_depth=5, budget_micros=BUDGET
)
ENDS = [Outcome.OK, Outcome.EXIT, Outcome.SANDBOX_ERROR, Outcome.CANCELLED]


@dataclass
class Held:
    """What is known of the money of one job."""

    tenant: str
    reserve: int  #: of what was asked, less what was lent
    lender: Held | None = None
    parent_id: str = ""
    live: bool = True
    charged: int = 0
    claim: Claim | None = None


class Money(RuleBasedStateMachine):
    """Calls as they come; what each job costs follows from the ledger's words."""

    ledger: Ledger
    redis: Redis
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.redis.flushall()
        self.jobs: dict[str, Held] = {}
        self.runs = dict.fromkeys(TENANTS, 0)
        self.spent = dict.fromkeys(TENANTS, 0)

    def pick(self, which: int) -> tuple[str, Held] | None:
        return list(self.jobs.items())[-1 - which % len(self.jobs)] if self.jobs else None

    def held_by(self, tenant: str) -> int:
        return sum(job.reserve for job in self.jobs.values() if job.live and job.tenant == tenant)

    def settle(self, job: Held, cost: int) -> None:
        taken = min(job.reserve, job.charged + cost)
        self.spent[job.tenant] += taken
        if job.lender is not None and job.lender.live:
            job.lender.reserve += job.reserve - taken
        job.live, job.charged, job.lender = False, 0, None
        for nested in self.jobs.values():
            if nested.lender is job:
                nested.lender = (
                    None  # what it does not spend is its own from now on, whatever becomes of the job
                )

    @rule(tenant=st.sampled_from(TENANTS), reserve=st.integers(0, 400), retries=st.integers(0, 2))
    def admit(self, tenant: str, reserve: int, retries: int) -> None:
        job_id = f"job{len(self.jobs):04}"
        gates = replace(GATES, reserve_micros=reserve)
        fits = self.held_by(tenant) + self.spent[tenant] + reserve <= BUDGET
        try:
            self.ledger.admissions.admit(job_id, manifest(tenant=tenant, retries=retries), gates=gates)
        except BudgetExceeded:
            assert not fits
        except RateLimited:
            waiting = self.redis.zcard(self.ledger.keys.line(tenant))
            assert waiting == GATES.queue_depth or self.runs[tenant] == GATES.runs_per_day
        else:
            assert fits
            self.jobs[job_id] = Held(tenant, reserve)
            self.runs[tenant] += 1

    @rule(which=st.integers(0, 9), reserve=st.integers(0, 300), accrued=st.sampled_from([0, 0, 50]))
    def nest(self, which: int, reserve: int, accrued: int) -> None:
        """A job that another asks for: its money is its parent's."""
        if (picked := self.pick(which)) is None:
            return
        parent_id, parent = picked
        job_id = f"job{len(self.jobs):04}"
        nested = manifest(tenant=parent.tenant).model_copy(update={"parent": parent_id, "depth": 1})
        running = self.ledger.reads.status(parent_id).state is JobState.RUNNING
        fits = running and reserve <= max(0, parent.reserve - parent.charged - accrued)
        try:
            self.ledger.admissions.admit(
                job_id, nested, gates=replace(GATES, reserve_micros=reserve, accrued_micros=accrued)
            )
        except PolicyDenied:
            assert not fits
        except RateLimited:
            assert running
        else:
            assert fits
            self.jobs[job_id] = Held(parent.tenant, reserve, parent, parent_id)
            parent.reserve -= reserve
            self.runs[parent.tenant] += 1

    @rule(which=st.integers(0, 9))
    def claim(self, which: int) -> None:
        if (picked := self.pick(which)) is None:
            return
        ran = {job_id for job_id in self.jobs if self.ledger.reads.status(job_id).state is JobState.RUNNING}
        claimed = self.ledger.claims.claim_next(message=picked[0], worker="w", operation=operation())
        if isinstance(claimed, Claim):
            self.jobs[claimed.job_id].claim = claimed
        for job_id, job in self.jobs.items():
            if job.live and job.parent_id and self.ledger.reads.status(job_id).state is JobState.CANCELLED:
                assert job.parent_id not in ran
                self.settle(job, 0)  # it waited to run in a job that does not run any more

    @rule(
        which=st.integers(0, 9),
        cost=st.integers(0, 500),
        outcome=st.sampled_from(ENDS),
        again=st.booleans(),
    )
    def finish(self, which: int, cost: int, outcome: Outcome, again: bool) -> None:
        picked = self.pick(which)
        if picked is None or picked[1].claim is None:
            return
        job_id, job = picked
        assert job.claim is not None
        result = result_of(job.claim, outcome).model_copy(update={"cost_micros": cost})
        op = operation()
        word = self.ledger.finish(job.claim, result, op).word
        if again:
            self.ledger.finish(job.claim, result, op)
        if word == "retried" and outcome is not Outcome.SANDBOX_ERROR:
            job.charged += cost
        elif word == "finished":
            self.settle(job, 0 if outcome is Outcome.SANDBOX_ERROR else cost)
        self.redis.zadd(self.ledger.keys.delayed, {job_id: 1}, xx=True)
        self.ledger.upkeep.wake_delayed()

    @rule(which=st.integers(0, 1), cost=st.integers(0, 500), outcome=st.sampled_from(ENDS))
    def run_to_the_end(self, which: int, cost: int, outcome: Outcome) -> None:
        """The longest of the usual ways, in one step so that it happens often."""
        for _ in range(3):
            self.claim(which)
            self.finish(which, cost, outcome, again=False)

    @rule(which=st.integers(0, 9))
    def cancel(self, which: int) -> None:
        if (picked := self.pick(which)) is not None and self.ledger.cancel(picked[0]).word == "cancelled":
            self.settle(picked[1], 0)

    @rule(which=st.integers(0, 9))
    def release(self, which: int) -> None:
        picked = self.pick(which)
        if picked is None or picked[1].claim is None:
            return
        if self.ledger.release(picked[1].claim, operation()).word == "cancelled":
            self.settle(picked[1], 0)

    @rule(which=st.integers(0, 9))
    def lose_the_worker(self, which: int) -> None:
        picked = self.pick(which)
        if picked is None or self.ledger.reads.status(picked[0]).state is not JobState.RUNNING:
            return
        expire_lease(self.ledger, self.redis, picked[0])
        for done in self.ledger.upkeep.reap():
            if done.word in {"lost", "cancelled"}:
                self.settle(self.jobs[done.job_id], 0)

    @rule(which=st.integers(0, 9))
    def let_it_wait_for_too_long(self, which: int) -> None:
        picked = self.pick(which)
        if picked is None or self.ledger.reads.status(picked[0]).state not in {
            JobState.QUEUED,
            JobState.PARKED,
        }:
            return
        be_late(self.ledger, self.redis, picked[0])
        for done in self.ledger.upkeep.expire():
            self.settle(self.jobs[done.job_id], 0)

    @rule(which=st.integers(0, 9))
    def retry_dead(self, which: int) -> None:
        if (picked := self.pick(which)) is not None:
            job_id, job = picked
            if self.ledger.retry_dead(job_id, operation()).word == "retried":
                job.live, job.reserve = True, 0  # on the house

    @invariant()
    def the_accounts_agree(self) -> None:
        Money.steps += 1
        for tenant in TENANTS:
            days = self.ledger.figures.usage(tenant)
            found = [(one.runs, one.spent_micros, one.reserved_micros) for one in days] or [(0, 0, 0)]
            assert found == [(self.runs[tenant], self.spent[tenant], self.held_by(tenant))]
            running = [job for job in self.jobs.values() if job.tenant == tenant]
            assert self.redis.scard(self.ledger.keys.slots(tenant)) <= GATES.parallel
            assert len(running) == self.runs[tenant]


@pytest.mark.timeout(300 + EXAMPLES)  # a failing example takes a while to be made small
@pytest.mark.parametrize("store", STORES)
def test_every_micro_is_held_spent_or_given_back(store: str, redis_url: str) -> None:
    rules = {"loss_limit": 2, "fault_retries": 1, "retry_backoff_s": 60}
    with open_ledger(store, redis_url, ledger=rules) as (ledger, redis):
        machine = type("Money", (Money,), {"ledger": ledger, "redis": redis})
        number = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 30)))
        print(f"SEED={number}")
        Money.steps = 0
        rules_of = settings(
            max_examples=EXAMPLES_ON[store],
            stateful_step_count=40,
            deadline=None,
            database=None,
            suppress_health_check=[HealthCheck.too_slow],
        )
        seed(number)(get_state_machine_test(machine, settings=rules_of))()
        print(f"{Money.steps} steps")
