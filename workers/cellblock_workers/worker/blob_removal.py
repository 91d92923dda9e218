"""Blobs that their jobs let go of are removed, seconds later."""

from __future__ import annotations

import threading
import time

from cellblock.blobs import Blobs
from cellblock.errors import NotConfigured, StoreUnavailable
from cellblock.ledger import Ledger
from cellblock_workers.log import get_logger
from cellblock_workers.worker.blob_owner import require_owner

_log = get_logger(__name__)

#: The most removed in one request; S3 takes a thousand.
_PAGE = 500
#: After a failure they wait for this long.
_AGAIN_S = 30.0


class BlobRemoval:
    """Runs on a thread of its own while there is something to remove: the blob store may be slow."""

    def __init__(self, ledger: Ledger, blobs: Blobs) -> None:
        self._ledger = ledger
        self._blobs = blobs
        self._next = 0.0
        self._thread: threading.Thread | None = None

    def maybe_start(self) -> None:
        """Begins to remove if a blob is due. The leader of the upkeep calls this.

        Raises :class:`StoreUnavailable`.
        """
        if time.monotonic() < self._next or (self._thread is not None and self._thread.is_alive()):
            return
        if self._ledger.freed_blobs.due(1):
            self._thread = threading.Thread(target=self._remove_quietly, name="blob-removal", daemon=True)
            self._thread.start()

    def remove(self) -> int:
        """Removes all blobs that are due. Returns how many.

        Raises :class:`StoreUnavailable`, and :class:`NotConfigured` where the blobs belong to another store.
        """
        count = 0
        while due := self._ledger.freed_blobs.due(_PAGE):
            require_owner(self._ledger, self._blobs)
            self._blobs.remove([blob.name for blob in due])
            self._ledger.freed_blobs.removed(due)
            count += len(due)
        return count

    def _remove_quietly(self) -> None:
        try:
            self.remove()
        except (StoreUnavailable, NotConfigured) as error:
            _log.warning("blobs_not_removed", error=str(error))
        except Exception:  # a defect of ours: the sweep finds what this leaves
            _log.exception("blob_removal_crashed")
        else:
            return
        self._next = time.monotonic() + _AGAIN_S
