"""The state that the ledger and its archiver share."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from cellblock.archive.errors import another_archive
from cellblock.ledger.connection import get_bytes, get_in_pieces, store_errors
from cellblock.ledger.event_retention import EventStream
from cellblock.ledger.store import Store
from cellblock.ledger.upkeep_replies import OwedReply, ReleaseBlobsReply

#: The consumer group of `cellblock archiver`; no other reader may use it.
ARCHIVE_GROUP = "archive"
_PAGE = 500
_READ_BYTES = 4 * 1024 * 1024
#: A job with a longer result is written alone, and each try is counted before its result is read.
_ALONE_BYTES = 1024 * 1024
#: The most tries of a job alone; the next one archives its record only.
_TRIES_MAX = 2
#: Jobs that were set aside are reported for this long.
_SET_ASIDE_REPORTED_S = 86_400.0
_SET_ASIDE_NAMED = 20
#: A live archiver reports more often than this.
_SILENT_S = 15.0


#: Fields of the upkeep's hash that count tries, each with the id of its job.
_TRIES = "archive_tries:"
#: Its field with the identity of the archive that jobs are written to.
_WRITTEN_TO = "archive_id"


@dataclass(frozen=True, slots=True)
class Batch:
    """Jobs that are read and written together. ``alone``: one job, whose tries are counted."""

    job_ids: tuple[str, ...]
    alone: bool = False


@dataclass(frozen=True, slots=True)
class EndedJob:
    """An ended job as the store has it. ``result``: None if only its record can be archived."""

    job_id: str
    record: Mapping[str, str]
    result: bytes | bytearray | None


@dataclass(frozen=True, slots=True)
class ArchiverState:
    """The archiver's last report.

    ``silent_s``: the time since that report. ``behind_s``: the age of the last event that it had taken, 0 if
    it had taken all. ``error``: what it waited for; None if it did not wait.
    """

    silent_s: float
    behind_s: float
    error: str | None

    @property
    def late_s(self) -> float:
        """The highest possible age of an event that it has not written, in seconds."""
        return round(max(self.behind_s, self.silent_s if self.silent_s > _SILENT_S else 0.0), 1)

    @property
    def problem(self) -> str | None:
        """What is wrong with the archiver, in words; None if all is well."""
        if self.silent_s > _SILENT_S:
            silent = f"no archiver was heard of for {self.silent_s:.0f} s: is cellblock archiver running?"
            return f"{silent} Its last word: {self.error}" if self.error else silent
        return self.error


class Archiving:
    """What the ledger knows about its archive. Raises :class:`StoreUnavailable`. Thread-safe.

    The archive *owes* a look at every ended job when events do not tell it about all of them: it is new, or
    events were dropped that it had not read.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._redis, self._keys, self._scripts = store.redis, store.keys, store.scripts
        self._stream = EventStream(store.redis, store.keys)

    def state(self) -> ArchiverState | None:
        """The archiver's last report; None if no archiver has ever run."""
        with store_errors("asking after the archiver"):
            said = cast(str | None, self._redis.hget(self._keys.upkeep, "archiver"))
            now_s = self._store.now_ms() / 1000
        if said is None:
            return None
        told = json.loads(said)
        return ArchiverState(max(0.0, now_s - told["at"]), told["behind_s"], told.get("error") or None)

    def problem(self) -> str | None:
        """What is wrong with the archiver, in words; None if all is well, or if there is no archive."""
        state = self.state()
        if state is None:
            return "no archiver has ever run: run cellblock archiver" if self._store.has_archive else None
        if state.problem is None and (names := self._set_aside()):
            return (
                f"archivers ended while writing the output of {', '.join(names)}: only the record of each "
                "was archived"
            )
        return state.problem

    def report(self, *, behind_s: float, error: str = "") -> None:
        """Stores the archiver's report: that it lives, how far it is behind, and what it waits for."""
        with store_errors("reporting on the archive"):
            at = self._store.now_ms() / 1000
            said = {"at": at, "behind_s": round(behind_s, 1), "error": error}
            self._redis.hset(self._keys.upkeep, "archiver", json.dumps(said))

    def is_known(self) -> bool:
        """Whether an archiver has ever read events of this store, and has not been detached."""
        return self._stream.first_open(ARCHIVE_GROUP) is not None

    def detach(self) -> bool:
        """Detaches the archive, so that ended jobs leave the store without waiting for it. Returns whether
        the store had one. Call it while no archiver runs, and before workers start that have no archive."""
        with store_errors("detaching the archive"):
            self._redis.hdel(self._keys.upkeep, "archiver", "archive_owes", "archive_set_aside", _WRITTEN_TO)
            return self._stream.drop_group(ARCHIVE_GROUP)

    def written_to(self) -> str | None:
        """The identity of the archive that this store's jobs are written to; None before any was."""
        with store_errors("asking which archive this store has"):
            return cast(str | None, self._redis.hget(self._keys.upkeep, _WRITTEN_TO))

    def writes_to(self, archive_id: str) -> None:
        """Notes that this store's jobs are written to this archive.

        Raises :class:`ArchiveUnavailable` if they are written to another one.
        """
        with store_errors("noting which archive this store has"):
            pipe = self._redis.pipeline(transaction=False)
            pipe.hsetnx(self._keys.upkeep, _WRITTEN_TO, archive_id)
            pipe.hget(self._keys.upkeep, _WRITTEN_TO)
            _, noted = pipe.execute()
        if noted != archive_id:
            raise another_archive()

    def accept(self, archive_id: str) -> bool:
        """Lets this store's jobs be written to this archive from now on, those that it still has first.

        Returns whether they were written to another one before.
        """
        if self.written_to() in {None, archive_id}:
            return False
        self.let_it_owe()
        with store_errors("noting which archive this store has"):
            self._redis.hset(self._keys.upkeep, _WRITTEN_TO, archive_id)
        return True

    def owes_since(self) -> str | None:
        """The event since which the archive owes a look at every ended job; None if it does not owe one."""
        with store_errors("asking what the archive owes"):
            return cast(str | None, self._redis.hget(self._keys.upkeep, "archive_owes"))

    def let_it_owe(self) -> None:
        """Notes that the archive owes a look at every ended job."""
        with store_errors("noting what the archive owes"):
            self._redis.hsetnx(self._keys.upkeep, "archive_owes", "0-0")

    def settle(self, since: str) -> None:
        """Notes that the archive has looked, as it owed since this event. It still owes if more left."""
        self._scripts.call(OwedReply, {"upkeep": self._keys.upkeep}, {"since": since})

    def kept_pages(self) -> Iterator[list[str]]:
        """The ids of all ended jobs that are still in the store, in pages."""
        with store_errors("listing ended jobs"):
            keepers = [str(keeper) for keeper, _ in self._redis.zscan_iter(self._keys.keepers)]
        for keeper in keepers:
            tenant, _, seconds = keeper.rpartition(" ")
            # From the end: meanwhile the leader removes entries at the beginning.
            last = -1
            while True:
                with store_errors("listing ended jobs"):
                    page = self._redis.lrange(self._keys.kept(tenant, int(seconds)), last - _PAGE + 1, last)
                if not page:
                    break
                yield [str(entry).partition(" ")[0] for entry in page]
                last -= _PAGE

    def batches(self, job_ids: Sequence[str], *, one_by_one: bool = False) -> Iterator[Batch]:
        """These jobs in parts whose results are a few megabytes at most; one with a long result is alone.

        Args:
            job_ids: The jobs.
            one_by_one: Makes each job a part by itself, as an archiver may have ended because of one of them.
        """
        batch: list[str] = []
        taken_bytes = 0
        for job_id, size_bytes in zip(job_ids, self._result_sizes(job_ids), strict=True):
            alone = one_by_one or size_bytes > _ALONE_BYTES
            if batch and (alone or taken_bytes + size_bytes > _READ_BYTES):
                yield Batch(tuple(batch))
                batch, taken_bytes = [], 0
            if alone:
                yield Batch((job_id,), alone=True)
            else:
                batch.append(job_id)
                taken_bytes += size_bytes
        if batch:
            yield Batch(tuple(batch))

    def _result_sizes(self, job_ids: Sequence[str]) -> list[int]:
        with store_errors("reading the sizes of results"):
            pipe = self._redis.pipeline(transaction=False)
            for job_id in job_ids:
                pipe.strlen(self._keys.result(job_id))
            return cast(list[int], pipe.execute())

    def ended(self, batch: Batch) -> list[EndedJob]:
        """The jobs of a batch that have ended and are still in the store.

        A job that stands alone comes without its result once archivers have ended over it: then only its
        record can be kept.
        """
        if batch.alone:
            return self._ended_alone(batch.job_ids[0])
        with store_errors("reading ended jobs"):
            pipe = self._redis.pipeline(transaction=False)
            for job_id in batch.job_ids:
                pipe.hgetall(self._keys.job(job_id))
                get_bytes(pipe, self._keys.result(job_id))
            replies = pipe.execute()
        triples = zip(batch.job_ids, replies[::2], replies[1::2], strict=True)
        return [EndedJob(job_id, record, result) for job_id, record, result in triples if result is not None]

    def _ended_alone(self, job_id: str) -> list[EndedJob]:
        tries = self._count_try(job_id)
        with store_errors("reading an ended job"):
            record = cast(dict[str, str], self._redis.hgetall(self._keys.job(job_id)))
            if tries > _TRIES_MAX:
                result = None
            elif not (result := get_in_pieces(self._redis, self._keys.result(job_id))):
                return []
        return [EndedJob(job_id, record, result)] if "finished_ms" in record else []

    def _count_try(self, job_id: str) -> int:
        """Counts one more try to archive this job alone. Returns how many there were."""
        with store_errors("counting a try"):
            return int(self._redis.hincrby(self._keys.upkeep, f"{_TRIES}{job_id}", 1))

    def survived(self, batch: Batch) -> None:
        """Notes that no job of a batch has ended its archiver: it was written, or a store was away."""
        if batch.alone:
            with store_errors("noting that an archiver lives"):
                self._redis.hdel(self._keys.upkeep, f"{_TRIES}{batch.job_ids[0]}")

    def set_aside(self, job_id: str) -> None:
        """Notes that the output of this job was not archived, for operators to read."""
        with store_errors("noting a job that was set aside"):
            at = self._store.now_ms() / 1000
            names = list(dict.fromkeys([*self._set_aside(), job_id]))[-_SET_ASIDE_NAMED:]
            self._redis.hset(self._keys.upkeep, "archive_set_aside", json.dumps({"at": at, "jobs": names}))

    def _set_aside(self) -> list[str]:
        """The last jobs that were set aside, if the last one was a day ago or less."""
        with store_errors("reading which jobs were set aside"):
            stored = cast(str | None, self._redis.hget(self._keys.upkeep, "archive_set_aside"))
            now_s = self._store.now_ms() / 1000
        if stored is None:
            return []
        note = json.loads(stored)
        return list(note["jobs"]) if now_s - note["at"] < _SET_ASIDE_REPORTED_S else []

    def stored_limits(self, tenants: Iterable[str]) -> dict[str, int]:
        """What the outputs of each of these tenants may take of the archive, where its plan bounds them."""
        names = list(tenants)
        with store_errors("reading what tenants may keep"):
            pipe = self._redis.pipeline(transaction=False)
            for tenant in names:
                pipe.hget(self._keys.account(tenant), "bytes_stored")
            limits = cast(list[str | None], pipe.execute())
        return {
            tenant: int(limit) for tenant, limit in zip(names, limits, strict=True) if limit and int(limit)
        }

    def release_blobs(self, names: Sequence[str]) -> None:
        """Notes that the archive has removed its results in these blobs: what nothing names is removed."""
        self._scripts.call(
            ReleaseBlobsReply,
            {
                "upkeep": self._keys.upkeep,
                "blobs": self._keys.blobs,
                "freed_blobs": self._keys.freed_blobs,
            },
            {"op": secrets.token_hex(8), "names": names},
        )
