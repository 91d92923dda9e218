"""A session that asks: calls go to functions in a sandbox, replies come back (guest/calls.py)."""

from __future__ import annotations

import signal
import struct
import time
from collections.abc import Sequence

from cellblock.admission.resolve import ResolvedLimits
from cellblock_workers.guest.messages import Frame
from cellblock_workers.worker.frames import ProtocolViolation, frame
from cellblock_workers.worker.session import Session, Stop, Transcript

#: The longest reply a guest's side makes (guest/calls.py CALL_BYTES).
REPLY_BYTES = 1024 * 1024
_LENGTH = struct.Struct(">I")


class CallSession(Session):
    """One sandbox whose job answers calls. A reply is only the job's claim: the caller has to check it."""

    stop: Stop | None = None  #: why the host ended it
    garbled = False  #: whether the job sent something that is not a reply
    _fault: str | None = None
    _patience_s: float | None = None
    _waited_s = 0.0
    _asking_since: float | None = None
    _replies_taken = 0
    _asked = 0
    _finished = False

    def open(self, job: bytes, limits: ResolvedLimits) -> None:
        """Hands over the job and returns at once."""
        self._replies: list[bytes] = []
        self._hand_over((job,), limits)

    def ask(self, calls: Sequence[bytes], count: int, patience_s: float | None = None) -> list[bytes]:
        """Sends these messages and waits for ``count`` replies; fewer come back if the session has ended.

        ``patience_s``: how long to wait for them; without it, as long as the job may run at all.
        """
        if self.ended:  # no one reads them, and asking in a loop would fill the memory
            return []
        self._send(b"".join(frame(Frame.CALL, call) for call in calls))
        wanted = self._asked = self._replies_taken + count
        self._patience_s = patience_s
        if patience_s is not None and self._started is not None:
            self._deadline = time.monotonic() + patience_s

        self._asking_since = began = time.monotonic()

        def is_there() -> bool:
            return self._over or self.garbled or self._replies_taken + len(self._replies) >= wanted

        try:
            self.stop = self._listen(is_there)
        except ProtocolViolation as violation:
            self._fault = str(violation)
        else:
            self._finished = self._replies_taken + len(self._replies) < wanted
        finally:
            self._waited_s, self._asking_since = self._waited_s + time.monotonic() - began, None
        found, self._replies = self._replies, []
        self._replies_taken += len(found)
        return found

    def _begin(self) -> None:
        super()._begin()
        if self._patience_s is not None:  # a call was made before the guest was there
            self._deadline = time.monotonic() + self._patience_s

    @property
    def waited_ms(self) -> int:
        """How many milliseconds the session has waited for replies so far."""
        now_s = time.monotonic() - self._asking_since if self._asking_since is not None else 0.0
        return round(1000 * (self._waited_s + now_s))

    @property
    def ended(self) -> bool:
        """Whether no more replies can come."""
        return self._finished or self.garbled or bool(self.stop or self._fault) or self._over

    @property
    def cut_off(self) -> bool:
        """Whether the stream ended without a report of the guest's."""
        return self._finished and not (self.garbled or self._ending or self.stop or self._fault)

    @property
    def reported(self) -> bool:
        """Whether the guest has reported the job's end, and everything sent to it has gone out."""
        return self._over and not self._outbox and self._fault is None

    @property
    def killed(self) -> bool:
        """Whether SIGKILL ended the job, and not for a limit that the guest watches over."""
        return self._ending is not None and self._ending.signal == signal.SIGKILL and not self._ending.reason

    def enough(self, patience_s: float) -> bool:
        """Ends this job of a series, so that the next can begin. Returns False if that failed."""
        if not (self.reported or self.stop or self._fault or self.cut_off):
            if not self._over:
                self._send(frame(Frame.ENOUGH, b""))
            self._deadline = time.monotonic() + patience_s
            try:
                # What was on its way to the job still goes out to the guest, which drops it: otherwise half a
                # frame would be the beginning of the next job's.
                self._listen(lambda: self._over and not self._outbox)
            except ProtocolViolation as violation:
                self._fault = str(violation)
        return self.reported

    def transcript(self) -> Transcript:
        """All that is known of the run, for the code that decides its outcome."""
        return self._conversation(stop=self.stop, fault=self._fault)

    def _take_value(self, piece: bytes) -> None:
        self._value += piece
        while len(self._value) >= _LENGTH.size and not self.garbled:
            (length,) = _LENGTH.unpack_from(self._value)
            if length > REPLY_BYTES or self._replies_taken + len(self._replies) >= self._asked:
                self.garbled = True  # a reply that was not asked for: the job's own loss
            elif len(self._value) < _LENGTH.size + length:
                return
            else:
                self._replies.append(bytes(self._value[_LENGTH.size : _LENGTH.size + length]))
                del self._value[: _LENGTH.size + length]
