"""The client for asyncio: calls run on a thread, waiting for results takes no thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from datetime import date, datetime
from types import TracebackType
from typing import Literal, Self

from cellblock.admission.costs import Estimate
from cellblock.client import Client, Job, Progress
from cellblock.contract.evaluations import TrialResult
from cellblock.contract.events import Event
from cellblock.contract.job_spec import JobSpec
from cellblock.contract.job_status import Counts, DayUsage, DeadLetter, JobPage, JobStatus
from cellblock.contract.outcomes import Outcome
from cellblock.contract.results import JobResult
from cellblock.errors import CellblockError, ResultTimeout
from cellblock.evaluation import EvaluationOptions, Sample
from cellblock.waiting import closed_while_waiting
from cellblock_config import Settings


class AsyncJob:
    """A handle on one accepted job."""

    def __init__(self, client: AsyncClient, job_id: str) -> None:
        self._client = client
        self.id = job_id

    def __repr__(self) -> str:
        return f"AsyncJob({self.id!r})"

    async def result(self, timeout_s: float | None = None) -> JobResult:
        """Waits for the job's end. Raises :class:`ResultTimeout` after ``timeout_s``; the job goes on."""
        return await self._client.result(self.id, timeout_s=timeout_s)

    async def status(self) -> JobStatus:
        """The state of the job now."""
        return await self._client.status(self.id)

    async def cancel(self) -> Literal["cancelled", "requested", "terminal"]:
        """Ends the job: at once while it waits, through its worker while it runs."""
        return await self._client.cancel(self.id)


class AsyncClient:
    """:class:`Client` for asyncio: the same methods, the same errors, one implementation underneath.

    Only :class:`Client` has the parts for operators, ``governance`` and ``api_keys``, and the methods about
    futures of threads: ``result_future``, ``start``, ``abandon``, ``campaign``, ``batch``.
    """

    def __init__(self, redis_url: str | None = None, *, settings: Settings | None = None) -> None:
        self._client = Client(redis_url, settings=settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes every connection; accepted jobs go on."""
        await asyncio.to_thread(self._client.close)

    async def submit(self, spec: JobSpec, *, api_key: str | None = None) -> AsyncJob:
        """Accepts a job and wakes a worker for it; raises as :meth:`Client.submit`."""
        return AsyncJob(self, (await asyncio.to_thread(self._client.submit, spec, api_key=api_key)).id)

    async def submit_many(
        self, specs: Iterable[JobSpec], *, api_key: str | None = None
    ) -> list[AsyncJob | CellblockError]:
        """Accepts jobs, dozens in one round trip. Returns for each its job, or the error that refused it."""
        answers = await asyncio.to_thread(self._client.submit_many, specs, api_key=api_key)
        return [AsyncJob(self, answer.id) if isinstance(answer, Job) else answer for answer in answers]

    async def estimate(self, spec: JobSpec, *, api_key: str | None = None) -> Estimate:
        """The most this job can cost; it is not submitted."""
        return await asyncio.to_thread(self._client.estimate, spec, api_key=api_key)

    async def has_seen(self, tenant: str) -> bool:
        """Whether the store knows this tenant: for forty days after its last job on a plan, else while one of
        its jobs is kept."""
        return await asyncio.to_thread(self._client.has_seen, tenant)

    def job(self, job_id: str) -> AsyncJob:
        """A handle on a job accepted elsewhere. It does not check that the job exists."""
        return AsyncJob(self, job_id)

    async def result(
        self, job_id: str, *, timeout_s: float | None = None, tenant: str | None = None
    ) -> JobResult:
        """Waits for a job's end without holding a thread; otherwise as :meth:`Client.result`."""
        future = await asyncio.to_thread(lambda: self._client.result_future(job_id, tenant=tenant))
        try:
            # shield: giving up on the wait must not cancel the future other waiters share.
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), timeout_s)
        except asyncio.CancelledError:
            if not future.cancelled():  # our own task was cancelled, not the wait
                raise
            raise closed_while_waiting(job_id) from None
        except TimeoutError:
            raise ResultTimeout(f"job {job_id} has not ended after {timeout_s:g} s; it goes on") from None

    async def status(self, job_id: str, *, tenant: str | None = None) -> JobStatus:
        """The state of a job now. Raises :class:`UnknownJob`."""
        return await asyncio.to_thread(lambda: self._client.status(job_id, tenant=tenant))

    async def usage(
        self, tenant: str | None = None, day: date | None = None, since: date | None = None
    ) -> list[DayUsage]:
        """The use of tenants with a plan, by day (UTC); as :meth:`Client.usage`."""
        return await asyncio.to_thread(self._client.usage, tenant, day, since)

    async def jobs(
        self,
        tenant: str | None = None,
        *,
        since: datetime | None = None,
        before: datetime | None = None,
        outcome: Outcome | str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> JobPage:
        """Ended jobs in the archive, the last to end first; as :meth:`Client.jobs`."""
        return await asyncio.to_thread(
            lambda: self._client.jobs(
                tenant, since=since, before=before, outcome=outcome, limit=limit, cursor=cursor
            )
        )

    async def counts(self) -> Counts:
        """The numbers of jobs that wait, are parked, run or are dead letters now."""
        return await asyncio.to_thread(self._client.counts)

    async def cancel(
        self, job_id: str, *, tenant: str | None = None
    ) -> Literal["cancelled", "requested", "terminal"]:
        """Stops a job. Idempotent; raises :class:`UnknownJob`."""
        return await asyncio.to_thread(lambda: self._client.cancel(job_id, tenant=tenant))

    async def dead(self, *, limit: int = 100) -> list[DeadLetter]:
        """Jobs that ended through our fault, latest first."""
        return await asyncio.to_thread(lambda: self._client.dead(limit=limit))

    async def dead_ids(self) -> list[str]:
        """The ids of all dead letters, latest first."""
        return await asyncio.to_thread(self._client.dead_ids)

    async def dead_letter(self, job_id: str) -> DeadLetter:
        """One dead letter. Raises :class:`UnknownJob` for a job that is not one."""
        return await asyncio.to_thread(self._client.dead_letter, job_id)

    async def retry_dead(self, job_id: str) -> AsyncJob:
        """Lets a dead letter run again. Raises :class:`UnknownJob`."""
        return AsyncJob(self, (await asyncio.to_thread(self._client.retry_dead, job_id)).id)

    async def drop_dead(self, job_id: str) -> None:
        """Forgets a dead letter and its payload. Raises :class:`UnknownJob`."""
        await asyncio.to_thread(self._client.drop_dead, job_id)

    async def events(
        self,
        after: str = "0",
        *,
        limit: int = 100,
        wait_s: float = 0,
        group: str | None = None,
        consumer: str | None = None,
        redeliver_s: float = 60,
    ) -> list[Event]:
        """Events after a stream id, or those of a consumer group; as :meth:`Client.events`."""
        return await asyncio.to_thread(
            lambda: self._client.events(
                after, limit=limit, wait_s=wait_s, group=group, consumer=consumer, redeliver_s=redeliver_s
            )
        )

    async def last_event_id(self) -> str:
        """The id of the newest event, for :meth:`events` from now on; ``0`` without any."""
        return await asyncio.to_thread(self._client.last_event_id)

    async def acknowledge(self, group: str, events: Iterable[Event]) -> None:
        """Marks events as done: the group does not get them again."""
        await asyncio.to_thread(self._client.acknowledge, group, list(events))

    async def rewind(self, group: str, after: str = "0") -> None:
        """Makes the group read again from after this stream id."""
        await asyncio.to_thread(self._client.rewind, group, after)

    async def forget_group(self, group: str) -> bool:
        """Removes this group. Returns whether it existed."""
        return await asyncio.to_thread(self._client.forget_group, group)

    async def evaluate(
        self,
        samples: Iterable[Sample],
        options: EvaluationOptions | None = None,
        total: int | None = None,
    ) -> AsyncIterator[tuple[Sample, TrialResult]]:
        """As :meth:`Client.evaluate`; the iterable is read on a thread. Cancelling the task also stops its
        jobs."""
        campaign = self._client.campaign(options or EvaluationOptions())
        results = campaign.run(samples, total)
        try:
            while (found := await asyncio.to_thread(next, results, None)) is not None:
                yield found
        finally:
            await asyncio.to_thread(campaign.stop)

    async def map(
        self,
        specs: Iterable[JobSpec],
        *,
        ordered: bool = True,
        window: int = 256,
        progress: Progress | None = None,
        api_key: str | None = None,
        cancel_waiting: bool = True,
    ) -> AsyncGenerator[JobResult | CellblockError, None]:
        """As :meth:`Client.map`; the iterable is read on a thread. Cancelling the task leaves the loop early
        too. After ``break``, asyncio ends the batch a moment later; :func:`contextlib.aclosing` ends it at
        once."""
        batch = self._client.batch(window=window, api_key=api_key, cancel_waiting=cancel_waiting)
        results, done = batch.run(specs, ordered=ordered), 0
        try:
            while (result := await asyncio.to_thread(next, results, None)) is not None:
                done += 1
                if progress is not None:
                    progress(done, result)
                yield result
        finally:
            await asyncio.to_thread(batch.stop)
