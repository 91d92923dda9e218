"""Every Redis key of the ledger: name, type and life.

=====================================  =======  ====================================================
``<p>:job:<id>``                       hash     the job's record (scripts/prelude/record.lua);
                                                ``job_ttl_s``, then as ``kept`` says
``<p>:spec:<id>``                      string   the manifest (code, stdin); deleted when the job ends,
                                                kept with the record when the fault was ours
``<p>:result:<id>``                    string   the filtered JobResult; as long as the record
``<p>:attempts:<id>``                  list     history of attempts that did not simply end: the last 20
``<p>:delayed``                        zset     queued jobs in a pause, by when it ends (ms)
``<p>:ready:<lane>``                   zset     its jobs that wait to be claimed, by rank: priority, then
                                                admission (µs)
``<p>:slots:<lane>``                   set      its running jobs, and those that have ended or wait again
                                                while nested runs of theirs run on
``<p>:lane_turns``                     zset     lanes with a ready job and a slot for it, by plan, then by
                                                when they were served (scripts/prelude/lanes.lua)
``<p>:lane_heads``                     hash     the first ready job of each of them
``<p>:parked``                         set      lanes with a ready job and no slot
``<p>:plan_shares``                    hash     per plan its number, weight and pass; claims so far
``<p>:leases``                         zset     running jobs, by when their lease runs out (ms)
``<p>:deadlines``                      zset     jobs not running, by when they are rejected (ms)
``<p>:dead``                           zset     jobs that ended through our fault, by when (ms); about
                                                ``dead_kept``, for ``dead_ttl_s``
``<p>:kept:<tenant>:<s>``              list     its ended jobs, in the order of their ends, and their bytes;
                                                they leave after ``s`` seconds (class ``Stay``), sooner
                                                where memory is short (pressure.py). With 0 for ``s``:
                                                "job_id bytes until_ms key" for each that left sooner
``<p>:keepers``                        zset     "tenant s" of such lists, by when the first of it leaves (ms)
``<p>:crowded``                        zset     tenants that were refused for what they keep, by the bytes of
                                                room that a result lacks; 0 for a job, whose bytes are
                                                in the account
``<p>:pressure``                       hash     how full the store is (scripts/prelude/pressure.lua)
``<p>:blobs``                          hash     name of a blob → how many jobs name it
``<p>:freed_blobs``                    list     "ms bytes name tenant" of blobs that no job names any more and
                                                that are still to be removed, by when that was (ms)
``<p>:leader``                         string   who leads the upkeep; a lease
``<p>:upkeep``                         hash     ``epoch``: the fence of that lease; ``ticked_ms``: when a
                                                round last began; ``events_trimmed``: the last event that
                                                was dropped; ``archiver``, ``archive_id``,
                                                ``archive_owes``: archiving.py;
                                                ``op_release``: the last such operation
``<p>:line:<tenant>``                  zset     its jobs not running, by when they are rejected (ms)
``<p>:account:<tenant>``               hash     what its plan allows and what it has used, by day
                                                (scripts/prelude/lanes.lua); 40 days
``<p>:rate:<tenant>``                  string   when its next run is due by its rate (µs); until then
``<p>:idempotency:<n>:<tenant>:<k>``   string   "job_id digest" of an accepted key, and "early" once its
                                                job has left before its time; ``job_ttl_s``
``<p>:worker:<name>``                  string   what a worker last said of itself; three beats
``<p>:workers``                        zset     names of workers, by when that is forgotten (ms)
``<p>:api-keys``                       hash     key id → its tenant, capabilities and digest (api_keys.py)
``<p>:governance``                     hash     "tenant key" → value of overrides set at run time
``<p>:audit``                          stream   who set them, when, before and after; about 100,000
``<p>:schema``                         string   the version of all this
``<p>:store``                          string   "id at_ms": by which the blob store knows this one, and since
                                                when; a backup does not carry it over
``<p>:events``                         stream   one entry per transition (event_retention.py)
``<p>:done:<id>``                      channel  published to when the job has ended
``<p>:control``                        channel  ids of running jobs that were asked to stop
=====================================  =======  ====================================================

A lane is a tenant, or ``tenant/parent`` for the nested runs of one job.
The prefix ``<p>`` holds a hash tag, so all keys of one fleet live in one slot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cellblock_config import LedgerSettings


@dataclass(frozen=True, slots=True)
class JobOwner:
    """The owner of a job: its tenant, and for a nested run also the job that it runs in."""

    tenant: str
    parent: str = ""

    @property
    def lane(self) -> str:
        """The lane where its jobs wait and hold slots: nested runs of a parent have a lane of their own."""
        return f"{self.tenant}/{self.parent}" if self.parent else self.tenant

    @classmethod
    def of_lane(cls, lane: str) -> JobOwner:
        """The owner of a lane; a tenant's name has no slash."""
        tenant, _, parent = lane.partition("/")
        return cls(tenant, parent)

    @classmethod
    def of_record(cls, record: Mapping[str, str]) -> JobOwner:
        """The owner of a job, from its record."""
        return cls(record["tenant"], record.get("parent", ""))


#: The owner for calls that concern no tenant.
NOBODY = JobOwner("-")


@dataclass(frozen=True, slots=True)
class Stay:
    """How long a job stays after its end, in seconds: if it ended well, failed, or is a dead letter."""

    well_s: int
    failed_s: int
    dead_s: int

    @classmethod
    def under(cls, settings: LedgerSettings, plan_ttl_s: int) -> Stay:
        """``plan_ttl_s``: how long the plan keeps results, also failed ones. Without a plan (0) failed jobs
        stay longer, for their callers to find out why. Dead letters stay for the operator."""
        well_s = plan_ttl_s or settings.result_ttl_s
        failed_s = plan_ttl_s or max(settings.result_ttl_s, settings.failed_ttl_s)
        return cls(well_s, failed_s, settings.dead_ttl_s)


#: In place of a stay: the list of idempotency keys of jobs that left early, in the order in which they left.
EARLY_S = 0
#: The stay for scripts that do not end jobs.
NO_STAY = Stay(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Keys:
    """The names of one fleet's keys."""

    prefix: str

    @property
    def delayed(self) -> str:
        return f"{self.prefix}:delayed"

    @property
    def leases(self) -> str:
        return f"{self.prefix}:leases"

    @property
    def deadlines(self) -> str:
        return f"{self.prefix}:deadlines"

    @property
    def dead(self) -> str:
        return f"{self.prefix}:dead"

    @property
    def lane_turns(self) -> str:
        return f"{self.prefix}:lane_turns"

    @property
    def lane_heads(self) -> str:
        return f"{self.prefix}:lane_heads"

    @property
    def plan_shares(self) -> str:
        return f"{self.prefix}:plan_shares"

    @property
    def upkeep(self) -> str:
        return f"{self.prefix}:upkeep"

    @property
    def leader(self) -> str:
        return f"{self.prefix}:leader"

    @property
    def keepers(self) -> str:
        return f"{self.prefix}:keepers"

    @property
    def crowded(self) -> str:
        return f"{self.prefix}:crowded"

    @property
    def blobs(self) -> str:
        return f"{self.prefix}:blobs"

    @property
    def freed_blobs(self) -> str:
        return f"{self.prefix}:freed_blobs"

    @property
    def pressure(self) -> str:
        return f"{self.prefix}:pressure"

    @property
    def workers(self) -> str:
        return f"{self.prefix}:workers"

    @property
    def api_keys(self) -> str:
        return f"{self.prefix}:api-keys"

    @property
    def governance(self) -> str:
        return f"{self.prefix}:governance"

    @property
    def audit(self) -> str:
        return f"{self.prefix}:audit"

    @property
    def store(self) -> str:
        return f"{self.prefix}:store"

    @property
    def schema(self) -> str:
        return f"{self.prefix}:schema"

    @property
    def control(self) -> str:
        return f"{self.prefix}:control"

    @property
    def events(self) -> str:
        return f"{self.prefix}:events"

    @property
    def parked(self) -> str:
        return f"{self.prefix}:parked"

    def job(self, job_id: str) -> str:
        return f"{self.prefix}:job:{job_id}"

    def spec(self, job_id: str) -> str:
        return f"{self.prefix}:spec:{job_id}"

    def result(self, job_id: str) -> str:
        return f"{self.prefix}:result:{job_id}"

    def attempts(self, job_id: str) -> str:
        return f"{self.prefix}:attempts:{job_id}"

    def slots(self, lane: str) -> str:
        return f"{self.prefix}:slots:{lane}"

    def ready(self, lane: str) -> str:
        return f"{self.prefix}:ready:{lane}"

    def line(self, tenant: str) -> str:
        return f"{self.prefix}:line:{tenant}"

    def kept(self, tenant: str, seconds: int) -> str:
        return f"{self.prefix}:kept:{tenant}:{seconds}"

    def account(self, tenant: str) -> str:
        return f"{self.prefix}:account:{tenant}"

    def rate(self, tenant: str) -> str:
        return f"{self.prefix}:rate:{tenant}"

    def idempotency(self, tenant: str, key: str) -> str:
        # Tenant and key can contain colons: the length keeps different pairs apart.
        return f"{self.prefix}:idempotency:{len(tenant)}:{tenant}:{key}"

    def worker(self, name: str) -> str:
        return f"{self.prefix}:worker:{name}"

    def done(self, job_id: str) -> str:
        return f"{self.prefix}:done:{job_id}"

    def of_job(self, job_id: str, owner: JobOwner, stay: Stay = NO_STAY) -> dict[str, str]:
        """The keys of a script about one job, by name (OF_JOB in scripts/prelude/constants.lua).

        ``stay``: needed for scripts that can end the job.
        """
        return {
            "job": self.job(job_id),
            "spec": self.spec(job_id),
            "result": self.result(job_id),
            "attempts": self.attempts(job_id),
            "ready": self.ready(owner.lane),
            "delayed": self.delayed,
            "leases": self.leases,
            "deadlines": self.deadlines,
            "slots": self.slots(owner.lane),
            "parked": self.parked,
            "lane_turns": self.lane_turns,
            "lane_heads": self.lane_heads,
            "plan_shares": self.plan_shares,
            "dead": self.dead,
            "upkeep": self.upkeep,
            "events": self.events,
            "account": self.account(owner.tenant),
            "line": self.line(owner.tenant),
            "parent": self.job(owner.parent or "-"),
            "nested": self.slots(JobOwner(owner.tenant, job_id).lane),
            "kept": self.kept(owner.tenant, stay.well_s),
            "kept_failed": self.kept(owner.tenant, stay.failed_s),
            "kept_dead": self.kept(owner.tenant, stay.dead_s),
            "keepers": self.keepers,
            "crowded": self.crowded,
            "pressure": self.pressure,
            "blobs": self.blobs,
            "freed_blobs": self.freed_blobs,
        }


def literal(text: str) -> str:
    """The text escaped for a pattern of Redis, so that it matches only itself."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", text)
