"""The lists of ended jobs in the store: which jobs of a list may leave, and their removal.

A list holds a tenant's jobs that stay equally long, so it is in the order in which they leave in time. Those
that leave early can stand anywhere in it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import cast

from cellblock.contract.outcomes import OUR_FAULT
from cellblock.ledger.connection import store_errors
from cellblock.ledger.keys import EARLY_S
from cellblock.ledger.store import Store
from cellblock.ledger.upkeep_replies import ForgetReply, ForgetWord

#: The most jobs that leave in one call, and the jobs looked at for it.
_PAGE, _WINDOW = 100, 500
#: The fields of a record that say how its job ended, and what it has in the blob store.
_END = ("finished_ms", "idempotency", "outcome", "result_bytes", "fetched")
#: UNLED_S of scripts/prelude/constants.lua: how long Redis itself waits for a leader.
_UNARCHIVED_MS = 86_400_000
#: A list that is due and has to wait is looked at again after this.
_AGAIN_MS = 5000
#: A result that its caller has got is kept for this long: the caller's connection may have broken just then.
_FETCHED_LEAST_MS = 10_000


@dataclass(frozen=True, slots=True)
class Rules:
    """Which jobs may leave before their time. Jobs that the archive has always may.

    ``unarchived``: also jobs that it does not have, once their results have been fetched. ``unfetched``:
    among these, also those that nobody has fetched within ``result_least_s``. ``young``: also all younger
    ones. ``keys``: also the idempotency keys of jobs that left early.
    """

    unarchived: bool = False
    unfetched: bool = False
    young: bool = False
    keys: bool = False


ARCHIVED = Rules()
FETCHED = Rules(unarchived=True)
UNFETCHED = Rules(unarchived=True, unfetched=True)
YOUNG = Rules(unarchived=True, unfetched=True, young=True)
ALL = Rules(unarchived=True, unfetched=True, young=True, keys=True)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Room to make: in Redis, and in the blob store."""

    held_bytes: int = 0
    stored_bytes: int = 0

    def __bool__(self) -> bool:
        return self.held_bytes > 0 or self.stored_bytes > 0

    def less(self, page: Page) -> Wanted:
        """What is wanted after this page has left."""
        return Wanted(self.held_bytes - page.freed_bytes, self.stored_bytes - page.freed_stored_bytes)


@dataclass(frozen=True, slots=True)
class Page:
    """The entries that left in one call: their number, and their bytes by the ledger's own count.

    ``freed_stored_bytes``: of these in the blob store.
    """

    left: int = 0
    freed_bytes: int = 0
    freed_stored_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Entry:
    """One job of a list.

    ``leaves_ms``: when its time is over. ``looked_at_ms``: when the leader looks at it.
    """

    text: str
    ended_ms: int
    leaves_ms: int
    looked_at_ms: int
    archived: bool
    fetched: bool
    idempotency: str
    key_until_ms: int
    stored_bytes: int

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self.text.partition(" ")[0]

    @property
    def size_bytes(self) -> int:
        """What it takes of the store."""
        return int(self.text.split(" ", 2)[1])


class KeptLists:
    """Removes ended jobs from their lists, and from the store. Raises :class:`StoreUnavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._redis, self._keys, self._scripts = store.redis, store.keys, store.scripts
        self.archived_until_ms = 0  #: jobs that ended before this are in the archive

    def _of_tenant(self, tenant: str) -> list[str]:
        """The names of a tenant's lists among keepers, sorted by when their first jobs leave."""
        with store_errors("reading which jobs a tenant keeps"):
            fields = cast(list[str], self._redis.hkeys(self._keys.account(tenant)))
            lists = [field.removeprefix("list:") for field in fields if field.startswith("list:")]
            names = [f"{tenant} {seconds}" for seconds in lists]
            scores = self._redis.zmscore(self._keys.keepers, names) if names else []
        found = [(score, name) for score, name in zip(scores, names, strict=True) if score is not None]
        return [name for _, name in sorted(found)]

    def forget_due(self, epoch: int, keeper: str, now_ms: int) -> Page:
        """Removes the first jobs of a list whose time is over, a page at most."""
        entries = self._entries(keeper, _PAGE)
        leaving = list(takewhile(lambda entry: entry.leaves_ms <= now_ms, entries))
        next_ms = 1
        if len(leaving) < len(entries):  # it may wait for the archive, and must not block other lists
            next_ms = max(entries[len(leaving)].looked_at_ms, now_ms + _AGAIN_MS)
        return self._forget(epoch, keeper, leaving, next_ms)

    def forget_early(self, epoch: int, keeper: str, wanted: Wanted, rules: Rules) -> Page:
        """Removes jobs of a list that may leave by these rules, the oldest first, until there is room.

        A page at most.
        """
        if keeper.endswith(f" {EARLY_S}") and not rules.keys:
            return Page()
        with store_errors("looking at the clock"):
            now_ms = self._store.now_ms()
        leaving: list[_Entry] = []
        entries = self._entries(keeper, _WINDOW)
        for entry in entries:
            if not wanted or len(leaving) == _PAGE:
                break
            if wanted.held_bytes <= 0 and not entry.stored_bytes:
                continue  # it has nothing in the blob store, where room is wanted
            if not self._is_held(entry, now_ms, rules):
                leaving.append(entry)
                wanted = wanted.less(Page(1, entry.size_bytes, entry.stored_bytes))
        if not leaving:
            return Page()
        first_left = next((entry for entry in entries if entry not in leaving), None)
        return self._forget(epoch, keeper, leaving, first_left.looked_at_ms if first_left else 1)

    def forget_of_tenant(self, epoch: int, tenant: str, wanted: Wanted, rules: Rules, until: float) -> Wanted:
        """Removes jobs of one tenant until there is room, or no more may leave.

        ``until``: when to stop, by ``time.monotonic``. Returns what is missing.
        """
        for keeper in self._of_tenant(tenant):
            while wanted and time.monotonic() < until:
                page = self.forget_early(epoch, keeper, wanted, rules)
                wanted = wanted.less(page)
                if not page.left:
                    break
        return wanted

    def _is_held(self, entry: _Entry, now_ms: int, rules: Rules) -> bool:
        if entry.archived or rules.young:
            return not (entry.archived or rules.unarchived)
        if not rules.unarchived:
            return True
        least_ms = 1000 * self._store.settings.result_least_s
        if entry.fetched:
            return entry.ended_ms > now_ms - min(least_ms, _FETCHED_LEAST_MS)
        return not rules.unfetched or entry.ended_ms > now_ms - least_ms

    def _forget(self, epoch: int, keeper: str, leaving: Sequence[_Entry], next_ms: int) -> Page:
        keys, (tenant, _, seconds) = self._keys, keeper.rpartition(" ")
        forgot = self._scripts.call(
            ForgetReply,
            {
                "upkeep": keys.upkeep,
                "kept": keys.kept(tenant, int(seconds)),
                "early": keys.kept(tenant, EARLY_S),
                "keepers": keys.keepers,
                "account": keys.account(tenant),
                "dead": keys.dead,
                "blobs": keys.blobs,
                "freed_blobs": keys.freed_blobs,
                "of_jobs": [key for entry in leaving for key in self._keys_of(entry, tenant)],
            },
            {
                "epoch": epoch,
                "archived": sum(entry.archived for entry in leaving),
                "keeper": keeper,
                "next_ms": next_ms,
                "leaving": [part for entry in leaving for part in (entry.text, str(entry.key_until_ms))],
            },
        )
        if forgot.word is not ForgetWord.FORGOT:
            return Page()
        stored_bytes = sum(entry.stored_bytes for entry in leaving)
        return Page(len(leaving), forgot.freed_bytes, stored_bytes)

    def _keys_of(self, entry: _Entry, tenant: str) -> tuple[str, ...]:
        keys, job_id = self._keys, entry.job_id
        return (
            keys.job(job_id),
            keys.result(job_id),
            keys.spec(job_id),
            keys.attempts(job_id),
            keys.idempotency(tenant, entry.idempotency),
        )

    def _entries(self, keeper: str, count: int) -> list[_Entry]:
        """The first entries of a list."""
        tenant, _, seconds = keeper.rpartition(" ")
        with store_errors("reading which jobs a tenant keeps"):
            texts = cast(list[str], self._redis.lrange(self._keys.kept(tenant, int(seconds)), 0, count - 1))
            if int(seconds) == EARLY_S:
                return [self._early(text) for text in texts]
            pipe = self._redis.pipeline(transaction=False)
            for text in texts:
                pipe.hmget(self._keys.job(text.partition(" ")[0]), *_END)
            ends = cast(list[list[str | None]], pipe.execute()) if texts else []
        return [self._entry(text, 1000 * int(seconds), end) for text, end in zip(texts, ends, strict=True)]

    def _entry(self, text: str, stays_ms: int, end: Sequence[str | None]) -> _Entry:
        finished_ms, idempotency, outcome, stored_bytes, fetched = end
        ended_ms, dead = int(finished_ms or 0), outcome in OUR_FAULT
        archived = ended_ms < self.archived_until_ms
        hot_ms = stays_ms if self._store.hot_s is None or dead else 1000 * self._store.hot_s
        looked_at_ms = ended_ms + min(hot_ms, stays_ms)  # prelude/ending.lua computes the same
        leaves_ms = looked_at_ms
        if self._store.hot_s is not None and not dead and not archived:
            leaves_ms = ended_ms + stays_ms + _UNARCHIVED_MS  # it waits for the archive
        return _Entry(
            text=text,
            ended_ms=ended_ms,
            leaves_ms=leaves_ms,
            looked_at_ms=looked_at_ms,
            archived=archived,
            fetched=fetched is not None,
            idempotency=idempotency or "",
            key_until_ms=0 if archived else ended_ms + stays_ms,
            stored_bytes=int(stored_bytes or 0),
        )

    @staticmethod
    def _early(text: str) -> _Entry:
        """The key of a job that left early: its id, bytes, how long it holds (ms), and its name."""
        _, _, until_ms, name = text.split(" ", 3)
        return _Entry(
            text=text,
            ended_ms=0,
            leaves_ms=int(until_ms),
            looked_at_ms=int(until_ms),
            archived=False,
            fetched=False,
            idempotency=name,
            key_until_ms=0,
            stored_bytes=0,
        )
