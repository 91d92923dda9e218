"""Blobs that nothing names any more and that are still to be removed: until then they count on their tenants'
accounts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, cast

from cellblock.ledger.connection import store_errors
from cellblock.ledger.store import Store
from cellblock.ledger.upkeep_replies import RemovedBlobsReply

#: They stay for this long: Redis may lose its last seconds, and the job that had ended then runs again.
_STAY_MS = 10_000


@dataclass(frozen=True, slots=True)
class FreedBlob:
    """An entry of the list, as ``free_blobs`` of scripts/prelude/blobs.lua writes it."""

    entry: str
    freed_ms: int
    name: str
    tenant: str

    @classmethod
    def of(cls, entry: str) -> Self:
        """Reads an entry."""
        freed_ms, _, name, tenant = entry.split(" ", 3)
        return cls(entry, int(freed_ms), name, tenant)


class FreedBlobs:
    """The list of them. Raises :class:`StoreUnavailable`. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._redis, self._keys, self._scripts = store.redis, store.keys, store.scripts

    def due(self, limit: int) -> list[FreedBlob]:
        """Up to ``limit`` blobs that may be removed now, those first that were freed first."""
        with store_errors("looking for blobs to remove"):
            entries = cast(list[str], self._redis.lrange(self._keys.freed_blobs, 0, limit - 1))
            by_ms = self._store.now_ms() - _STAY_MS if entries else 0
        return [blob for blob in map(FreedBlob.of, entries) if blob.freed_ms <= by_ms]

    def removed(self, blobs: Sequence[FreedBlob]) -> None:
        """Notes that these are not in the blob store any more: their bytes count no longer."""
        self._scripts.call(
            RemovedBlobsReply,
            {
                "freed_blobs": self._keys.freed_blobs,
                "accounts": [self._keys.account(blob.tenant) for blob in blobs],
            },
            {"entries": [blob.entry for blob in blobs]},
        )
