"""Every Redis key of the ledger: name, type and life.

==============================  =======  =======================================================
``<p>:job:<id>``                hash     the job's record (fields: scripts/prelude.lua);
                                         ``job_ttl_s``, then ``result_ttl_s`` once it has ended
``<p>:spec:<id>``               string   the manifest (code, stdin); deleted when the job ends,
                                         kept ``result_ttl_s`` when the fault was ours
``<p>:result:<id>``             string   the filtered JobResult; ``result_ttl_s``
``<p>:waiting``                 zset     jobs not running, by when they were last published (ms)
``<p>:leases``                  zset     running jobs, by when their lease runs out (ms)
``<p>:idempotency:<n>:<tenant>:<k>``  string   "job_id digest" of an accepted key; ``job_ttl_s``
``<p>:worker:<name>``           string   what a worker last said of itself; three beats
``<p>:extended``                string   set while leases were extended after an outage; one lease
``<p>:events``                  stream   one entry per transition; about ``events_kept`` entries
``<p>:done:<id>``               channel  published to when the job has ended
==============================  =======  =======================================================

The prefix ``<p>`` holds a hash tag, so all keys of one fleet live in one slot.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keys:
    """The names of one fleet's keys."""

    prefix: str

    @property
    def waiting(self) -> str:
        return f"{self.prefix}:waiting"

    @property
    def leases(self) -> str:
        return f"{self.prefix}:leases"

    @property
    def extended(self) -> str:
        return f"{self.prefix}:extended"

    @property
    def events(self) -> str:
        return f"{self.prefix}:events"

    def job(self, job_id: str) -> str:
        return f"{self.prefix}:job:{job_id}"

    def spec(self, job_id: str) -> str:
        return f"{self.prefix}:spec:{job_id}"

    def result(self, job_id: str) -> str:
        return f"{self.prefix}:result:{job_id}"

    def idempotency(self, tenant: str, key: str) -> str:
        # The length keeps apart what colons in names could make look alike.
        return f"{self.prefix}:idempotency:{len(tenant)}:{tenant}:{key}"

    def worker(self, name: str) -> str:
        return f"{self.prefix}:worker:{name}"

    def done(self, job_id: str) -> str:
        return f"{self.prefix}:done:{job_id}"

    def ending(self, job_id: str) -> list[str]:
        """What every script that can end a job declares, in the scripts' order."""
        return [
            self.job(job_id),
            self.spec(job_id),
            self.result(job_id),
            self.waiting,
            self.leases,
            self.events,
        ]
