"""The reply of each script as a type: one word for the effect of the call, and the values behind it.

The headers of the scripts say what each word means for the store. Replies that carry jobs which can be
claimed now share :class:`WakingReply`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Generic, NamedTuple, Self, TypeVar

W = TypeVar("W", bound=StrEnum)


class AdmitWord(StrEnum):
    """The answer to a candidate."""

    ADMITTED = "admitted"
    KNOWN = "known"  #: admitted before, under the same id or key
    CONFLICT = "conflict"  #: its key belongs to another job
    FULL = "full"  #: too many jobs wait
    REFUSED = "refused"  #: by a limit of its plan, or by the bytes that its tenant holds
    ORPHAN = "orphan"  #: its parent does not run
    POOR = "poor"  #: its parent has too little money left
    NO_ROOM = "no room"  #: in the store


@dataclass(frozen=True, slots=True)
class Refused:
    """The limit that refused a job, its value, and the present use; money in micros.

    ``share``: for money, the part of ``used`` that is spent; for bytes, what the job itself would take.
    """

    limit: str
    allowed: int
    used: int
    retry_after_ms: int
    share: int


@dataclass(frozen=True, slots=True)
class AdmitReply:
    """The reply of ``admit``. Which numbers it carries, the word says."""

    script: ClassVar[str] = "admit"
    word: AdmitWord
    job_id: str = ""
    wake: tuple[str, ...] = ()
    refused: Refused | None = None
    waiting: int = 0  #: with FULL: jobs in the queue
    left_micros: int = 0  #: with POOR
    used_bytes: int = 0  #: with NO_ROOM, as the limit
    limit_bytes: int = 0

    @classmethod
    def read(cls, values: Sequence[str]) -> Self:
        """As :class:`Reply` says."""
        word, (first, *more) = AdmitWord(values[0]), values[1:]
        if word in {AdmitWord.ADMITTED, AdmitWord.KNOWN, AdmitWord.CONFLICT}:
            return cls(word, job_id=first, wake=tuple(more))
        if word is AdmitWord.REFUSED:
            allowed, used, retry_after_ms, share = map(int, more)
            return cls(
                word,
                refused=Refused(
                    limit=first, allowed=allowed, used=used, retry_after_ms=retry_after_ms, share=share
                ),
            )
        if word is AdmitWord.POOR:
            return cls(word, left_micros=int(first))
        if word is AdmitWord.NO_ROOM:
            return cls(word, used_bytes=int(first), limit_bytes=int(more[0]))
        return cls(word, waiting=int(first)) if word is AdmitWord.FULL else cls(word)


class PickWord(StrEnum):
    """Whether there was a job to claim."""

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
    """The answer to the claim of a picked job."""

    CLAIMED = "claimed"
    AGAIN = "again"  #: another worker was faster
    PASSED = "passed"  #: it cannot run, and is not picked again
    ORPHAN = "orphan"  #: its parent does not run any more: the caller has to end it


@dataclass(frozen=True, slots=True)
class ClaimReply:
    """The reply of ``claim``. All numbers are 0 if nothing was claimed. ``plan_ttl_s``: 0 without a plan."""

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
        """As :class:`Reply` says. Raises ValueError where a number is malformed: the record is not ours."""
        word = ClaimWord(values[0])
        if word is not ClaimWord.CLAIMED:
            return cls(word)
        fence, admitted_ms, started_ms, charged_micros, lent_micros, plan_ttl_s = map(int, values[1:])
        return cls(
            word,
            fence=fence,
            admitted_ms=admitted_ms,
            started_ms=started_ms,
            charged_micros=charged_micros,
            lent_micros=lent_micros,
            plan_ttl_s=plan_ttl_s,
        )


class PulseWord(StrEnum):
    """What a beat reports about one attempt."""

    HELD = "held"
    CANCEL = "cancel"  #: held, and asked to stop
    LOST = "lost"  #: it has to stop, and must not write anything


class Pulse(NamedTuple):
    """A beat's answer for one attempt. ``lent_micros``: what its nested runs hold of its money now."""

    word: PulseWord
    lent_micros: int = 0


@dataclass(frozen=True, slots=True)
class BeatReply:
    """One pulse for each attempt, in the order of the attempts in the call."""

    script: ClassVar[str] = "beat"
    pulses: tuple[Pulse, ...]

    @classmethod
    def read(cls, values: Sequence[str]) -> Self:
        """As :class:`Reply` says."""
        pairs = (value.split() for value in values)
        return cls(tuple(Pulse(PulseWord(word), int(lent)) for word, lent in pairs))


@dataclass(frozen=True, slots=True)
class WordReply(Generic[W]):
    """A reply of nothing but its word."""

    script: ClassVar[str]
    words: ClassVar[type[StrEnum]]
    word: W

    @classmethod
    def read(cls, values: Sequence[str]) -> Self:
        """As :class:`Reply` says."""
        word: W = cls.words(values[0])  # type: ignore[assignment]
        return cls(word)


@dataclass(frozen=True, slots=True)
class WakingReply(Generic[W]):
    """A reply with ``wake``: jobs that can be claimed now; the caller has to send their messages."""

    script: ClassVar[str]
    words: ClassVar[type[StrEnum]]
    word: W
    wake: tuple[str, ...] = ()

    @classmethod
    def read(cls, values: Sequence[str]) -> Self:
        """As :class:`Reply` says. The state of the job, behind "stale" and "terminal", is not kept."""
        word: W = cls.words(values[0])  # type: ignore[assignment]
        return cls(word, () if values[0] in {"stale", "terminal"} else tuple(values[1:]))


class FinishWord(StrEnum):
    """The answer to the end of an attempt."""

    FINISHED = "finished"
    RETRIED = "retried"  #: it failed and will run again
    STALE = "stale"  #: the attempt does not own the job any more; nothing was written
    NO_ROOM = "no room"  #: the store is too full for a result of this length; nothing was written


class FinishReply(WakingReply[FinishWord]):
    """The reply of ``finish``."""

    script = "finish"
    words = FinishWord


class ReleaseWord(StrEnum):
    """The answer to giving back a job."""

    RELEASED = "released"
    CANCELLED = "cancelled"  #: it had been asked to stop
    STALE = "stale"


class ReleaseReply(WakingReply[ReleaseWord]):
    """The reply of ``release``."""

    script = "release"
    words = ReleaseWord


class CancelWord(StrEnum):
    """The answer to a cancellation."""

    CANCELLED = "cancelled"  #: a waiting job has ended
    REQUESTED = "requested"  #: its worker will stop the running job
    TERMINAL = "terminal"  #: it had ended before
    UPLOADED = "uploaded"  #: only a job without its long parts was to be cancelled, and it has them
    UNKNOWN = "unknown"


class CancelReply(WakingReply[CancelWord]):
    """The reply of ``cancel``."""

    script = "cancel"
    words = CancelWord


class UploadedWord(StrEnum):
    """Whether an uploaded job can be claimed from now on."""

    READY = "ready"
    GONE = "gone"  #: it runs already, or has ended


class UploadedReply(WakingReply[UploadedWord]):
    """The reply of ``uploaded``."""

    script = "uploaded"
    words = UploadedWord


class FetchedWord(StrEnum):
    """Whether a job's result was noted as fetched."""

    NOTED = "noted"
    GONE = "gone"


class FetchedReply(WordReply[FetchedWord]):
    """The reply of ``fetched``."""

    script = "fetched"
    words = FetchedWord


class RetryWord(StrEnum):
    """The answer to an operator's retry."""

    RETRIED = "retried"
    ALIVE = "alive"  #: it is not a dead letter
    GONE = "gone"  #: its payload has expired


class RetryReply(WakingReply[RetryWord]):
    """The reply of ``retry``."""

    script = "retry"
    words = RetryWord
