"""What every service of a fleet does with its Redis before anything else."""

from __future__ import annotations

import time
from dataclasses import asdict

import structlog
from redis import Redis

from cellblock.blobs import Blobs, check_blobs
from cellblock.errors import BlobLost, BlobsUnavailable, StoreUnavailable
from cellblock.ledger import Keys
from cellblock.ledger.server import check_schema, concerns

_log = structlog.get_logger(__name__)
_AGAIN_S = 1.0


def check_store(redis: Redis, keys: Keys, *, memory_bytes: int = 0) -> None:
    """Wait until the store answers, refuse another version's, and warn of settings that lose jobs.

    ``memory_bytes``: what the settings say the store may use.

    Raises :class:`SchemaMismatch`.
    """
    said = ""
    while True:
        try:
            check_schema(redis, keys)
            break
        except StoreUnavailable as error:
            if str(error) != said:
                said = str(error)
                _log.error("waiting_for_the_store", reason=said)
            time.sleep(_AGAIN_S)
    try:
        for concern in concerns(redis, memory_bytes=memory_bytes):
            _log.warning("redis_setting", **asdict(concern))
    except StoreUnavailable as error:
        _log.warning("redis_settings_unknown", error=str(error))


def wait_for_blobs(blobs: Blobs | None) -> None:
    """Wait until the blob store, where there is one, takes a blob and gives it back."""
    said = ""
    while blobs is not None:
        try:
            check_blobs(blobs)
            return
        except (BlobsUnavailable, BlobLost) as error:
            if str(error) != said:
                said = str(error)
                _log.error("waiting_for_the_blob_store", setting="CELLBLOCK_BLOBS_URL", reason=said)
            time.sleep(_AGAIN_S)
