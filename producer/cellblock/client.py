"""The client that backend services import: it submits jobs, waits for results and streams batches."""

from __future__ import annotations

import os
import re
import socket
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import closing, suppress
from datetime import date, datetime
from functools import partial
from types import TracebackType
from typing import Literal, Self, cast

from redis import Redis

from cellblock.admission.costs import Estimate
from cellblock.admission.policy.decision import PRODUCER, Principal
from cellblock.api_keys import ApiKeys
from cellblock.batch import Batch, Start
from cellblock.connections import Connections, LiveConnections
from cellblock.contract.evaluations import TrialResult
from cellblock.contract.events import Event
from cellblock.contract.job_spec import JobSpec
from cellblock.contract.job_status import Counts, DayUsage, DeadLetter, JobPage, JobState, JobStatus
from cellblock.contract.outcomes import Outcome
from cellblock.contract.results import JobResult
from cellblock.errors import (
    CallerError,
    CellblockError,
    InvalidJob,
    RateLimited,
    ResultTimeout,
    StoreFull,
    StoreUnavailable,
    UnknownJob,
)
from cellblock.evaluation import Campaign, EvaluationOptions, Sample
from cellblock.governance import Governance
from cellblock.ledger import Ledger
from cellblock.ledger.archiving import ARCHIVE_GROUP
from cellblock.ledger.groups import WEBHOOKS_GROUP
from cellblock.ledger.replies import RetryWord
from cellblock.waiting import closed_while_waiting
from cellblock_config import Settings, load_settings

Progress = Callable[[int, JobResult | CellblockError], None]
_EVENT_ID = re.compile(r"\d{1,20}(-\d{1,20})?", re.ASCII)
_GROUP_MAX = 64
#: The longest wait of a batch for room. It does not wait for a limit that returns only tomorrow.
_PATIENCE_S = 60.0


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


class Job:
    """A handle on one accepted job."""

    def __init__(self, client: Client, job_id: str) -> None:
        self._client = client
        self.id = job_id

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def result(self, timeout_s: float | None = None) -> JobResult:
        """Waits for the job's end. Raises :class:`ResultTimeout` after ``timeout_s``; the job goes on."""
        return self._client.result(self.id, timeout_s=timeout_s)

    def status(self) -> JobStatus:
        """The state of the job now."""
        return self._client.status(self.id)

    def cancel(self) -> Literal["cancelled", "requested", "terminal"]:
        """Ends the job: at once while it waits, through its worker while it runs."""
        return self._client.cancel(self.id)


class Client:
    """A connection to the fleet. Thread-safe; use as a context manager or call :meth:`close`.

    Every method raises :class:`StoreUnavailable`, and :class:`SchemaMismatch` for a store of another version.

    Signs the jobs it submits where ``signing.key`` is set. Works in a forked child too, which opens
    connections of its own; a future from before the fork belongs to the parent.

    >>> with Client() as client:                                        # doctest: +SKIP
    ...     client.submit(JobSpec(code="print(6*7)")).result(timeout_s=30).stdout
    '42\\n'
    """

    def __init__(self, redis_url: str | None = None, *, settings: Settings | None = None) -> None:
        if settings is None:
            settings = load_settings(**({"redis": {"url": redis_url}} if redis_url else {}))
        self._settings = settings
        self._live = LiveConnections(settings)

    @property
    def _connections(self) -> Connections:
        return self._live.get()

    @property
    def _checked(self) -> Connections:
        """The connections to a store of this version. Raises :class:`SchemaMismatch`: under another schema,
        whatever is not where it is looked for reads as nothing at all."""
        connections = self._connections
        connections.check_schema()
        return connections

    @property
    def _ledger(self) -> Ledger:
        return self._connections.ledger

    @property
    def _redis(self) -> Redis:
        return self._connections.redis

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes every connection; accepted jobs go on."""
        self._live.close()

    def submit(self, spec: JobSpec, *, api_key: str | None = None) -> Job:
        """Accepts a job and wakes a worker for it. With an API key, the job belongs to the key's tenant.

        Raises :class:`InvalidJob`, :class:`PolicyDenied` (nothing stored), :class:`RateLimited` (too much
        waits), :class:`StoreFull`, :class:`StoreUnavailable`; its :class:`AcceptanceUnknown` where no answer
        came, though the job was sent again for two seconds (it is never admitted twice). Submitting again
        with the same ``idempotency_key`` returns the first job, even if its plan or parent would refuse it
        by now.
        """
        (job,) = self.submit_many([spec], api_key=api_key)
        if isinstance(job, CellblockError):
            raise job
        return job

    def submit_many(
        self, specs: Iterable[JobSpec], *, api_key: str | None = None
    ) -> list[Job | CellblockError]:
        """Accepts jobs as :meth:`submit` does, dozens in one round trip. Returns for each, in order, its job,
        or the error that :meth:`submit` would raise: a refused job does not stop the others.

        A job whose error is :class:`AcceptanceUnknown` might have been accepted. Raises
        :class:`PolicyDenied` for a wrong API key. See :meth:`map` for more jobs than memory or the queue
        holds.
        """
        answers = self._connections.submission.submit(specs, self._principal(api_key))
        return [Job(self, answer) if isinstance(answer, str) else answer for answer in answers]

    def estimate(self, spec: JobSpec, *, api_key: str | None = None) -> Estimate:
        """The most this job can cost; it is not submitted. Raises as :meth:`submit`, but asks no policy."""
        return self._checked.submission.estimate(spec, self._principal(api_key))

    def _principal(self, api_key: str | None) -> Principal:
        return self._checked.api_keys.principal(api_key) if api_key is not None else PRODUCER

    @property
    def governance(self) -> Governance:
        """Overrides of plans at run time, and the audit of who set them."""
        return self._checked.governance

    @property
    def api_keys(self) -> ApiKeys:
        """The API keys of this fleet: create, list, rotate and revoke them here."""
        return self._checked.api_keys

    def has_seen(self, tenant: str) -> bool:
        """Whether the store knows this tenant: for forty days after its last job on a plan, else while one of
        its jobs is kept."""
        return self._checked.ledger.reads.has_seen(tenant)

    def job(self, job_id: str) -> Job:
        """A handle on a job accepted elsewhere. It does not check that the job exists."""
        return Job(self, job_id)

    def result(self, job_id: str, *, timeout_s: float | None = None, tenant: str | None = None) -> JobResult:
        """Waits for a job's end. Raises :class:`ResultTimeout`, :class:`UnknownJob`.

        ``tenant``: asks in the name of this tenant, for which other tenants' jobs are unknown. The methods
        below do the same.
        """
        future = self.result_future(job_id, tenant=tenant)
        try:
            return future.result(timeout_s)
        except FutureTimeout:
            raise ResultTimeout(f"job {job_id} has not ended after {timeout_s:g} s; it goes on") from None
        except CancelledError:
            raise closed_while_waiting(job_id) from None

    def result_future(self, job_id: str, *, tenant: str | None = None) -> Future[JobResult]:
        """The result as a future, completed by notification."""
        self._checked.ledger.reads.require_tenant(job_id, tenant)
        return self._checked.waiter.wait_for(job_id)

    def status(self, job_id: str, *, tenant: str | None = None) -> JobStatus:
        """The state of a job now. Raises :class:`UnknownJob`."""
        self._checked.ledger.reads.require_tenant(job_id, tenant)
        return self._checked.ledger.reads.status(job_id)

    def usage(
        self, tenant: str | None = None, day: date | None = None, since: date | None = None
    ) -> list[DayUsage]:
        """The use of tenants with a plan, by day (UTC): the last forty, and earlier ones with an archive.

        ``since``: only from this day on. Raises :class:`InvalidJob` if both ``day`` and ``since`` are given;
        for a day before those forty, :class:`NotConfigured` and :class:`ArchiveUnavailable`.
        """
        return self._checked.history.usage(tenant, day=day, since=since)

    def jobs(
        self,
        tenant: str | None = None,
        *,
        since: datetime | None = None,
        before: datetime | None = None,
        outcome: Outcome | str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> JobPage:
        """Ended jobs in the archive, the last to end first. Pass a page's ``cursor`` to get the next page.

        Raises :class:`NotConfigured` without an archive, :class:`InvalidJob` for an invalid filter,
        :class:`ArchiveUnavailable`.
        """
        return self._connections.history.jobs(
            tenant, since=since, before=before, outcome=outcome, limit=limit, cursor=cursor
        )

    def counts(self) -> Counts:
        """The numbers of jobs that wait, are parked, run or are dead letters now."""
        return self._checked.ledger.figures.counts()

    def cancel(
        self, job_id: str, *, tenant: str | None = None
    ) -> Literal["cancelled", "requested", "terminal"]:
        """Stops a job. Idempotent; raises :class:`UnknownJob`."""
        self._checked.ledger.reads.require_tenant(job_id, tenant)
        done = self._checked.ledger.cancel(job_id)
        self._checked.publisher.wake(done.wake)
        return cast(Literal["cancelled", "requested", "terminal"], done.word)

    def dead(self, *, limit: int = 100) -> list[DeadLetter]:
        """Jobs that ended through our fault and whose payload is kept, latest first."""
        if limit < 1:
            raise ValueError(f"limit must be at least 1 (got {limit})")
        letters = []
        for job_id in self._checked.ledger.reads.dead(limit=limit):
            with suppress(UnknownJob):  # its time was over meanwhile
                letters.append(self._checked.ledger.reads.dead_letter(job_id))
        return letters

    def dead_ids(self) -> list[str]:
        """The ids of all dead letters, latest first."""
        return self._checked.ledger.reads.dead(limit=0)

    def dead_letter(self, job_id: str) -> DeadLetter:
        """One dead letter. Raises :class:`UnknownJob` for a job that is not one."""
        return self._checked.ledger.reads.dead_letter(job_id)

    def retry_dead(self, job_id: str) -> Job:
        """Lets a dead letter run again, with its counts at zero. Raises :class:`UnknownJob`."""
        done = self._checked.ledger.retry_dead(job_id, uuid.uuid4().hex)
        if done.word is not RetryWord.RETRIED:
            why = "its payload has expired" if done.word is RetryWord.GONE else "it is not a dead letter"
            raise UnknownJob(f"job {job_id} cannot be tried again: {why}")
        self._checked.publisher.wake(done.wake)
        return Job(self, job_id)

    def drop_dead(self, job_id: str) -> None:
        """Forgets a dead letter and its payload; its result stays. Raises :class:`UnknownJob`."""
        if not self._checked.ledger.upkeep.drop_dead(job_id, uuid.uuid4().hex):
            raise UnknownJob(f"job {job_id} is not a dead letter")

    def events(
        self,
        after: str = "0",
        *,
        limit: int = 100,
        wait_s: float = 0,
        group: str | None = None,
        consumer: str | None = None,
        redeliver_s: float = 60,
    ) -> list[Event]:
        """Events after a stream id, oldest first; waits up to ``wait_s`` seconds for the first.

        With ``group`` each event goes to one ``consumer`` of the group (by default this host and process),
        at least once: :meth:`acknowledge` handled events, or they come again after ``redeliver_s``. A new
        group starts after ``after``; :meth:`rewind` replays. Raises :class:`InvalidJob` for a malformed id
        or name.
        """
        if limit < 1:
            raise InvalidJob("limit", f"{limit}: at least 1")
        _check_event_id(after, end=group is not None)
        if group is None:
            return self._checked.ledger.reads.events(after, limit=limit, wait_s=wait_s)
        _check_group(group)
        name = consumer or f"{socket.gethostname()}-{os.getpid()}"
        return self._checked.groups.read(
            group, name, after=after, limit=limit, wait_s=wait_s, redeliver_s=redeliver_s
        )

    def last_event_id(self) -> str:
        """The id of the newest event, for :meth:`events` from now on; ``0`` without any."""
        return self._checked.ledger.reads.last_event_id()

    def acknowledge(self, group: str, events: Iterable[Event]) -> None:
        """Marks events as done: the group does not get them again."""
        _check_group(group)
        self._checked.groups.acknowledge(group, [event.id for event in events])

    def rewind(self, group: str, after: str = "0") -> None:
        """Makes the group read again from after this stream id; ``0`` is the oldest event kept."""
        _check_group(group)
        _check_event_id(after, end=True)
        self._checked.groups.rewind(group, after)

    def forget_group(self, group: str) -> bool:
        """Removes this group, so that no event waits for it. Returns whether it existed."""
        _check_group(group)
        return self._checked.groups.forget(group)

    def map(
        self,
        specs: Iterable[JobSpec],
        *,
        ordered: bool = True,
        window: int = 256,
        progress: Progress | None = None,
        api_key: str | None = None,
        cancel_waiting: bool = True,
    ) -> Generator[JobResult | CellblockError, None, None]:
        """Runs a batch of any size: at most ``window`` jobs are in flight, results stream out.

        Yields for each spec its result, or the error that refused this job alone, as :meth:`submit_many`
        returns it; the others go on. ``ordered=False`` yields in the order of ending. ``progress`` is called
        with the number of results so far and the newest one. Infinite or huge iterables are read lazily.

        Waits for room in the queue and for the rate of its plan. Raises :class:`RateLimited` (also
        :class:`BudgetExceeded`) when that would take longer than a minute, :class:`StoreUnavailable`, and
        what ``specs`` raises, each after the results of all jobs that were accepted.

        ``cancel_waiting``: a caller that leaves the loop early cancels the jobs in flight that have not
        started, but for those with an ``idempotency_key``, which others may wait for. Running jobs end by
        themselves; with False, waiting ones do too. ``api_key``: as for :meth:`submit`.
        """
        batch = self.batch(window=window, api_key=api_key, cancel_waiting=cancel_waiting)
        return _counted(batch.run(specs, ordered=ordered), progress)

    def batch(self, *, window: int, api_key: str | None = None, cancel_waiting: bool = True) -> Batch:
        """What :meth:`map` runs, for callers that stop it from another thread. Arguments as there."""
        if window < 1:
            raise ValueError(f"window must be at least 1 (got {window})")
        start = partial(self._begin, api_key=api_key)
        return Batch(start, self._cancel_waiting if cancel_waiting else len, window=window)

    def _begin(
        self, spec: JobSpec, is_stopped_within: Callable[[float], bool], api_key: str | None
    ) -> Start | CellblockError:
        """Starts a job of a batch, or returns the error that refuses it and no other. Raises those that would
        refuse the next one too."""
        job = self._accepted(spec, api_key, is_stopped_within)
        if isinstance(job, CellblockError):
            return job
        shared = spec.idempotency_key is not None
        return Start(job.id, self.result_future(job.id), shared)  # watched from the start: no end is missed

    def _cancel_waiting(self, job_ids: list[str]) -> None:
        """Cancels those that wait, if the store can be reached."""
        with suppress(StoreUnavailable):
            for job_id in job_ids:
                with suppress(UnknownJob):
                    if self.status(job_id).state in {JobState.QUEUED, JobState.PARKED}:
                        self.cancel(job_id)

    def evaluate(
        self,
        samples: Iterable[Sample],
        options: EvaluationOptions | None = None,
        total: int | None = None,
    ) -> Iterator[tuple[Sample, TrialResult]]:
        """Judges samples (``cellblock.evaluation``), each where none ran before, in the order of ending.

        Reads samples lazily; ``options`` bounds those in flight. ``total``: their number, where ``samples``
        has no length. A caller that stops reading stops the jobs in flight. Raises as :meth:`map`.
        """
        return self.campaign(options or EvaluationOptions()).run(samples, total)

    def campaign(self, options: EvaluationOptions) -> Campaign:
        """A campaign that runs samples through this fleet, in jobs of the size that it admits."""
        job_bytes = self._settings.ledger.evaluation_bytes
        return Campaign(self.start, options, self.abandon, job_bytes=job_bytes)

    def start(
        self,
        spec: JobSpec,
        *,
        api_key: str | None = None,
        is_stopped_within: Callable[[float], bool] = _sleep,
    ) -> Future[JobResult]:
        """Submits as :meth:`map` does, waiting for room. Returns the result as a future.

        Args:
            spec: The job.
            api_key: As for :meth:`submit`.
            is_stopped_within: Waits for these seconds where there is no room, or until nobody waits for the
                job any more: then it returns true, and the refusal is raised.
        """
        job = self._accepted(spec, api_key, is_stopped_within)
        if isinstance(job, CellblockError):
            raise job
        return self.result_future(job.id)

    def abandon(self, future: Future[JobResult]) -> str | None:
        """Stops the job of a future from :meth:`start`; the future ends with what the job came to.

        Returns the id of a job that goes on, as the store cannot be reached.
        """
        job_id = self._connections.waiter.job_of(future)
        if job_id is not None:
            try:
                self.cancel(job_id)
            except UnknownJob:
                return None
            except StoreUnavailable:
                return job_id
        return None

    def _accepted(
        self, spec: JobSpec, api_key: str | None, is_stopped_within: Callable[[float], bool] = _sleep
    ) -> Job | CallerError:
        """Waits for room. Returns the error of a job that is refused for what it asks; raises all others.

        ``is_stopped_within``: waits for these seconds, or until nobody waits for the job any more.
        """
        while True:
            (answer,) = self.submit_many([spec], api_key=api_key)
            if isinstance(answer, RateLimited | StoreFull) and answer.retry_after_s <= _PATIENCE_S:
                if is_stopped_within(answer.retry_after_s):  # a batch waits, and does not end half-way
                    raise answer
            elif isinstance(answer, RateLimited) or not isinstance(answer, Job | CallerError):
                raise answer  # the day's runs or money: a batch must not sleep until tomorrow
            else:
                return answer


def _counted(
    results: Generator[JobResult | CellblockError, None, None], progress: Progress | None
) -> Generator[JobResult | CellblockError, None, None]:
    with closing(results):
        for done, result in enumerate(results, start=1):
            if progress is not None:
                progress(done, result)
            yield result


def _check_event_id(after: str, *, end: bool) -> None:
    """``end``: whether ``$``, the end of the stream, is allowed. Only a group remembers where that was."""
    if not _EVENT_ID.fullmatch(after) and not (end and after == "$"):
        raise InvalidJob(
            "after", f"{after!r} is not an event id; one looks like 1795282613989-0, 0 is the oldest"
        )


def _check_group(group: str) -> None:
    if not group or len(group) > _GROUP_MAX:
        raise InvalidJob("group", f"{group[:80]!r}: a group's name has 1 to {_GROUP_MAX} characters")
    if group == WEBHOOKS_GROUP:
        raise InvalidJob("group", f"{group!r} belongs to cellblock webhooks: its events would not be posted")
    if group == ARCHIVE_GROUP:
        raise InvalidJob("group", f"{group!r} belongs to the archiver: its jobs would not be archived")
