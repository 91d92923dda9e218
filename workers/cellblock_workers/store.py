"""What every service of a fleet does with its Redis before anything else."""

from __future__ import annotations

import time
from dataclasses import asdict

import structlog
from redis import Redis

from cellblock.errors import StoreUnavailable
from cellblock.ledger import Keys
from cellblock.ledger.server import check_schema, concerns

_log = structlog.get_logger(__name__)
_AGAIN_S = 1.0


def check_store(redis: Redis, keys: Keys) -> None:
    """Wait until the store answers, refuse another version's, and warn of settings that lose jobs.

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
        for concern in concerns(redis):
            _log.warning("redis_setting", **asdict(concern))
    except StoreUnavailable as error:
        _log.warning("redis_settings_unknown", error=str(error))
