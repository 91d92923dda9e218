"""What the scripts of the upkeep answer; the others are in replies.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Self

from cellblock.ledger.replies import WakingReply


class ReapWord(StrEnum):
    """What became of a job whose lease had run out."""

    LIVE = "live"  #: it has not, after all
    GONE = "gone"  #: the job does not run
    REQUEUED = "requeued"
    LOST = "lost"
    CANCELLED = "cancelled"


class ReapReply(WakingReply[ReapWord]):
    """Of a lost job."""

    script = "reap"
    words = ReapWord


class ExpireWord(StrEnum):
    """What became of a job whose time to start was over."""

    LIVE = "live"
    GONE = "gone"
    EXPIRED = "expired"


class ExpireReply(WakingReply[ExpireWord]):
    """Of a late job."""

    script = "expire"
    words = ExpireWord


class WakeWord(StrEnum):
    """What became of a pause."""

    WOKEN = "woken"
    GONE = "gone"
    LIVE = "live"  #: it is not over


class WakeReply(WakingReply[WakeWord]):
    """Of a delayed job."""

    script = "wake"
    words = WakeWord


class RefreshWord(StrEnum):
    """There is one."""

    REFRESHED = "refreshed"


class RefreshReply(WakingReply[RefreshWord]):
    """Of a lane."""

    script = "refresh_lane"
    words = RefreshWord


class FreeSlotWord(StrEnum):
    """What became of a slot."""

    FREED = "freed"
    HELD = "held"  #: its job runs, or a nested run of it does


@dataclass(frozen=True, slots=True)
class FreeSlotReply:
    """Of a slot."""

    script: ClassVar[str] = "free_slot"
    word: FreeSlotWord

    @classmethod
    def read(cls, values: Sequence[str]) -> Self:
        """As :class:`Reply` says."""
        return cls(FreeSlotWord(values[0]))


class DropWord(StrEnum):
    """What became of a dead letter."""

    DROPPED = "dropped"
    ALIVE = "alive"  #: it is none


@dataclass(frozen=True, slots=True)
class DropReply:
    """Of a dead letter."""

    script: ClassVar[str] = "drop"
    word: DropWord

    @classmethod
    def read(cls, values: Sequence[str]) -> Self:
        """As :class:`Reply` says."""
        return cls(DropWord(values[0]))


class TickWord(StrEnum):
    """Who leads the upkeep."""

    TICKED = "ticked"
    EXTENDED = "extended"  #: the caller; the store was away, and leases got their full length again
    FOLLOWS = "follows"  #: another


@dataclass(frozen=True, slots=True)
class TickReply:
    """``extended``: how many leases. ``left_ms``: how long the lead of the other lasts."""

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
        return cls(word, left_ms=numbers[0]) if word is TickWord.FOLLOWS else cls(word, *numbers)


class ResignWord(StrEnum):
    """Whether the caller led."""

    RESIGNED = "resigned"
    FOLLOWS = "follows"


@dataclass(frozen=True, slots=True)
class ResignReply:
    """Of the lead."""

    script: ClassVar[str] = "resign"
    word: ResignWord

    @classmethod
    def read(cls, values: Sequence[str]) -> Self:
        """As :class:`Reply` says."""
        return cls(ResignWord(values[0]))


class ForgetWord(StrEnum):
    """Whether the jobs left."""

    FORGOT = "forgot"
    STALE = "stale"  #: another leads, or the list is another by now


@dataclass(frozen=True, slots=True)
class ForgetReply:
    """``freed_bytes``: by the ledger's own count."""

    script: ClassVar[str] = "forget"
    word: ForgetWord
    freed_bytes: int = 0

    @classmethod
    def read(cls, values: Sequence[str]) -> Self:
        """As :class:`Reply` says."""
        return cls(ForgetWord(values[0]), *map(int, values[1:]))


class TrimWord(StrEnum):
    """Whether events left."""

    TRIMMED = "trimmed"
    STALE = "stale"  #: another leads by now


@dataclass(frozen=True, slots=True)
class TrimReply:
    """``count``: of events."""

    script: ClassVar[str] = "trim"
    word: TrimWord
    count: int = 0

    @classmethod
    def read(cls, values: Sequence[str]) -> Self:
        """As :class:`Reply` says."""
        return cls(TrimWord(values[0]), *map(int, values[1:]))


class OwedWord(StrEnum):
    """Whether the archive still owes a look at every ended job."""

    SETTLED = "settled"
    OWES = "owes"


@dataclass(frozen=True, slots=True)
class OwedReply:
    """Of what the archive owed."""

    script: ClassVar[str] = "owed"
    word: OwedWord

    @classmethod
    def read(cls, values: Sequence[str]) -> Self:
        """As :class:`Reply` says."""
        return cls(OwedWord(values[0]))


class ReleaseBlobsWord(StrEnum):
    """There is one."""

    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class ReleaseBlobsReply:
    """Of blobs."""

    script: ClassVar[str] = "release_blobs"
    word: ReleaseBlobsWord

    @classmethod
    def read(cls, values: Sequence[str]) -> Self:
        """As :class:`Reply` says."""
        return cls(ReleaseBlobsWord(values[0]))
