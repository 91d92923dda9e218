"""``cellblock archiver``: writes every job that has ended into the archive, and forgets what is over there.

A consumer group of the event stream, so any number may run: each end is written at least once, and twice is
once. What is read, written and acknowledged in this order survives any of them being killed.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import structlog

from cellblock.archive import Archive, open_archive
from cellblock.archive.database import archive_errors, row_of
from cellblock.archive.schema import check_version, is_empty, upgrade
from cellblock.blobs import open_blobs
from cellblock.errors import ArchiveUnavailable, NotConfigured, SchemaMismatch, StoreUnavailable
from cellblock.ledger import Keys, Ledger, connect
from cellblock.ledger.groups import ARCHIVE_GROUP, EventGroups
from cellblock.models import Event
from cellblock_config import Settings, load_settings
from cellblock_workers.store import check_store
from cellblock_workers.supervisor import REFUSED
from cellblock_workers.telemetry import configure_logging, die_with_parent

_log = structlog.get_logger(__name__)

_WAIT_S = 1.0
_AWAY_S = 1.0
#: What another archiver read and did not finish is taken over after this.
_REDELIVER_S = 60.0
_PRUNE_EVERY_S = 60.0


class Archiver:
    """Reads events, writes jobs, and acknowledges. Raises :class:`NotConfigured` without an archive."""

    def __init__(self, settings: Settings) -> None:
        archive = open_archive(settings.archive)
        if archive is None:
            raise NotConfigured("there is no archive: set CELLBLOCK_ARCHIVE_URL")
        self.archive: Archive = archive
        self._settings = settings.archive
        self._redis = connect(settings)
        self._ledger = Ledger(self._redis, settings, blobs=open_blobs(settings.blobs))
        self._groups = EventGroups(self._redis, self._ledger.keys)
        self._name = f"{socket.gethostname()}-{os.getpid()}"
        self._pruned = float("-inf")
        self._closing = threading.Event()

    def prepare(self) -> None:
        """Make the schema of an empty database, refuse another one.

        Raises :class:`ArchiveUnavailable`, :class:`SchemaMismatch`.
        """
        with archive_errors("looking at its schema"):
            if is_empty(self.archive.engine):
                upgrade(self.archive.engine)
                self._ledger.let_archive_owe()
            check_version(self.archive.engine)

    def run(self) -> None:
        """Until :meth:`stop`: what is away is waited for."""
        said = ""
        while not self._closing.is_set():
            try:
                self.step()
                said = self._say(said, "")
            except (StoreUnavailable, ArchiveUnavailable) as error:
                said = self._say(said, str(error))
                self._closing.wait(_AWAY_S)
            except Exception:  # a defect of ours: what was not acknowledged comes again
                _log.exception("archiver_crashed")
                self._closing.wait(_AWAY_S)

    def stop(self) -> None:
        """End after the step under way."""
        self._closing.set()

    def step(self) -> int:
        """Write what has ended, at most a batch, waiting a second for it. Returns how many events it took."""
        # Three events a job: what has not ended is read and done with.
        events = self._groups.read(
            ARCHIVE_GROUP,
            self._name,
            after="0",
            limit=3 * self._settings.batch,
            wait_s=_WAIT_S,
            redeliver_s=_REDELIVER_S,
        )
        owes = self._ledger.archive_owes()
        if owes is not None:
            self._write_all()
            self._ledger.archive_settled(owes)
        self._write([event.job_id for event in events if event.terminal])
        self._groups.acknowledge(ARCHIVE_GROUP, [event.id for event in events])
        self._ledger.archiver_was_here(behind=self._behind(events))
        if time.monotonic() - self._pruned > _PRUNE_EVERY_S:
            self.prune()
            self._pruned = time.monotonic()
        return len(events)

    def _write_all(self) -> None:
        """Events were dropped before they were read: every ended job that Redis still has is written."""
        _log.warning("archiver_missed_events")
        for job_ids in self._ledger.kept_pages():
            self._write(job_ids)

    def _behind(self, events: Sequence[Event]) -> float:
        """How old the last event is that it took, in seconds; 0 where it has taken all."""
        return max(0.0, time.time() - events[-1].at) if len(events) >= self._settings.batch else 0.0

    def _write(self, job_ids: Sequence[str]) -> None:
        """Each job once: an event may come again, and a dead letter may end twice."""
        left = list(dict.fromkeys(job_ids))
        while left:
            rows: list[dict[str, Any]] = []
            for job_id, record, result in self._ledger.ended(left):
                try:
                    rows.append(row_of(job_id, record, result))
                except (KeyError, ValueError):  # not written by us: it must not stop the others
                    _log.error("job_not_archived", job_id=job_id, reason="its record is not whole")
            self.archive.write(rows)

    def prune(self) -> None:
        """Forget what is over, page by page."""
        now_ms = round(1000 * time.time())
        while blobs := self.archive.expire_outputs(now_ms, self._settings):
            self._ledger.release_blobs([name for name in blobs if name])
        while self.archive.expire_records(now_ms, self._settings):
            pass

    def _say(self, before: str, now: str) -> str:
        if now and now != before:
            _log.error("archiver_waits", reason=now)
            self._report(now)
        elif before and not now:
            _log.info("archiver_goes_on")
        return now

    def _report(self, why: str) -> None:
        try:
            self._ledger.archiver_was_here(behind=0.0, error=why)
        except StoreUnavailable:  # it is that which is away
            _log.warning("archiver_not_reported")


def main() -> None:
    """Archive until TERM or INT."""
    die_with_parent()
    settings = load_settings()
    configure_logging(settings.telemetry)
    with closing(connect(settings)) as redis:
        try:
            check_store(redis, Keys(settings.redis.key_prefix))
        except SchemaMismatch as error:
            _log.error("archiver_refuses_the_store", reason=str(error))
            raise SystemExit(REFUSED) from None
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    try:
        archiver = Archiver(settings)
        _prepare(archiver, ended)
    except (NotConfigured, SchemaMismatch) as error:
        _log.error("archiver_refuses_the_archive", reason=str(error))
        raise SystemExit(REFUSED) from None
    thread = threading.Thread(target=archiver.run, name="archiver")
    thread.start()
    _log.info("archiver_started", batch=settings.archive.batch)
    ended.wait()
    archiver.stop()
    thread.join()


def _prepare(archiver: Archiver, ended: threading.Event) -> None:
    """Wait until the database answers."""
    said = ""
    while not ended.is_set():
        try:
            archiver.prepare()
            return
        except ArchiveUnavailable as error:
            if str(error) != said:
                said = str(error)
                _log.error("waiting_for_the_archive", setting="CELLBLOCK_ARCHIVE_URL", reason=said)
            ended.wait(_AWAY_S)


if __name__ == "__main__":
    main()
