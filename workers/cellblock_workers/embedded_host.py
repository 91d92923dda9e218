"""The ledger and the runner of a process that runs jobs without a fleet, on a launcher beside it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import fakeredis

from cellblock.admission.gates import Gates
from cellblock.admission.intake import Intake
from cellblock.admission.resolve import Manifest
from cellblock.contract.job_ids import new_job_id
from cellblock.contract.job_spec import JobSpec
from cellblock.contract.results import JobResult
from cellblock.errors import SandboxUnavailable
from cellblock.ledger import Ledger
from cellblock_config import Settings
from cellblock_workers.filtering.outgoing_filter import OutgoingFilter
from cellblock_workers.filtering.processes import Template
from cellblock_workers.launcher.client import LauncherClient
from cellblock_workers.lease import Heart
from cellblock_workers.worker.runner import JobRunner

_WORKER = "embedded"
_LOOK_S = 0.005


def in_process_redis() -> fakeredis.FakeRedis:
    """A Redis in this process, for any number of its threads."""
    redis = fakeredis.FakeRedis(server=fakeredis.FakeServer(), decode_responses=True)
    redis.ping()  # makes its database: threads that begin together would each have their own
    return redis


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """A job that may be admitted."""

    job_id: str
    manifest: Manifest
    gates: Gates | None


class EmbeddedHost:
    """Admits jobs and runs them, on the launcher behind ``socket``."""

    def __init__(self, settings: Settings, socket: Path, template: Template) -> None:
        self._settings = settings
        self._intake = Intake(settings)
        self._ledger = Ledger(in_process_redis(), settings, embedded=True)
        # A first sandbox waits for the launcher's first probe, and for its own start.
        self._launcher = LauncherClient(socket, timeout_s=2 * settings.sandbox.start_timeout_s + 10)
        self._heart = Heart(
            ledger=self._ledger,
            worker=_WORKER,
            settings=settings.ledger,
            status=lambda: {"state": "ready"},
            renew=self._launcher.renew,
        )
        self._reasons: list[str] = []
        self._runner = JobRunner(
            self._ledger,
            self._launcher,
            self._heart,
            settings,
            worker=_WORKER,
            on_wake=lambda wakes: None,
            on_unavailable=self._reasons.append,
            outgoing=OutgoingFilter(settings.egress, template),
        )

    def start(self) -> None:
        """Begins to keep leases."""
        self._heart.start()

    def drain(self) -> None:
        """Has running jobs give up."""
        self._heart.drain()

    def close(self) -> None:
        """Ends what it started."""
        self._heart.stop()
        self._runner.close()
        self._launcher.close()

    def prepare(self, spec: JobSpec) -> PreparedJob:
        """The job of a spec. Raises what :meth:`cellblock.Client.submit` raises."""
        job_id = new_job_id(spec.tenant)
        prepared = self._intake.prepare(job_id, spec)
        return PreparedJob(job_id, prepared.manifest, prepared.gates)

    def run(self, job: PreparedJob) -> JobResult:
        """Admits the job and runs whatever is next until it ends. Raises :class:`SandboxUnavailable`."""
        self._ledger.admissions.admit(job.job_id, job.manifest, gates=job.gates)
        while True:
            ran = self._runner.run(job.job_id)
            if (result := self._ledger.reads.result(job.job_id)) is not None:
                return result
            if (pause_s := self._ledger.reads.due_in_s(job.job_id)) is not None:  # a failure is tried again
                time.sleep(pause_s)
                self._ledger.upkeep.wake_delayed()
            elif ran == job.job_id:
                raise SandboxUnavailable("; ".join(dict.fromkeys(self._reasons)) or "the job was given back")
            elif ran is None:  # another thread has it
                time.sleep(_LOOK_S)
