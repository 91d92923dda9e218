"""What every service of a fleet does with its stores before anything else, and how it learns that it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import NoReturn

from redis import Redis

from cellblock.blobs import Blobs, check_blobs
from cellblock.errors import BlobLost, BlobsUnavailable, CellblockError, SchemaMismatch, StoreUnavailable
from cellblock.interrupts import on_stop
from cellblock.ledger import Keys
from cellblock.ledger.server import check_schema, concerns
from cellblock_config import Settings
from cellblock_workers.log import get_logger
from cellblock_workers.supervisor import REFUSED

_log = get_logger(__name__)
_AGAIN_S = 1.0
_SAYS_EVERY_S = 60.0


def until_it_answers(
    ask: Callable[[], object],
    *failures: type[CellblockError],
    event: str,
    ended: threading.Event | None = None,
    **said: str,
) -> None:
    """Calls ``ask`` again and again until it succeeds, or this service ends. The reason is logged once a
    minute.

    Raises what ``ask`` raises besides ``failures``.
    """
    reason, said_at, ended = "", 0.0, ended or threading.Event()
    while not ended.is_set():
        try:
            ask()
            return
        except failures as error:
            if str(error) != reason or time.monotonic() > said_at + _SAYS_EVERY_S:
                reason, said_at = str(error), time.monotonic()
                _log.error(event, reason=reason, **said)
            ended.wait(_AGAIN_S)


def check_store(redis: Redis, settings: Settings, *, service: str) -> None:
    """Waits until the store answers, and warns of its settings that lose jobs.

    Ends the process (``REFUSED``) if the store has another version.
    """
    keys = Keys(settings.redis.key_prefix)
    try:
        until_it_answers(lambda: check_schema(redis, keys), StoreUnavailable, event="waiting_for_the_store")
    except SchemaMismatch as error:
        refuse(f"{service}_refuses_the_store", str(error))
    try:
        for concern in concerns(redis, memory_bytes=settings.ledger.memory_bytes):
            _log.warning("redis_setting", **asdict(concern))
    except StoreUnavailable as error:
        _log.warning("redis_settings_unknown", error=str(error))


def wait_for_blobs(blobs: Blobs | None) -> None:
    """Waits until the blob store, if there is one, takes a blob and gives it back."""
    if blobs is not None:
        until_it_answers(
            lambda: check_blobs(blobs),
            BlobsUnavailable,
            BlobLost,
            event="waiting_for_the_blob_store",
            setting="CELLBLOCK_BLOBS_URL",
        )


def refuse(event: str, reason: str) -> NoReturn:
    """Ends this process so that it is not started again: an operator has to change something first."""
    _log.error(event, reason=reason)
    raise SystemExit(REFUSED) from None


def told_to_end() -> threading.Event:
    """An event that TERM, INT or HUP sets. Must be called by the main thread."""
    ended = threading.Event()
    on_stop(lambda *_: ended.set())
    return ended
