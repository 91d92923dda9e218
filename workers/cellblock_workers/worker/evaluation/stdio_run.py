"""A transcript with a program that reads its input, prints and ends: all it prints is kept."""

from __future__ import annotations

from cellblock.egress import Governor
from cellblock_config.egress import EgressSettings
from cellblock_workers.worker.evaluation.call_session import CallSession
from cellblock_workers.worker.session import Session


class UncutOutput(Governor):
    """Keeps the whole stream as well. The caller bounds its length."""

    def __init__(self, settings: EgressSettings) -> None:
        super().__init__(settings)
        self.data = bytearray()

    def feed(self, chunk: bytes) -> None:
        """Takes the next bytes of the stream."""
        super().feed(chunk)
        self.data += chunk


class StdioRun(CallSession):
    """One run of an unchanged program, in a sandbox that no job was in before."""

    def finish(self) -> None:
        """Waits for the program's end. The session stops at the job's output limit, so no more than that is
        held."""
        self._stdout = self._whole = UncutOutput(self._settings.egress)
        self.ask([], 1)

    @property
    def printed(self) -> bytes:
        """All that the program wrote to its standard output."""
        return bytes(self._whole.data)

    def _take_value(self, piece: bytes) -> None:
        Session._take_value(self, piece)  # the value of its last expression, which is not used
