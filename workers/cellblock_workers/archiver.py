"""``cellblock archiver``: writes every job that has ended into the archive, and removes expired ones.

It is a consumer group of the event stream, so any number may run: each end is written at least once, and a
second write has no effect. It reads, writes and acknowledges in this order, so nothing is lost if one is
killed.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from cellblock.archive import Archive, open_archive
from cellblock.archive.database import row_of
from cellblock.archive.encryption import REMEDY, unencrypted_host
from cellblock.archive.errors import another_archive, archive_errors
from cellblock.archive.retention import ArchiveRetention
from cellblock.archive.schema import is_empty, upgrade
from cellblock.contract.events import Event
from cellblock.errors import ArchiveUnavailable, NotConfigured, SchemaMismatch, StoreUnavailable
from cellblock.ledger import connect
from cellblock.ledger.archiving import ARCHIVE_GROUP, Archiving, EndedJob
from cellblock.ledger.groups import Delivery, EventGroups
from cellblock.ledger.store import Store
from cellblock.ledger.stored_results import size_of
from cellblock_config import Settings, load_settings
from cellblock_workers.log import get_logger
from cellblock_workers.parent_death import die_with_parent
from cellblock_workers.process_environment import keep_to_itself, write_for_no_others
from cellblock_workers.store import check_store, refuse, told_to_end, until_it_answers
from cellblock_workers.telemetry import configure_logging

_log = get_logger(__name__)

_WAIT_S = 1.0
_AWAY_S = 1.0
#: Events that another archiver read and did not finish are taken over after this many seconds.
_REDELIVER_S = 60.0
_PRUNE_EVERY_S = 60.0
_PRUNES_S = 1.0  #: the length of one round


class Archiver:
    """Reads events, writes jobs, and acknowledges. Raises :class:`NotConfigured` without an archive."""

    def __init__(self, settings: Settings) -> None:
        archive = open_archive(settings.archive)
        if archive is None:
            raise NotConfigured("there is no archive: set CELLBLOCK_ARCHIVE_URL")
        self.archive: Archive = archive
        self._archive_id = ""
        self.retention = ArchiveRetention(archive)
        self._settings = settings.archive
        store = Store.of(connect(settings), settings)
        self._ledger = Archiving(store)
        self._groups = EventGroups(store.redis, store.keys)
        self._name = f"{socket.gethostname()}-{os.getpid()}"
        self._prunes_at = 0.0
        self._away: tuple[float, str] | None = None  # since when (monotonic), and what it waits for
        self._unfinished: Delivery | None = None  # what it read, and has not yet written and acknowledged
        self._closing = threading.Event()

    def prepare(self) -> None:
        """Makes the schema of an empty database, and refuses another one, and another archive than the one
        that the store's jobs were written to.

        Raises :class:`ArchiveUnavailable`, :class:`SchemaMismatch`, :class:`StoreUnavailable`.
        """
        try:
            self._make_schema()
            self._check()
        except ArchiveUnavailable as error:
            self._report_wait(str(error))
            raise

    def _make_schema(self) -> None:
        with archive_errors("looking at its schema", self.archive.engine):
            is_new = is_empty(self.archive.engine)
            if is_new and self._ledger.written_to() is not None:
                raise another_archive()
            if is_new or not self._ledger.is_known():
                self._ledger.let_it_owe()  # first: if this process ends now, the database is still empty
            if is_new:
                upgrade(self.archive.engine)

    def _check(self) -> None:
        self._archive_id = self.archive.identity()
        self._ledger.writes_to(self._archive_id)

    def run(self) -> None:
        """Archives until :meth:`stop`. Waits for a store that is away, and reports it for as long as it
        is."""
        while not self._closing.is_set():
            try:
                if self._away is not None:
                    self._check()  # a step with nothing to write would ask it nothing
                    _log.info("archiver_goes_on")
                    self._away = None
                self.step()
            except (StoreUnavailable, ArchiveUnavailable, SchemaMismatch) as error:
                self._wait_for(str(error))
                self._closing.wait(_AWAY_S)
            except Exception:  # a defect of ours: events that were not acknowledged come again
                _log.exception("archiver_crashed")
                self._closing.wait(_AWAY_S)

    def stop(self) -> None:
        """Stops after the step under way."""
        self._closing.set()

    def step(self) -> int:
        """Writes at most a batch of ended jobs; waits up to a second for one. Returns how many events it
        took."""
        delivery = self._unfinished or self._next()
        self._unfinished = delivery  # or a failure would put it off until it is delivered again
        self._ledger.writes_to(self._archive_id)  # or it would go on where another was accepted
        owes = self._ledger.owes_since()
        if owes is not None:
            self._write_all()
            self._ledger.settle(owes)
        events = delivery.events
        self._write([event.job_id for event in events if event.terminal], one_by_one=delivery.again)
        self._groups.acknowledge(ARCHIVE_GROUP, [event.id for event in events])
        self._unfinished = None
        self._ledger.report(behind_s=self._behind_s(events))
        if time.monotonic() > self._prunes_at:
            self._prunes_at = time.monotonic() + _PRUNE_EVERY_S  # also where it fails
            if not self.prune():
                self._prunes_at = 0.0
        return len(events)

    def _next(self) -> Delivery:
        # There are three events a job: events of jobs that have not ended are only acknowledged.
        return self._groups.deliver(
            ARCHIVE_GROUP,
            self._name,
            after="0",
            limit=3 * self._settings.batch,
            wait_s=_WAIT_S,
            redeliver_s=_REDELIVER_S,
        )

    def _write_all(self) -> None:
        """Writes every ended job in Redis: the archive is new, or events left before it had read them."""
        count = 0
        for job_ids in self._ledger.kept_pages():
            if not count:
                _log.warning("archiver_looks_at_all_jobs")
            count += len(job_ids)
            self._write(job_ids)

    def _behind_s(self, events: Sequence[Event]) -> float:
        """The age of the last event that it took, in seconds; 0 if it has taken all."""
        return max(0.0, time.time() - events[-1].at) if len(events) >= self._settings.batch else 0.0

    def _write(self, job_ids: Sequence[str], *, one_by_one: bool = False) -> None:
        """Writes each job once: an event may come again, and a dead letter may end twice."""
        for batch in self._ledger.batches(list(dict.fromkeys(job_ids)), one_by_one=one_by_one):
            try:
                jobs = self._ledger.ended(batch)
                rows = [row for job in jobs if (row := self._row(job)) is not None]
                self.archive.write(rows)
            except (ArchiveUnavailable, StoreUnavailable):  # this archiver lives: no job ended it
                with suppress(StoreUnavailable):
                    self._ledger.survived(batch)
                raise
            for job in jobs:
                if job.result is None:
                    self._ledger.set_aside(job.job_id)
            self._ledger.survived(batch)
            self._bound(rows)

    def _row(self, job: EndedJob) -> dict[str, Any] | None:
        """The job's row; None for a record that is not ours: it must not stop the others."""
        if job.result is None:
            _log.error("job_set_aside", job_id=job.job_id, reason="archivers ended while writing its output")
        try:
            return row_of(job.job_id, job.record, job.result, size_of(job.result) if job.result else 0)
        except (KeyError, ValueError):
            _log.error("job_not_archived", job_id=job.job_id, reason="its record is not whole")
            return None

    def _bound(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Removes the oldest outputs of tenants that now keep more than their plans let them."""
        written: Counter[str] = Counter()
        for row in rows:
            written[row["tenant"]] += row["output_bytes"]
        for tenant, limit_bytes in self._ledger.stored_limits(written).items():
            blobs = self.retention.bound(tenant, limit_bytes=limit_bytes, written_bytes=written[tenant])
            self._release(blobs)

    def _release(self, blobs: Sequence[str]) -> None:
        if names := [name for name in blobs if name]:
            self._ledger.release_blobs(names)

    def prune(self) -> bool:
        """Removes what has expired, page by page. Returns whether that is all; it stops after
        ``_PRUNES_S``."""
        now_ms, until = round(1000 * time.time()), time.monotonic() + _PRUNES_S
        while time.monotonic() < until and not self._closing.is_set():
            blobs = self.retention.expire_outputs(now_ms)
            self._release(blobs)
            if not blobs and not self.retention.expire_records(now_ms):
                return True
        return False

    def _wait_for(self, why: str) -> None:
        if self._away is None or self._away[1] != why:
            _log.error("archiver_waits", reason=why)
        self._report_wait(why)

    def _report_wait(self, why: str) -> None:
        since = self._away[0] if self._away is not None else time.monotonic()
        self._away = (since, why)
        try:
            self._ledger.report(behind_s=time.monotonic() - since, error=why)
        except StoreUnavailable:  # this is the store that is away
            _log.warning("archiver_not_reported")


def main() -> None:
    """Archives until TERM, INT or HUP."""
    die_with_parent()
    keep_to_itself()
    write_for_no_others()
    settings = load_settings()
    configure_logging(settings.telemetry)
    with closing(connect(settings)) as redis:
        check_store(redis, settings, service="archiver")
    ended = told_to_end()
    if (host := unencrypted_host(settings.archive)) is not None:
        _log.warning("archive_in_the_clear", host=host, remedy=REMEDY)
    try:
        archiver = Archiver(settings)
        until_it_answers(
            archiver.prepare,
            ArchiveUnavailable,
            StoreUnavailable,
            event="waiting_for_the_archive",
            ended=ended,
        )
    except (NotConfigured, SchemaMismatch) as error:
        refuse("archiver_refuses_the_archive", str(error))
    if ended.is_set():
        return
    thread = threading.Thread(target=archiver.run, name="archiver")
    thread.start()
    _log.info("archiver_started", batch=settings.archive.batch)
    ended.wait()
    archiver.stop()
    thread.join()


if __name__ == "__main__":
    main()
