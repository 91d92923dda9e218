"""Blobs that no job names and that were left behind are removed, some hours after they were put there."""

from __future__ import annotations

import threading
import time

from cellblock.blobs import Blobs
from cellblock.errors import NotConfigured, StoreUnavailable
from cellblock.ledger import Ledger
from cellblock_workers.log import get_logger
from cellblock_workers.worker.blob_owner import require_owner

_log = get_logger(__name__)

_EVERY_S = 600.0


class BlobSweep:
    """Runs on a thread of its own, now and then: listing a bucket may take long."""

    def __init__(self, ledger: Ledger, blobs: Blobs) -> None:
        self._ledger = ledger
        self._blobs = blobs
        self._next = 0.0
        self._thread: threading.Thread | None = None

    def maybe_start(self) -> None:
        """Begins a sweep if the last one was long ago. The leader of the upkeep calls this."""
        if time.monotonic() < self._next or (self._thread is not None and self._thread.is_alive()):
            return
        self._next = time.monotonic() + _EVERY_S
        self._thread = threading.Thread(target=self._sweep_quietly, name="blob-sweep", daemon=True)
        self._thread.start()

    def sweep(self) -> int:
        """Removes the blobs that no job names. Returns how many.

        Raises :class:`StoreUnavailable`, and :class:`NotConfigured` where the blobs belong to another store:
        it would remove blobs that the other store's jobs name.

        A blob that may be older than this store stays until no job can name it: the store may have been lost
        or restored, and the archive still names the blob.
        """
        store = require_owner(self._ledger, self._blobs)
        removed = 0
        for page in self._blobs.old():
            named = self._ledger.reads.named_blobs(page)
            expired = [name for name in page if self._blobs.expired(name)]
            unnamed = [
                name for name in page if name not in named and not self._blobs.put_before(name, store.born)
            ]
            gone = list(dict.fromkeys([*expired, *unnamed]))
            self._blobs.remove(gone)
            self._ledger.upkeep.unname_blobs(expired)
            removed += len(gone)
        return removed

    def _sweep_quietly(self) -> None:
        try:
            removed = self.sweep()
        except (StoreUnavailable, NotConfigured) as error:
            _log.warning("blobs_not_swept", error=str(error))
        except Exception:  # a defect of ours: the next sweep finds what this one left
            _log.exception("blob_sweep_crashed")
        else:
            _log.info("blobs_swept", removed=removed)
