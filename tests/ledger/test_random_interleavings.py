"""Any order of any calls, on time or stale: the ledger does what a page of plain Python does.

Settings: SEED to repeat a run, EXAMPLES (60; a quarter on fakeredis) for a longer one.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from unittest.mock import Mock, patch

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
from cellblock.admission.gates import Gates
from cellblock.admission.resolve import BlobRef
from cellblock.ledger import Admission, Candidate, Claim, Dropped, Ledger
from ledger.kit import (
    EXAMPLES,
    EXAMPLES_ON,
    OPEN,
    STORES,
    be_late,
    events_of,
    expire_lease,
    lead,
    manifest,
    open_ledger,
    operation,
    result_of,
)

pytestmark = pytest.mark.no_rerun

LOSS_LIMIT = 2
#: As in scripts/prelude/constants.lua: what a running job's result is counted as.
LARGE_BYTES = 32768
FAULT_RETRIES = 1
SLOTS = 1
WIDE = replace(OPEN, plan="wide", weight=2, parallel=2)
#: Two plans: "one" has none.
TENANTS: dict[str, Gates | None] = {"one": None, "two": WIDE, "three": WIDE}
LIVE_MAX = 6
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

    tenant: str
    place: tuple[int, int]  #: by priority, then by when it came
    state: JobState = JobState.QUEUED
    attempt: int = 0
    losses: int = 0
    faults: int = 0
    cancel: bool = False
    lease_over: bool = False
    delayed: bool = False
    uploading: bool = False  #: delayed until its parts are in the blob store
    late: bool = False
    passed_over: bool = False  #: late, and found so by a claim
    dead: bool = False
    story: list[str] = field(default_factory=lambda: ["queued"])

    @property
    def ready(self) -> bool:
        return self.state is JobState.QUEUED and not (self.delayed or self.passed_over)

    def end(self, state: JobState, *, dead: bool = False) -> None:
        self.state, self.dead = state, dead
        self.delayed = False
        self.story.append(state.value)

    def requeue(self, *, delayed: bool = False) -> None:
        self.state, self.delayed = JobState.QUEUED, delayed


def plan_of(tenant: str) -> str:
    gates = TENANTS[tenant]
    return gates.plan if gates else ""


class Model(dict[str, Expected]):
    """All jobs in the order of their admission, and whose turn it is."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: dict[str, int] = {}
        self.passes = {"": 0, "wide": 0}
        self.latest_pass = 0
        self.claims = self.came = 0

    def live(self) -> int:
        return sum(not job.state.terminal for job in self.values())

    def line(self, tenant: str) -> list[str]:
        ready = [id for id, job in self.items() if job.tenant == tenant and job.ready]
        return sorted(ready, key=lambda id: self[id].place)

    def able(self, tenant: str) -> int:
        running = sum(job.tenant == tenant and job.state is JobState.RUNNING for job in self.values())
        gates = TENANTS[tenant]
        return min(len(self.line(tenant)), (gates.parallel if gates else SLOTS) - running)

    def refresh_turns(self) -> None:
        """Who has a job and a slot for it stands in the ring; newcomers before the one served last."""
        for tenant in TENANTS:
            if not self.able(tenant):
                self.turns.pop(tenant, None)
            elif tenant not in self.turns:
                plan = plan_of(tenant)
                if plan not in map(plan_of, self.turns):
                    self.passes[plan] = max(self.passes[plan], self.latest_pass)
                self.came += 1
                self.turns[tenant] = 1024 * self.claims + self.came

    def claim(self) -> str | None:
        """Which job a delivery starts."""
        self.refresh_turns()
        while self.turns:
            plan = min(map(plan_of, self.turns), key=lambda name: (self.passes[name], name))
            mates = [name for name in self.turns if plan_of(name) == plan]
            tenant = min(mates, key=lambda name: (self.turns[name], name))
            job_id = self.line(tenant)[0]
            job = self[job_id]
            if job.late:
                job.passed_over = True
                self.refresh_turns()
                continue
            job.state, job.attempt = JobState.RUNNING, job.attempt + 1
            job.lease_over = False
            job.story.append("started")
            self.claims += 1
            self.latest_pass = max(self.latest_pass, self.passes[plan])
            self.passes[plan] += 5000 if plan else 10000
            self.turns[tenant], self.came = 1024 * (self.claims + 1), 0
            self.refresh_turns()
            return job_id
        return None

    def why_not(self, job: Expected) -> str:
        if job.state.terminal:
            return "terminal"
        if job.state is JobState.RUNNING:
            return "running"
        if job.delayed:
            return "delayed"
        return "parked" if job.ready else "late"


#: Which of the youngest jobs, and how many attempts too late the caller is.
WHICH = st.sampled_from(range(LIVE_MAX))
LATE = st.sampled_from([0, 0, 1])


class Interleavings(RuleBasedStateMachine):
    """Calls of several workers on jobs of three tenants, in any order, on time or one attempt too late.

    ``messages``: those on their way. There may be more than jobs that could be claimed, never fewer.
    """

    ledger: Ledger
    redis: Redis
    steps = 0
    numbers = 0

    def __init__(self) -> None:
        super().__init__()
        self.redis.flushall()
        self.model = Model()
        self.outage = False  #: no reaper has ticked for longer than a lease
        self.messages = 0
        self.candidates: dict[str, Candidate] = {}
        self.long: set[str] = set()
        self.ledger._store.blobs = Mock()
        self.ledger.upkeep.tick("w")
        for tenant in (*TENANTS, *TENANTS):
            self.admit(tenant, "normal")

    def pick(self, which: int) -> tuple[str, Expected]:
        return list(self.model.items())[-1 - which]

    def held(self, which: int, late: int) -> tuple[Claim, Expected, bool]:
        """A claim on the job, and whether it is the one in force."""
        job_id, job = self.pick(which)
        claimed = Claim(job_id, max(0, job.attempt - late), "w", manifest(tenant=job.tenant), 0, 0)
        return claimed, job, job.state is JobState.RUNNING and claimed.fence == job.attempt

    def then(self, word: str, wake: Sequence[str]) -> str:
        """What a call said, and the messages it asked for."""
        self.messages += len(wake)
        return word

    @precondition(lambda self: self.model.live() < LIVE_MAX)
    @rule(
        tenant=st.sampled_from(sorted(TENANTS)), priority=st.sampled_from(["normal", "normal", "high", "low"])
    )
    def admit(self, tenant: str, priority: str) -> None:
        job_id = f"job{len(self.model):04}"
        admitted = self.ledger.admissions.admit(
            job_id, manifest(tenant=tenant, priority=priority), gates=TENANTS[tenant]
        )
        self.then("admitted", admitted.wake)
        place = (["high", "normal", "low"].index(priority), self.number())
        self.model[job_id] = Expected(tenant, place)

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    @precondition(lambda self: self.model.live() < LIVE_MAX)
    @rule(tenant=st.sampled_from(sorted(TENANTS)))
    def admit_with_long_parts(self, tenant: str) -> None:
        """It waits, as after a failure, until its caller has put its parts into the blob store."""
        job_id = f"job{len(self.model):04}"
        name = f"{len(self.model):08x}/{7 * 'a'}{64 * '0'}"
        whole = manifest(tenant=tenant)
        long = whole.model_copy(update={"blobs": {"stdin": BlobRef(name=name, size_bytes=1000)}})
        candidate = Candidate(job_id, long, gates=TENANTS[tenant], uploads={name: b"long"})
        (admitted,) = self.ledger.admissions.admit_many([candidate])
        assert isinstance(admitted, Admission)
        self.then("admitted", admitted.wake)
        self.model[job_id] = Expected(tenant, (1, self.number()), delayed=True, uploading=True)
        self.candidates[job_id] = candidate
        self.long.add(job_id)

    @rule(which=WHICH)
    def upload(self, which: int) -> None:
        job_id, job = self.pick(which)
        if job_id in self.candidates:
            before = self.model.able(job.tenant)
            job.delayed = job.delayed and job.state is not JobState.QUEUED
            job.uploading = False
            wake = self.ledger.admissions.upload(self.candidates[job_id])
            assert len(wake) >= self.model.able(job.tenant) - before
            self.then("uploaded", wake)
            del self.candidates[job_id]

    @rule(which=WHICH)
    def fetch(self, which: int) -> None:
        self.ledger.note_fetched(self.pick(which)[0])

    @rule(which=WHICH, copy=st.booleans())
    def deliver(self, which: int, copy: bool) -> None:
        job_id, job = self.pick(which)
        if not copy:
            self.messages = max(0, self.messages - 1)
        claimed = self.ledger.claims.claim_next(message=job_id, worker="w", operation=operation())
        expected = self.model.claim()
        if isinstance(claimed, Dropped):
            assert expected is None
            assert claimed.why == self.model.why_not(job)
        else:
            assert (claimed.job_id, claimed.fence) == (expected, self.model[claimed.job_id].attempt)

    @rule(which=WHICH, late=LATE)
    def beat(self, which: int, late: int) -> None:
        held, job, owned = self.held(which, late)
        ((word, _),) = self.ledger.beat("w", [(held.job_id, held.fence)], {}).values()
        assert word == (("cancel" if job.cancel else "held") if owned else "lost")
        job.lease_over = job.lease_over and not owned

    @rule(which=WHICH, late=LATE, outcome=st.sampled_from(ENDS))
    def finish(self, which: int, late: int, outcome: Outcome) -> None:
        held, job, owned = self.held(which, late)
        done = self.ledger.finish(held, result_of(held, outcome), operation())
        word = self.then(done.word, done.wake)
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

    @rule(which=WHICH, late=LATE, ran=st.booleans())
    def release(self, which: int, late: int, ran: bool) -> None:
        held, job, owned = self.held(which, late)
        done = self.ledger.release(held, operation(), ran=ran)
        word = self.then(done.word, done.wake)
        assert word == (("cancelled" if job.cancel else "released") if owned else "stale")
        if owned and job.cancel:
            job.end(JobState.CANCELLED)
        elif owned:
            job.requeue()
            job.story.append("retried")
            job.place = job.place if ran else (job.place[0], self.number())

    @rule(which=WHICH)
    def cancel(self, which: int) -> None:
        job_id, job = self.pick(which)
        done = self.ledger.cancel(job_id)
        word = self.then(done.word, done.wake)
        if job.state is JobState.RUNNING:
            assert word == "requested"
            job.cancel = True
        elif job.state.terminal:
            assert word == "terminal"
        else:
            assert word == "cancelled"
            job.end(JobState.CANCELLED)

    @rule(which=WHICH)
    def end_pause(self, which: int) -> None:
        job_id, job = self.pick(which)
        if job.delayed:
            self.redis.zadd(self.ledger.keys.delayed, {job_id: 1}, xx=True)
            before = self.model.able(job.tenant)
            job.delayed = False
            if job.uploading:
                job.end(JobState.CANCELLED)
            wake = self.ledger.upkeep.wake_delayed()
            assert len(wake) == self.model.able(job.tenant) - before
            self.then("woken", wake)

    @rule(which=WHICH)
    def let_it_wait_for_too_long(self, which: int) -> None:
        job_id, job = self.pick(which)
        if job.state is JobState.QUEUED:
            be_late(self.ledger, self.redis, job_id)
            job.late = True

    @rule()
    def expire(self) -> None:
        waiting = {id: job for id, job in self.model.items() if job.state is JobState.QUEUED}
        late = {id for id, job in waiting.items() if job.late and not job.uploading}
        ended = list(self.ledger.upkeep.expire())
        assert {done.job_id for done in ended} == late
        for done in ended:
            self.then(done.word, done.wake)
            self.model[done.job_id].end(JobState.REJECTED)
            self.model.refresh_turns()

    @rule(which=WHICH)
    def retry_dead(self, which: int) -> None:
        job_id, job = self.pick(which)
        done = self.ledger.retry_dead(job_id, operation())
        word = self.then(done.word, done.wake)
        assert word == ("retried" if job.dead else "alive")
        if job.dead:
            job.requeue()
            job.losses, job.faults, job.cancel, job.dead = 0, 0, False, False
            job.place = (job.place[0], self.number())
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
                self.model.refresh_turns()  # one by one: the first to be judged comes first
        reaped = list(self.ledger.upkeep.reap())
        assert {done.job_id: self.then(done.word, done.wake) for done in reaped} == expected

    @rule()
    def go_without_reapers(self) -> None:
        self.redis.hset(self.ledger.keys.upkeep, "ticked_ms", 1)
        self.outage = True

    @rule()
    def tick(self) -> None:
        running = [job for job in self.model.values() if job.state is JobState.RUNNING]
        assert lead(self.ledger).extended == (len(running) if self.outage else None)
        for job in running:
            job.lease_over = job.lease_over and not self.outage
        self.outage = False

    @rule()
    def look_at_parked(self) -> None:
        assert self.ledger.upkeep.look_at_parked() == []

    @rule(which=WHICH)
    def run_and_lose(self, which: int) -> None:
        """The longest of the usual ways, in one step so that it happens often."""
        self.deliver(which, False)
        self.lose_the_worker(which)
        self.reap()

    @invariant()
    def the_ledger_agrees(self) -> None:
        Interleavings.steps += 1
        self.model.refresh_turns()
        jobs, keys, lines = self.model, self.ledger.keys, {name: self.model.line(name) for name in TENANTS}
        for job_id, job in map(self.pick, range(LIVE_MAX)):
            status = self.ledger.reads.status(job_id)
            parked = job.ready and not jobs.able(job.tenant)
            state = JobState.PARKED if parked else job.state
            assert (status.state, status.attempt, status.losses) == (state, job.attempt, job.losses)
        running = {id for id, job in jobs.items() if job.state is JobState.RUNNING}
        indices = {
            keys.leases: running,
            keys.delayed: {id for id, job in jobs.items() if job.delayed},
            keys.dead: {id for id, job in jobs.items() if job.dead},
            keys.deadlines: {id for id, job in jobs.items() if job.state is JobState.QUEUED},
        }
        assert {key: set(self.redis.zrange(key, 0, -1)) for key in indices} == indices
        for tenant, line in lines.items():
            assert self.redis.zrange(keys.ready(tenant), 0, -1) == line
            slots = self.redis.smembers(keys.slots(tenant))
            assert slots == {id for id in running if jobs[id].tenant == tenant}
            assert len(slots) <= (2 if TENANTS[tenant] else SLOTS)
        assert set(self.redis.zrange(keys.lane_turns, 0, -1)) == set(jobs.turns)
        assert self.redis.hgetall(keys.lane_heads) == {tenant: lines[tenant][0] for tenant in jobs.turns}
        assert self.redis.smembers(keys.parked) == {
            tenant for tenant, line in lines.items() if line and not jobs.able(tenant)
        }
        for tenant in TENANTS:
            self.bytes_are_counted(tenant)
        assert self.messages >= sum(map(jobs.able, TENANTS)), "somebody waits, and no message is on its way"

    def bytes_are_counted(self, tenant: str) -> None:
        """What a tenant holds is the sum of what its jobs take."""
        held = kept = 0
        for job_id, job in self.model.items():
            if job.tenant == tenant:
                record = self.redis.hgetall(self.ledger.keys.job(job_id))
                kept += int(record["kept"]) if job.state.terminal else 0
                held += 0 if job.state.terminal else int(record["bytes"])
                held += LARGE_BYTES if job.state is JobState.RUNNING else 0
        found = self.redis.hmget(self.ledger.keys.account(tenant), "held_bytes", "kept_bytes")
        assert [int(value or 0) for value in found] == [held, kept]
        stored = [self.model[id] for id in self.long if self.model[id].tenant == tenant]
        stored_bytes = 1000 * sum(job.dead or not job.state.terminal for job in stored)
        account = self.redis.hmget(self.ledger.keys.account(tenant), "blob_bytes", "freed_blob_bytes")
        assert [int(value or 0) for value in account] == [stored_bytes, self.freed_bytes(tenant)]
        ended = {id for id, job in self.model.items() if job.tenant == tenant and job.state.terminal}
        lists = self.redis.keys(self.ledger.keys.prefix + f":kept:{tenant}:*")
        entries = [str(entry) for name in lists for entry in self.redis.lrange(name, 0, -1)]
        assert sorted(entry.split(" ")[0] for entry in entries) == sorted(ended)
        assert sum(int(entry.split(" ")[1]) for entry in entries) == kept

    def freed_bytes(self, tenant: str) -> int:
        """What the tenant's entries in the list of freed blobs add up to."""
        entries = [str(entry).split(" ") for entry in self.redis.lrange(self.ledger.keys.freed_blobs, 0, -1)]
        return sum(int(size) for _, size, _, whose in entries if whose == tenant)

    @rule()
    def remove_freed_blobs(self) -> None:
        """Injected: they were freed long ago."""
        with patch("cellblock.ledger.freed_blobs._STAY_MS", -1):
            freed = self.ledger.freed_blobs.due(2)
        if freed:
            self.ledger.freed_blobs.removed(freed)

    def teardown(self) -> None:
        for job_id, job in self.model.items():
            events = events_of(self.ledger, job_id)
            assert [event.type.removeprefix("agent.run.") for event in events] == job.story
            accepted = job.story.count("queued")
            assert sum(event.terminal for event in events) == accepted - (not job.state.terminal)
            assert (self.ledger.reads.result(job_id) is not None) is job.state.terminal


@pytest.mark.timeout(300 + EXAMPLES)  # a failing example takes a while to be made small
@pytest.mark.parametrize("store", STORES)
def test_every_interleaving_ends_each_job_at_most_once(store: str, redis_url: str) -> None:
    with open_ledger(store, redis_url, ledger=RULES) as (ledger, redis):
        machine = type("Interleavings", (Interleavings,), {"ledger": ledger, "redis": redis})
        rules = settings(
            max_examples=EXAMPLES_ON[store],
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
