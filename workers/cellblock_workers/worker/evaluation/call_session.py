"""Calls go to functions in a sandbox, replies come back (guest/calls.py)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from cellblock_workers.guest.messages import Frame
from cellblock_workers.worker.evaluation.trial_session import TrialSession
from cellblock_workers.worker.frames import frame
from cellblock_workers.worker.session import Session

#: The longest reply a guest's side makes (guest/calls.py CALL_BYTES).
REPLY_BYTES = 1024 * 1024
_LENGTH = struct.Struct(">I")


class CallSession:
    """One sandbox whose job answers calls. A reply is only the job's claim: the caller has to check it."""

    def __init__(self, make_session: Callable[..., Session]) -> None:
        """``make_session``: makes the session, given what takes the pieces of the job's value."""
        self.trial = TrialSession(make_session(take_value=self._take_replies))
        self.garbled = False  #: whether the job sent something that is not a reply
        self._unread = bytearray()
        self._replies: list[bytes] = []
        self._taken = 0
        self._asked = 0

    @property
    def ended(self) -> bool:
        """Whether no more replies can come."""
        return self.garbled or self.trial.ended

    def ask(self, calls: Sequence[bytes], count: int, patience_s: float | None = None) -> list[bytes]:
        """Sends these messages and waits for ``count`` replies; fewer come back if the session has ended.

        ``patience_s``: how long to wait for them; without it, as long as the job may run at all.
        """
        if self.ended:  # no one reads them, and asking in a loop would fill the memory
            return []
        self.trial.send(b"".join(frame(Frame.CALL, call) for call in calls))
        wanted = self._asked = self._taken + count
        self.trial.wait(
            lambda: self.garbled or self._taken + len(self._replies) >= wanted, patience_s=patience_s
        )
        found, self._replies = self._replies, []
        self._taken += len(found)
        return found

    def _take_replies(self, piece: bytes) -> None:
        if self.garbled:  # nobody reads on, so nothing more is held
            return
        self._unread += piece
        while len(self._unread) >= _LENGTH.size and not self.garbled:
            (length,) = _LENGTH.unpack_from(self._unread)
            if length > REPLY_BYTES or self._taken + len(self._replies) >= self._asked:
                self.garbled = True  # a reply that was not asked for: the job's own loss
            elif len(self._unread) < _LENGTH.size + length:
                return
            else:
                self._replies.append(bytes(self._unread[_LENGTH.size : _LENGTH.size + length]))
                del self._unread[: _LENGTH.size + length]
