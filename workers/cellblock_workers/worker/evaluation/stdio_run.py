"""One run of a program that reads its input, prints and ends: all it prints is kept."""

from __future__ import annotations

from collections.abc import Callable

from cellblock_workers.worker.evaluation.trial_session import TrialSession
from cellblock_workers.worker.session import Session


class StdioRun:
    """One run of an unchanged program, in a sandbox that no job was in before."""

    garbled = False  #: it answers no calls

    def __init__(self, make_session: Callable[..., Session]) -> None:
        """``make_session``: makes the session, given what gets the pieces of the output."""
        self._printed = bytearray()
        self.trial = TrialSession(make_session(on_stdout=self._printed.extend))

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self.trial.ended

    def finish(self) -> None:
        """Waits for the program's end. The session stops at the job's output limit, so no more than that is
        held."""
        self.trial.wait(lambda: False)

    @property
    def printed(self) -> bytes:
        """All that the program wrote to its standard output."""
        return bytes(self._printed)
