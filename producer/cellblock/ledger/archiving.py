"""What the ledger and its archivers tell each other."""

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

#: Of `cellblock archiver`; nobody else may read events in its name.
ARCHIVE_GROUP = "archive"
_PAGE = 500
_READ_BYTES = 8 * 1024 * 1024
#: An archiver that lives says so more often.
_SILENT_S = 15.0


@dataclass(frozen=True, slots=True)
class ArchiverState:
    """What the archiver last said of itself.

    ``silent_s``: since then. ``behind_s``: how old the last event was that it had taken, 0 if it had taken
    all. ``error``: what it waited for.
    """

    silent_s: float
    behind_s: float
    error: str | None

    @property
    def late_s(self) -> float:
        """How old what it has not written may be."""
        return round(max(self.behind_s, self.silent_s if self.silent_s > _SILENT_S else 0.0), 1)

    @property
    def problem(self) -> str | None:
        """What is wrong with it, in words; None if nothing is."""
        if self.silent_s > _SILENT_S:
            silent = f"no archiver was heard of for {self.silent_s:.0f} s: is cellblock archiver running?"
            return f"{silent} Its last word: {self.error}" if self.error else silent
        return self.error


class Archiving:
    """Raises :class:`StoreUnavailable`. Thread-safe.

    The archive *owes* a look at every ended job when it cannot know of all of them by their events: it is
    new, or events were dropped that it had not read.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._redis, self._keys, self._scripts = store.redis, store.keys, store.scripts
        self._stream = EventStream(store.redis, store.keys)

    def state(self) -> ArchiverState | None:
        """None if no archiver has ever run."""
        with store_errors("asking after the archiver"):
            said = cast(str | None, self._redis.hget(self._keys.upkeep, "archiver"))
            now_s = self._store.now_ms() / 1000
        if said is None:
            return None
        told = json.loads(said)
        return ArchiverState(max(0.0, now_s - told["at"]), told["behind_s"], told.get("error") or None)

    def problem(self) -> str | None:
        """What is wrong with the archiver, in words; None if nothing is, or if there is no archive."""
        state = self.state()
        if state is None:
            return "no archiver has ever run: run cellblock archiver" if self._store.has_archive else None
        return state.problem

    def report(self, *, behind_s: float, error: str = "") -> None:
        """The archiver says that it lives, how far it is behind, and what it waits for."""
        with store_errors("reporting on the archive"):
            at = self._store.now_ms() / 1000
            said = {"at": at, "behind_s": round(behind_s, 1), "error": error}
            self._redis.hset(self._keys.upkeep, "archiver", json.dumps(said))

    def is_known(self) -> bool:
        """Whether some archiver has read events of this store before."""
        return self._stream.first_open(ARCHIVE_GROUP) is not None

    def detach(self) -> bool:
        """The store has no archive from now on: what has ended leaves without waiting for one. Whether it had
        one. To be called when no archiver runs, and before workers start that have none."""
        with store_errors("detaching the archive"):
            self._redis.hdel(self._keys.upkeep, "archiver", "archive_owes")
            return self._stream.drop_group(ARCHIVE_GROUP)

    def owes_since(self) -> str | None:
        """The event since which the archive owes a look at every ended job; None if it owes none."""
        with store_errors("asking what the archive owes"):
            return cast(str | None, self._redis.hget(self._keys.upkeep, "archive_owes"))

    def let_it_owe(self) -> None:
        """From now on the archive owes that look."""
        with store_errors("noting what the archive owes"):
            self._redis.hsetnx(self._keys.upkeep, "archive_owes", "0-0")

    def settle(self, since: str) -> None:
        """It has looked, as it owed since this event; if more were dropped meanwhile it still owes."""
        self._scripts.call(OwedReply, {"upkeep": self._keys.upkeep}, {"since": since})

    def kept_pages(self) -> Iterator[list[str]]:
        """Ids of all ended jobs that are still here, in pages."""
        with store_errors("listing ended jobs"):
            keepers = [str(keeper) for keeper, _ in self._redis.zscan_iter(self._keys.keepers)]
        for keeper in keepers:
            tenant, _, seconds = keeper.rpartition(" ")
            # From the end: the leader takes away at the beginning meanwhile.
            last = -1
            while True:
                with store_errors("listing ended jobs"):
                    page = self._redis.lrange(self._keys.kept(tenant, int(seconds)), last - _PAGE + 1, last)
                if not page:
                    break
                yield [str(entry).partition(" ")[0] for entry in page]
                last -= _PAGE

    def ended(self, job_ids: list[str]) -> list[tuple[str, dict[str, str], str]]:
        """Id, record and stored result of the first of these jobs that have ended and are still here: as many
        as fit into a few megabytes, one at least. Those it has not looked at stay in ``job_ids``."""
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
        """Archived results in these blobs are forgotten: the sweep may remove them."""
        self._scripts.call(
            ReleaseBlobsReply,
            {"upkeep": self._keys.upkeep, "blobs": self._keys.blobs},
            {"op": secrets.token_hex(8), "names": names},
        )
