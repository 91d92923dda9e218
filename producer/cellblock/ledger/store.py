"""The Redis, names, scripts and settings that all parts of the ledger share."""

from __future__ import annotations

from dataclasses import dataclass

from redis import Redis

from cellblock.archive import Archive
from cellblock.blobs import Blobs
from cellblock.ledger.connection import server_ms
from cellblock.ledger.keys import Keys
from cellblock.ledger.script_calls import Scripts
from cellblock_config import LedgerSettings, Settings


@dataclass(slots=True)
class Store:
    """One Redis, the names and scripts of the ledger in it, and the settings that its parts work under."""

    redis: Redis
    keys: Keys
    scripts: Scripts
    settings: LedgerSettings
    #: How long an archived job stays in Redis, in seconds; None without an archive. The upkeep's leader also
    #: learns of archives that its own settings do not name.
    hot_s: int | None
    own_hot_s: int  #: ``hot_s`` from the settings, also where they name no archive
    has_archive: bool  #: whether the settings name an archive, also where this process does not read it
    embedded: bool  #: whether this is the in-process Redis of embedded runs
    blobs: Blobs | None  #: the store of long results
    archive: Archive | None  #: the store of jobs that have left Redis

    @classmethod
    def of(
        cls,
        redis: Redis,
        settings: Settings,
        *,
        embedded: bool = False,
        blobs: Blobs | None = None,
        archive: Archive | None = None,
    ) -> Store:
        """The store that these settings describe."""
        has_archive = settings.archive.url is not None
        return cls(
            redis=redis,
            keys=Keys(settings.redis.key_prefix),
            scripts=Scripts(redis, embedded=embedded),
            settings=settings.ledger,
            hot_s=settings.archive.hot_s if has_archive else None,
            own_hot_s=settings.archive.hot_s,
            has_archive=has_archive,
            embedded=embedded,
            blobs=blobs,
            archive=archive,
        )

    def now_ms(self) -> int:
        """The server's clock, in milliseconds since 1970."""
        return server_ms(self.redis)
