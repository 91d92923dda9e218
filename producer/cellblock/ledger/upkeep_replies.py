"""The replies of the scripts of the upkeep; those of other scripts are in replies.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Self

from cellblock.ledger.replies import WakingReply, WordReply


class ReapWord(StrEnum):
    """The decision on a job whose lease had run out."""

    LIVE = "live"  #: its lease has not run out, or cannot be judged now
    GONE = "gone"  #: the job does not run
    REQUEUED = "requeued"
    LOST = "lost"
    CANCELLED = "cancelled"


class ReapReply(WakingReply[ReapWord]):
    """The reply of ``reap``."""

    script = "reap"
    words = ReapWord


class ExpireWord(StrEnum):
    """The decision on a job whose time to start was over."""

    LIVE = "live"
    GONE = "gone"
    EXPIRED = "expired"


class ExpireReply(WakingReply[ExpireWord]):
    """The reply of ``expire``."""

    script = "expire"
    words = ExpireWord


class WakeWord(StrEnum):
    """Whether the pause of a job ended."""

    WOKEN = "woken"
    GONE = "gone"
    LIVE = "live"  #: the pause is not over


class WakeReply(WakingReply[WakeWord]):
    """The reply of ``wake``."""

    script = "wake"
    words = WakeWord


class RefreshWord(StrEnum):
    """The only word of ``refresh_lane``."""

    REFRESHED = "refreshed"


class RefreshReply(WakingReply[RefreshWord]):
    """The reply of ``refresh_lane``."""

    script = "refresh_lane"
    words = RefreshWord


class FreeSlotWord(StrEnum):
    """Whether a slot was freed."""

    FREED = "freed"
    HELD = "held"  #: its job runs, or one of its nested runs does


class FreeSlotReply(WordReply[FreeSlotWord]):
    """The reply of ``free_slot``."""

    script = "free_slot"
    words = FreeSlotWord


class DropWord(StrEnum):
    """Whether a dead letter was dropped."""

    DROPPED = "dropped"
    ALIVE = "alive"  #: it is not a dead letter


class DropReply(WordReply[DropWord]):
    """The reply of ``drop``."""

    script = "drop"
    words = DropWord


class TickWord(StrEnum):
    """Who leads the upkeep."""

    TICKED = "ticked"
    EXTENDED = "extended"  #: the caller leads; the store was away, and leases got their full length again
    FOLLOWS = "follows"  #: another worker leads


@dataclass(frozen=True, slots=True)
class TickReply:
    """``extended``: the number of extended leases. ``left_ms``: how long another worker's lead lasts."""

    script: ClassVar[str] = "tick"
    word: TickWord
    epoch: int = 0
    used_bytes: int = 0
    limit_bytes: int = 0
    extended: int | None = None
    left_ms: int = 0

    @classmethod
    def read(cls, values: Sequence[str]) -> Self:
        """As :class:`Reply` says."""
        word, numbers = TickWord(values[0]), tuple(map(int, values[1:]))
        if word is TickWord.FOLLOWS:
            return cls(word, left_ms=numbers[0])
        epoch, used_bytes, limit_bytes, *extended = numbers
        return cls(
            word,
            epoch=epoch,
            used_bytes=used_bytes,
            limit_bytes=limit_bytes,
            extended=extended[0] if extended else None,
        )


class ResignWord(StrEnum):
    """Whether the caller led."""

    RESIGNED = "resigned"
    FOLLOWS = "follows"


class ResignReply(WordReply[ResignWord]):
    """The reply of ``resign``."""

    script = "resign"
    words = ResignWord


class ForgetWord(StrEnum):
    """Whether the jobs left."""

    FORGOT = "forgot"
    STALE = "stale"  #: another worker leads, or the list has changed


@dataclass(frozen=True, slots=True)
class ForgetReply:
    """The reply of ``forget``. ``freed_bytes``: by the ledger's own count."""

    script: ClassVar[str] = "forget"
    word: ForgetWord
    freed_bytes: int = 0

    @classmethod
    def read(cls, values: Sequence[str]) -> Self:
        """As :class:`Reply` says."""
        word = ForgetWord(values[0])
        return cls(word, freed_bytes=int(values[1])) if word is ForgetWord.FORGOT else cls(word)


class TrimWord(StrEnum):
    """Whether events left."""

    TRIMMED = "trimmed"
    STALE = "stale"  #: another worker leads by now


@dataclass(frozen=True, slots=True)
class TrimReply:
    """The reply of ``trim``. ``count``: the number of removed events."""

    script: ClassVar[str] = "trim"
    word: TrimWord
    count: int = 0

    @classmethod
    def read(cls, values: Sequence[str]) -> Self:
        """As :class:`Reply` says."""
        word = TrimWord(values[0])
        return cls(word, count=int(values[1])) if word is TrimWord.TRIMMED else cls(word)


class RemovedBlobsWord(StrEnum):
    """The only word of ``removed_blobs``."""

    REMOVED = "removed"


class RemovedBlobsReply(WordReply[RemovedBlobsWord]):
    """The reply of ``removed_blobs``."""

    script = "removed_blobs"
    words = RemovedBlobsWord


class OwedWord(StrEnum):
    """Whether the archive still owes a look at every ended job."""

    SETTLED = "settled"
    OWES = "owes"


class OwedReply(WordReply[OwedWord]):
    """The reply of ``owed``."""

    script = "owed"
    words = OwedWord


class ReleaseBlobsWord(StrEnum):
    """The only word of ``release_blobs``."""

    RELEASED = "released"


class ReleaseBlobsReply(WordReply[ReleaseBlobsWord]):
    """The reply of ``release_blobs``."""

    script = "release_blobs"
    words = ReleaseBlobsWord
