"""The state that the ledger and its archiver share."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import cast

from cellblock.ledger.connection import store_errors
from cellblock.ledger.event_retention import EventStream
from cellblock.ledger.store import Store
from cellblock.ledger.upkeep_replies import OwedReply, ReleaseBlobsReply

#: The consumer group of `cellblock archiver`; no other reader may use it.
ARCHIVE_GROUP = "archive"
_PAGE = 500
_READ_BYTES = 8 * 1024 * 1024
#: A live archiver reports more often than this.
_SILENT_S = 15.0


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
            self._redis.hdel(self._keys.upkeep, "archiver", "archive_owes")
            return self._stream.drop_group(ARCHIVE_GROUP)

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

    def ended(self, job_ids: list[str]) -> list[tuple[str, dict[str, str], str]]:
        """Id, record and stored result of the first of these jobs that have ended and are still in the store:
        a few megabytes at most, but at least one job. Jobs not yet looked at stay in ``job_ids``."""
        with store_errors("reading ended jobs"):
            pipe = self._redis.pipeline(transaction=False)
            for job_id in job_ids:
                pipe.strlen(self._keys.result(job_id))
            sums = list(accumulate(cast(list[int], pipe.execute())))
            count = max(1, sum(total <= _READ_BYTES for total in sums)) if sums else 0
            taken, job_ids[:] = job_ids[:count], job_ids[count:]
            pipe = self._redis.pipeline(transaction=False)
            for job_id in taken:
                pipe.hgetall(self._keys.job(job_id))
                pipe.get(self._keys.result(job_id))
            found = pipe.execute()
        triples = zip(taken, found[::2], found[1::2], strict=True)
        return [(job_id, record, result) for job_id, record, result in triples if result is not None]

    def release_blobs(self, names: Sequence[str]) -> None:
        """Notes that the archive has removed its results in these blobs: the sweep may remove the blobs."""
        self._scripts.call(
            ReleaseBlobsReply,
            {"upkeep": self._keys.upkeep, "blobs": self._keys.blobs},
            {"op": secrets.token_hex(8), "names": names},
        )
