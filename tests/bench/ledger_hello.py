"""Hello jobs as the client admits them and a worker ends them, and the settings they run under."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from redis import Redis

from cellblock import JobResult, JobSpec, Outcome
from cellblock.admission.gates import Gates
from cellblock.admission.intake import Intake
from cellblock.admission.resolve import Manifest
from cellblock.contract.outcomes import Usage
from cellblock.ledger import Admission, Candidate, Claim, Ledger, connect
from cellblock_config import Settings, TelemetrySettings, load_settings
from cellblock_workers.telemetry import configure_logging
from ledger.kit import operation, result_of

HELLO = JobSpec(code='print("hello")')
WORKER = "bench-host-12345"
_COST_MICROS = 20
_PLAN = """
[plans.bench]
parallel = 1000
rate_per_s = 10000.0
burst = 1000000
runs_per_day = 1000000000
queue_depth = 1000000
timeout_s = 60
cpus = 1.0
memory = "512M"
levels = ["standard"]
images = ["python"]
cost_per_run = 0.02
cost_per_day = 1000000
result_ttl_s = 86400
weight = 2
"""


def settings_for(url: str, folder: Path, *, planned: bool, **ledger: object) -> Settings:
    """Default settings on this store, and no canaries, which need sandboxes.

    ``planned``: everybody is on a plan that refuses nothing.
    """
    plans: dict[str, object] = {}
    if planned:
        plans = {"file": folder / "plans.toml", "default": "bench"}
        (folder / "plans.toml").write_text(_PLAN)
    return load_settings(redis={"url": url}, plans=plans, ledger=ledger, worker={"canaries": False})


def hello_result(held: Claim, outcome: Outcome = Outcome.OK) -> JobResult:
    """What a worker writes for print("hello"): every field that a real one has, in its usual length."""
    return result_of(
        held,
        outcome,
        exit_code=0 if outcome is Outcome.OK else 1,
        stdout="hello\n",
        isolation="namespaces",
        backend="zygote",
        usage=Usage(wall_ms=4, cpu_ms=3, peak_memory_bytes=3_661_824, output_bytes=6, filter_cpu_ms=5),
        cost_micros=_COST_MICROS if held.manifest.charge is not None else None,
    )


def hush() -> None:
    """No word of jobs that were reaped on purpose, and none of the age of the prices."""
    configure_logging(TelemetrySettings(log_level="error"))


@dataclass(frozen=True)
class Hello:
    """Hello jobs as the client admits them, and as a worker ends them."""

    ledger: Ledger
    redis: Redis
    manifest: Manifest
    gates: Gates | None

    def admit(self) -> str:
        job_id = uuid.uuid4().hex
        self.ledger.admissions.admit(job_id, self.manifest, gates=self.gates)
        return job_id

    def claim(self) -> Claim:
        """Whichever is next: here there is one."""
        held = self.ledger.claims.claim_next(message="-", worker=WORKER, operation=operation())
        assert isinstance(held, Claim), held
        return held

    def begin(self) -> Claim:
        self.admit()
        return self.claim()

    def end(self, held: Claim, outcome: Outcome = Outcome.OK) -> None:
        done = self.ledger.finish(held, hello_result(held, outcome), operation())
        assert done.word in {"finished", "retried"}, done

    def live(self, together: int = 1) -> None:
        """Whole jobs, as many as are admitted and claimed together."""
        wanted = [Candidate(uuid.uuid4().hex, self.manifest, gates=self.gates) for _ in range(together)]
        assert all(isinstance(one, Admission) for one in self.ledger.admissions.admit_many(wanted))
        for held in self.ledger.claims.claim_next_many(
            messages=["-"] * together, worker=WORKER, operation=operation()
        ):
            assert isinstance(held, Claim), held
            self.end(held)


@contextmanager
def hello_jobs(settings: Settings) -> Iterator[Hello]:
    """On this store."""
    redis = connect(settings)
    prepared = Intake(settings).prepare("-", HELLO)
    try:
        yield Hello(Ledger(redis, settings), redis, prepared.manifest, prepared.gates)
    finally:
        redis.close()
