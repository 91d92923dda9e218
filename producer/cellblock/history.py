"""What was: ended jobs by tenant, time and outcome, and what tenants used on days gone by."""

from __future__ import annotations

import logging
from datetime import date, datetime

from cellblock.archive.database import Archive, JobFilter
from cellblock.contract.job_status import DayUsage, JobPage
from cellblock.contract.names import check_tenant
from cellblock.contract.outcomes import Outcome
from cellblock.errors import ArchiveUnavailable, InvalidJob, NotConfigured
from cellblock.ledger.figures import Figures
from cellblock.ledger.reads import status_of

_log = logging.getLogger(__name__)
_LISTED_MOST = 1000
_FIRST_DAY = date(1970, 1, 1)


class History:
    """Answers from the archive, and for the last days from the store."""

    def __init__(self, archive: Archive | None, figures: Figures) -> None:
        self._archive = archive
        self._figures = figures

    def usage(self, tenant: str | None, *, day: date | None, since: date | None) -> list[DayUsage]:
        """As ``Client.usage``."""
        if day is not None and since is not None:
            raise InvalidJob("since", "is for several days, and day for one: give one of them")
        if tenant is not None:
            check_tenant(tenant)
        recent = self._figures.usage(tenant, day)
        found = {(one.tenant, one.day): one for one in self._archived_usage(tenant, day, since)}
        found |= {(one.tenant, one.day): one for one in recent}
        chosen = [one for one in found.values() if since is None or one.day >= since]
        return sorted(chosen, key=lambda one: (one.day, one.tenant))

    def _archived_usage(self, tenant: str | None, day: date | None, since: date | None) -> list[DayUsage]:
        asked = day or since
        if asked is not None and asked >= self._figures.first_day_kept():
            return []
        if self._archive is None:
            if asked is not None:
                raise NotConfigured(
                    f"what was used on {asked} is in the archive, and there is none: set "
                    "CELLBLOCK_ARCHIVE_URL, or ask for the last forty days"
                )
            return []
        try:
            rows = self._archive.usage(tenant, asked or _FIRST_DAY, until=day)
        except ArchiveUnavailable as error:
            if asked is not None:
                raise
            _log.warning("what was used more than forty days ago is left out: %s", error)
            return []
        return [
            DayUsage(tenant=who, day=of_day, runs=runs, spent_micros=micros, reserved_micros=0)
            for who, of_day, runs, micros in rows
        ]

    def jobs(
        self,
        tenant: str | None,
        *,
        since: datetime | None,
        before: datetime | None,
        outcome: Outcome | str | None,
        limit: int,
        cursor: str | None,
    ) -> JobPage:
        """As ``Client.jobs``."""
        if self._archive is None:
            raise NotConfigured("jobs are listed from the archive: set CELLBLOCK_ARCHIVE_URL")
        if not 1 <= limit <= _LISTED_MOST:
            raise InvalidJob("limit", f"{limit}: 1 to {_LISTED_MOST}")
        if outcome is not None and outcome not in set(Outcome):
            raise InvalidJob(
                "outcome", f"{outcome!r:.80} is not an outcome; choose one of {', '.join(Outcome)}"
            )
        if tenant is not None:
            check_tenant(tenant)
        asked = JobFilter(tenant, _unix(since), _unix(before), outcome)
        found, on = self._archive.jobs(asked, limit, cursor)
        return JobPage(jobs=[status_of(one.job_id, one.record) for one in found], cursor=on)


def _unix(when: datetime | None) -> float | None:
    """Unix seconds. A time without a zone is the host's. Raises :class:`InvalidJob` for other types."""
    if when is not None and not isinstance(when, datetime):
        raise InvalidJob("since or before", f"{when!r:.80} is not a datetime")
    return when.timestamp() if when is not None else None
