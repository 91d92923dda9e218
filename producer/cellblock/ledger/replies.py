"""What each script answers, as a type: the word for what came of the call, and the values behind it.

The headers of the scripts say what each word means for the store; those whose reply carries jobs that can be
claimed now share :class:`WakingReply`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Generic, NamedTuple, Self, TypeVar

W = TypeVar("W", bound=StrEnum)


class AdmitWord(StrEnum):
    """What became of a candidate."""

    ADMITTED = "admitted"
    KNOWN = "known"  #: admitted before, under the same id or key
    CONFLICT = "conflict"  #: its key is another job's
    FULL = "full"  #: too many jobs wait
    REFUSED = "refused"  #: by a limit of its plan, or by the bytes that its tenant holds
    ORPHAN = "orphan"  #: its parent does not run
    POOR = "poor"  #: its parent has too little money left
    NO_ROOM = "no room"  #: in the store


@dataclass(frozen=True, slots=True)
class Refused:
    """Which limit refused a job, what it allows, and what is used of it. Money is in micros."""

    limit: str
    allowed: int
    used: int
    retry_after_ms: int
    spent: int


@dataclass(frozen=True, slots=True)
class AdmitReply:
    """``numbers``: the jobs that wait, the micros that are left, or the bytes used of how many."""

    script: ClassVar[str] = "admit"
    word: AdmitWord
    job_id: str = ""
    wake: tuple[str, ...] = ()
    refused: Refused | None = None
    numbers: tuple[int, ...] = ()

    @classmethod
    def read(cls, values: Sequence[str]) -> Self:
        """As :class:`Reply` says."""
        word, (first, *more) = AdmitWord(values[0]), values[1:]
        if word in {AdmitWord.ADMITTED, AdmitWord.KNOWN, AdmitWord.CONFLICT}:
            return cls(word, job_id=first, wake=tuple(more))
        if word is AdmitWord.REFUSED:
            allowed, used, retry_after_ms, spent = map(int, more)
            return cls(word, refused=Refused(first, allowed, used, retry_after_ms, spent))
        if word is AdmitWord.ORPHAN:
            return cls(word)
        return cls(word, numbers=tuple(map(int, values[1:])))


class PickWord(StrEnum):
    """Whether anything could be claimed."""

    NEXT = "next"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class PickReply:
    """``turns``: lanes in the order of their turns, each with its first job; "" where a lane comes again."""

    script: ClassVar[str] = "pick"
    word: PickWord
    turns: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, values: Sequence[str]) -> Self:
        """As :class:`Reply` says."""
        return cls(PickWord(values[0]), tuple(zip(values[1::2], values[2::2], strict=True)))


class ClaimWord(StrEnum):
    """What became of a picked job."""

    CLAIMED = "claimed"
    AGAIN = "again"  #: another worker was faster
    PASSED = "passed"  #: it cannot run, and is not picked again
    ORPHAN = "orphan"  #: its parent does not run any more: it has to be ended


@dataclass(frozen=True, slots=True)
class ClaimReply:
    """The numbers are 0 where nothing was claimed. ``plan_ttl_s``: 0 without a plan."""

    script: ClassVar[str] = "claim"
    word: ClaimWord
    fence: int = 0
    admitted_ms: int = 0
    started_ms: int = 0
    charged_micros: int = 0
    lent_micros: int = 0
    plan_ttl_s: int = 0

    @classmethod
    def read(cls, values: Sequence[str]) -> Self:
        """As :class:`Reply` says. Raises ValueError for a number that is none: the record is not ours."""
        return cls(ClaimWord(values[0]), *map(int, values[1:]))


class PulseWord(StrEnum):
    """What a beat learned of one attempt."""

    HELD = "held"
    CANCEL = "cancel"  #: held, and asked to stop
    LOST = "lost"  #: it has to stop, and may write nothing


class Pulse(NamedTuple):
    """``lent_micros``: what nested runs of the attempt have of its money now."""

    word: PulseWord
    lent_micros: int = 0


@dataclass(frozen=True, slots=True)
class BeatReply:
    """One pulse for each attempt, in the order they were given."""

    script: ClassVar[str] = "beat"
    pulses: tuple[Pulse, ...]

    @classmethod
    def read(cls, values: Sequence[str]) -> Self:
        """As :class:`Reply` says."""
        pairs = (value.split() for value in values)
        return cls(tuple(Pulse(PulseWord(word), int(lent)) for word, lent in pairs))


@dataclass(frozen=True, slots=True)
class WakingReply(Generic[W]):
    """``wake``: jobs that can be claimed now; their messages have to be sent."""

    script: ClassVar[str]
    words: ClassVar[type[StrEnum]]
    word: W
    wake: tuple[str, ...] = ()

    @classmethod
    def read(cls, values: Sequence[str]) -> Self:
        """As :class:`Reply` says. Behind "stale" and "terminal" stands the state of the job."""
        word: W = cls.words(values[0])  # type: ignore[assignment]
        return cls(word, () if values[0] in {"stale", "terminal"} else tuple(values[1:]))


class FinishWord(StrEnum):
    """What became of an attempt's end."""

    FINISHED = "finished"
    RETRIED = "retried"  #: it failed and will run again
    STALE = "stale"  #: the attempt owns nothing any more; nothing was written
    NO_ROOM = "no room"  #: so long a result has to wait; nothing was written


class FinishReply(WakingReply[FinishWord]):
    """Of an end."""

    script = "finish"
    words = FinishWord


class ReleaseWord(StrEnum):
    """What became of a job that was given back."""

    RELEASED = "released"
    CANCELLED = "cancelled"  #: it had been asked to stop
    STALE = "stale"


class ReleaseReply(WakingReply[ReleaseWord]):
    """Of a job given back."""

    script = "release"
    words = ReleaseWord


class CancelWord(StrEnum):
    """What became of a cancellation."""

    CANCELLED = "cancelled"  #: a waiting job has ended
    REQUESTED = "requested"  #: the worker of a running one will stop it
    TERMINAL = "terminal"  #: it had ended
    UNKNOWN = "unknown"


class CancelReply(WakingReply[CancelWord]):
    """Of a cancellation."""

    script = "cancel"
    words = CancelWord


class RetryWord(StrEnum):
    """What became of an operator's retry."""

    RETRIED = "retried"
    ALIVE = "alive"  #: it is no dead letter
    GONE = "gone"  #: its payload has expired


class RetryReply(WakingReply[RetryWord]):
    """Of a dead letter."""

    script = "retry"
    words = RetryWord
