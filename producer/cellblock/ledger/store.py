"""What all parts of the ledger share."""

from __future__ import annotations

from dataclasses import dataclass

from redis import Redis

from cellblock.archive import Archive
from cellblock.blobs import Blobs
from cellblock.ledger.connection import server_ms
from cellblock.ledger.keys import Keys
from cellblock.ledger.scripts import Scripts
from cellblock_config import LedgerSettings, Settings


@dataclass(slots=True)
class Store:
    """One Redis, the names and scripts of the ledger in it, and the settings that its parts work under."""

    redis: Redis
    keys: Keys
    scripts: Scripts
    settings: LedgerSettings
    #: How long an ended job stays that the archive has; None without an archive. Whoever leads the upkeep
    #: learns of archives that its own settings do not name.
    hot_s: int | None
    own_hot_s: int  #: the same by the settings, also where they name no archive
    has_archive: bool  #: whether the settings name one, also where this process does not read it
    embedded: bool  #: whether this is the in-process Redis of embedded runs
    blobs: Blobs | None  #: where long results are
    archive: Archive | None  #: where jobs are that have left

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
        """As the settings say."""
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
        """The server's clock."""
        return server_ms(self.redis)
