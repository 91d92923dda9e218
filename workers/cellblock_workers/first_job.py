"""A job through the queue, on the fleet that was just started: only then is it up."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import closing

from cellblock.client import Client, Job
from cellblock.contract.job_spec import JobSpec
from cellblock.contract.outcomes import Outcome
from cellblock.contract.results import JobResult
from cellblock.errors import CellblockError, NotConfigured, ResultTimeout, StoreFull, StoreUnavailable
from cellblock.ledger import Ledger, connect
from cellblock_config import LevelName, Settings
from cellblock_workers.log import get_logger

_log = get_logger(__name__)

_TENANT = "cellblock-up"
#: As long as a host that is busy takes to prove its isolations.
_WITHIN_S = 180.0
#: A worker that waits for a store says so in its log alone: after this time the stores are tried.
_DOUBTFUL_S = 4.0
_LOOK_S = 0.25
_LEVELS: tuple[LevelName, ...] = ("standard", "permissive")


class FirstJob:
    """Runs one job, and waits for the archiver where there is one."""

    def __init__(self, settings: Settings, problem: Callable[[], str | None], *, archived: bool) -> None:
        """``problem``: what is wrong with the fleet's stores, as their services find them; None if nothing.
        ``archived``: whether an archiver runs. The settings name the fleet's Redis."""
        # Neither blob store nor archive: this process has other rights there than the services.
        self._settings = settings.model_copy(
            update={
                "blobs": settings.blobs.model_copy(update={"url": None}),
                "archive": settings.archive.model_copy(update={"url": None}),
            }
        )
        self.problem = problem
        self._archived = archived
        self._ends = 0.0
        self._tried = False

    def failure(self, ended: Callable[[], bool]) -> str | None:
        """Runs it. Returns why the fleet does not work, in plain words; None if it does, or once ``ended``
        says that nobody waits any more."""
        began = time.monotonic()
        self._ends = began + _WITHIN_S
        try:
            with Client(settings=self._settings) as client:
                why = self._ran(client, began, ended)
            if why is None and self._archived:
                why = self._archiver(began, ended)
            return why
        except CellblockError as error:
            if isinstance(error, NotConfigured | StoreUnavailable) and not isinstance(error, StoreFull):
                return str(error)
            # A plan, a policy, a full store: other jobs might be let in.
            _log.warning("first_job_not_tried", reason=str(error))
            return None

    def _ran(self, client: Client, began: float, ended: Callable[[], bool]) -> str | None:
        refusals = []
        for level in _LEVELS:
            job = client.submit(JobSpec(code="print(6*7)", level=level, tenant=_TENANT))
            result = self._awaited(job, began, ended)
            if not isinstance(result, JobResult):
                return result
            if result.outcome is Outcome.OK:
                return None
            said = result.error.message if result.error is not None else ""
            if result.outcome is not Outcome.REJECTED:
                return f"the first job ended {result.outcome}: {said}"
            refusals.append(said)
        if self._settings.signing.require_signature and self._settings.signing.key is None:
            return None  # a worker had it, and asked for a signature that this process cannot give
        return f"no job can run here: {refusals[0]}"

    def _awaited(self, job: Job, began: float, ended: Callable[[], bool]) -> JobResult | str | None:
        """The job's result, or why it does not come; None if nobody waits any more, or others go first."""
        while not ended():
            try:
                return job.result(timeout_s=_LOOK_S)
            except ResultTimeout:
                if (why := self._stores(began)) is not None:
                    return why
                if time.monotonic() > self._ends:
                    return self._silence()
        return None

    def _stores(self, began: float) -> str | None:
        if self._tried or time.monotonic() < began + _DOUBTFUL_S:
            return None
        self._tried = True
        return self.problem()

    def _archiver(self, began: float, ended: Callable[[], bool]) -> str | None:
        with closing(connect(self._settings)) as redis:
            archiving = Ledger(redis, self._settings).archiving
            while not ended():
                state = archiving.state()
                if state is not None and state.problem is None:
                    return None
                if (why := self._stores(began)) is not None:
                    return why
                if time.monotonic() > self._ends:
                    return (state and state.problem) or "no archiver was heard of"
                time.sleep(_LOOK_S)
        return None

    def _silence(self) -> str | None:
        """Why a job does not end for so long; None if this host's workers only have other jobs to do."""
        with closing(connect(self._settings)) as redis:
            workers = Ledger(redis, self._settings).figures.workers()
        mine = [said for said in workers.values() if said.get("host") == socket.gethostname()]
        if any(said.get("state") == "ready" for said in mine):
            _log.warning("first_job_waits", reason="the workers of this host are busy with other jobs")
            return None
        said = mine[0].get("reason") if mine else "no worker of this host was heard of"
        return f"no job ran within {_WITHIN_S:g} s: {said}"
