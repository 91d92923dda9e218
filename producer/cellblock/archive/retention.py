"""What leaves the archive: outputs and records whose time is over, and outputs beyond a tenant's limit."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from cellblock.archive.database import Archive
from cellblock.archive.errors import archive_errors

#: The most rows that one transaction removes.
_PAGE = 1000
#: Percent of its limit down to which a tenant's outputs leave: not every write has to remove some.
_DOWN_TO_PERCENT = 95
#: What other archivers wrote meanwhile is noticed after this.
_COUNTED_AGAIN_S = 60.0
_TENANTS_KEPT = 10_000


@dataclass(slots=True)
class _Count:
    """The bytes of a tenant's outputs: counted at this time (monotonic), and what was written since."""

    size_bytes: int
    at: float


class ArchiveRetention:
    """Removes from the archive. Raises :class:`ArchiveUnavailable`.

    Each job's output is removed by one caller only, also where several archivers remove at once: who removes
    it is told the blob that held it.
    """

    def __init__(self, archive: Archive, clock: Callable[[], float] = time.monotonic) -> None:
        self._archive = archive
        self._settings = archive.settings
        self._clock = clock
        self._counts: OrderedDict[str, _Count] = OrderedDict()

    def expire_outputs(self, now_ms: int) -> list[str]:
        """Removes a page of outputs whose time is over, by the settings or by their job's plan.

        Returns:
            The blob that held each: ``""`` where there was no blob.
        """
        from sqlalchemy import and_, or_

        from cellblock.archive.tables import JOBS

        settings, ended = self._settings, JOBS.c.finished_ms
        well = and_(JOBS.c.state == "succeeded", ended < now_ms - 1000 * settings.output_ttl_s)
        oldest_ms = now_ms - 1000 * settings.failed_output_ttl_s
        newest_ms = now_ms - 1000 * min(settings.output_ttl_s, settings.failed_output_ttl_s)
        # Each condition by itself is that of an index.
        by_settings = self._emptied(ended < newest_ms, or_(well, ended < oldest_ms))
        return by_settings or self._emptied(JOBS.c.plan_until_ms < now_ms)

    def _emptied(self, *conditions: object) -> list[str]:
        from sqlalchemy import select

        from cellblock.archive.tables import JOBS

        over = select(JOBS.c.job_id).where(JOBS.c.output.is_not(None), *conditions).limit(_PAGE)  # type: ignore[arg-type]
        emptied = (
            JOBS.update()
            # The database checks the second condition again on the locked row: another caller can be faster.
            .where(JOBS.c.job_id.in_(over), JOBS.c.output.is_not(None))
            .values(output=None)
            .returning(JOBS.c.result_blob)
        )
        with archive_errors("removing outputs", self._archive.engine), self._archive.engine.begin() as db:
            return [blob or "" for blob in db.execute(emptied).scalars()]

    def expire_records(self, now_ms: int) -> int:
        """Removes a page of records whose time is over. Returns their number."""
        from sqlalchemy import select

        from cellblock.archive.tables import JOBS

        old = (
            select(JOBS.c.job_id)
            .where(JOBS.c.finished_ms < now_ms - 1000 * self._settings.record_ttl_s)
            .limit(_PAGE)
        )
        with archive_errors("removing old jobs", self._archive.engine), self._archive.engine.begin() as db:
            return db.execute(JOBS.delete().where(JOBS.c.job_id.in_(old))).rowcount

    def bound(self, tenant: str, *, limit_bytes: int, written_bytes: int) -> list[str]:
        """Removes a tenant's oldest outputs while all of them take more than its plan's ``bytes_stored``.

        Args:
            tenant: The tenant.
            limit_bytes: What its outputs may take.
            written_bytes: The outputs of it that were written since the last call.

        Returns:
            The blob that held each output: ``""`` where there was no blob.
        """
        count = self._counts.get(tenant)
        if count is not None:
            count.size_bytes += written_bytes
        if count is None or count.size_bytes > limit_bytes or self._clock() > count.at + _COUNTED_AGAIN_S:
            count = self._counts[tenant] = _Count(self._stored_bytes(tenant), self._clock())
        self._counts.move_to_end(tenant)
        if len(self._counts) > _TENANTS_KEPT:
            self._counts.popitem(last=False)
        blobs: list[str] = []
        if count.size_bytes > limit_bytes:
            wanted = count.size_bytes - limit_bytes * _DOWN_TO_PERCENT // 100
            while wanted > 0 and (oldest := self._oldest(tenant, wanted)):
                ids = [job_id for job_id, _ in oldest]
                blobs += self._emptied(_among(ids))
                freed = sum(size_bytes for _, size_bytes in oldest)
                wanted, count.size_bytes = wanted - freed, count.size_bytes - freed
        return blobs

    def _stored_bytes(self, tenant: str) -> int:
        from sqlalchemy import func, select

        from cellblock.archive.tables import JOBS

        total = select(func.coalesce(func.sum(JOBS.c.output_bytes), 0)).where(
            JOBS.c.tenant == tenant, JOBS.c.output.is_not(None)
        )
        with archive_errors("adding up outputs", self._archive.engine), self._archive.engine.connect() as db:
            return int(db.execute(total).scalar_one())

    def _oldest(self, tenant: str, wanted_bytes: int) -> list[tuple[str, int]]:
        """Ids and sizes of the tenant's oldest outputs: as many as free the wanted bytes, a page at most."""
        from sqlalchemy import select

        from cellblock.archive.tables import JOBS

        query = (
            select(JOBS.c.job_id, JOBS.c.output_bytes)
            .where(JOBS.c.tenant == tenant, JOBS.c.output.is_not(None))
            .order_by(JOBS.c.finished_ms, JOBS.c.job_id)
            .limit(_PAGE)
        )
        oldest: list[tuple[str, int]] = []
        with (
            archive_errors("looking for old outputs", self._archive.engine),
            self._archive.engine.connect() as db,
        ):
            for job_id, size_bytes in db.execute(query):
                if wanted_bytes <= 0:
                    break
                oldest.append((str(job_id), int(size_bytes or 0)))
                wanted_bytes -= int(size_bytes or 0)
        return oldest


def _among(job_ids: list[str]) -> object:
    from cellblock.archive.tables import JOBS

    return JOBS.c.job_id.in_(job_ids)
