"""The session of one trial, or of the judge: waits for what comes, and knows how it ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from cellblock.admission.resolve import ResolvedLimits
from cellblock_workers.guest.messages import Frame
from cellblock_workers.worker.frames import ProtocolViolation, frame
from cellblock_workers.worker.session import Session, Stop, Transcript


class TrialSession:
    """A session that is listened to in several steps, and whose sandbox may serve the next of a series."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.stop: Stop | None = None  #: why the host ended it
        self._fault: str | None = None
        self._stream_ended = False
        self._waited_s = 0.0
        self._waiting_since: float | None = None

    def open(self, job: bytes, limits: ResolvedLimits) -> None:
        """Hands over the job and returns at once."""
        self._session.hand_over((job,), limits)

    def send(self, frames: bytes) -> None:
        """Sends these frames as the guest takes them."""
        self._session.send(frames)

    def wait(self, enough: Callable[[], bool], *, patience_s: float | None = None) -> None:
        """Listens until ``enough()``, or until the session ends: then ``ended`` is true.

        ``patience_s``: how long to listen; without it, as long as the job may run at all.
        """
        if patience_s is not None:
            self._session.wait_at_most(patience_s)
        self._waiting_since = began = time.monotonic()
        try:
            self.stop = self._session.listen(lambda: self._session.over or enough())
        except ProtocolViolation as violation:
            self._fault = str(violation)
        else:
            self._stream_ended = not enough()
        finally:
            self._waited_s, self._waiting_since = self._waited_s + time.monotonic() - began, None

    @property
    def waited_ms(self) -> int:
        """How many milliseconds it has waited so far."""
        now_s = time.monotonic() - self._waiting_since if self._waiting_since is not None else 0.0
        return round(1000 * (self._waited_s + now_s))

    @property
    def ended(self) -> bool:
        """Whether nothing more can come."""
        return self._stream_ended or bool(self.stop or self._fault) or self._session.over

    @property
    def cut_off(self) -> bool:
        """Whether the stream ended without a report of the guest's."""
        return self._stream_ended and not (self._session.ending or self.stop or self._fault)

    @property
    def reported(self) -> bool:
        """Whether the guest has reported the job's end, and everything sent to it has gone out."""
        return self._session.over and self._session.drained and self._fault is None

    @property
    def killed(self) -> bool:
        """Whether SIGKILL ended the job, and not for a limit that the guest watches over."""
        ending = self._session.ending
        return ending is not None and ending.signal == signal.SIGKILL and not ending.reason

    def enough(self, patience_s: float) -> bool:
        """Ends this job of a series, so that the next can begin. Returns False if that failed."""
        if not (self.reported or self.stop or self._fault or self.cut_off):
            if not self._session.over:
                self._session.send(frame(Frame.ENOUGH, b""))
            self._session.wait_at_most(patience_s)
            try:
                # What was on its way to the job still goes out to the guest, which drops it: otherwise half a
                # frame would be the beginning of the next job's.
                self._session.listen(lambda: self._session.over and self._session.drained)
            except ProtocolViolation as violation:
                self._fault = str(violation)
        return self.reported

    def transcript(self) -> Transcript:
        """All that is known of the run, for the code that decides its outcome."""
        return self._session.transcript(stop=self.stop, fault=self._fault)
