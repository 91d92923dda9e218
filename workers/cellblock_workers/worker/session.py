"""One session with one sandbox: the job goes in, bytes and an end come out, within a deadline."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cellblock.admission.resolve import ResolvedLimits
from cellblock.contract.outcomes import JobError
from cellblock.contract.results import Artifact, SkippedArtifact
from cellblock.egress import Governed, Governor
from cellblock.errors import SandboxUnavailable
from cellblock_config import Settings
from cellblock_workers.guest.messages import Frame
from cellblock_workers.launcher.client import BorrowedSandbox
from cellblock_workers.launcher.streams import close_aside, receive
from cellblock_workers.lease import Lease
from cellblock_workers.worker.artifacts import ArtifactReader
from cellblock_workers.worker.cost_meter import CostMeter
from cellblock_workers.worker.frames import FrameReader, ProtocolViolation
from cellblock_workers.worker.reported import Value, read_raised, read_value
from cellblock_workers.worker.send_queue import SendQueue

_PIECE_BYTES = 256 * 1024
#: How a result words the guest's reasons for an unfinished collection.
_UNFINISHED = {
    b"time": "collecting took longer than allowed",
    b"died": "the collection broke off",
    b"alive": "processes of the job outlived it, so its files could still change",
}

_MS_MAX = 10**12  # thirty years, of all processors together
_BYTES_MAX = 2**50
#: Why the host, rather than the guest, ended the session.
Stop = Literal["deadline", "output", "cost", "drain", "cancel", "lost"]


class Ending(BaseModel):
    """The guest's X frame."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    code: int | None = Field(ge=0, le=255)
    signal: int | None = Field(ge=1, le=127)
    reason: Literal["wall", "output", "enough"] | None
    full: Literal["bytes", "inodes"] | None
    crowded: bool
    cpu_ms: int = Field(ge=0, le=_MS_MAX)
    peak_bytes: int = Field(ge=0, le=_BYTES_MAX)
    wall_ms: int = Field(ge=0, le=_MS_MAX)


@dataclass(frozen=True, slots=True)
class Transcript:
    """All that a worker knows of a run before it asks the kernel.

    ``ending`` is None when the sandbox ended (or was stopped) before the guest could report. ``fault`` says
    what the guest did that no honest guest does.
    """

    stdout: Governed
    stderr: Governed
    output_bytes: int
    wall_ms: int
    ending: Ending | None = None
    raised: JobError | None = None
    value: Value = field(default_factory=Value)
    artifacts: tuple[Artifact, ...] = ()
    artifacts_skipped: tuple[SkippedArtifact, ...] = ()
    stop: Stop | None = None
    fault: str | None = None


class Session:
    """Runs one job in one sandbox. Holds no more in memory than the limits on what may come out."""

    def __init__(
        self,
        borrowed: BorrowedSandbox,
        launcher: socket.socket,
        lease: Lease,
        settings: Settings,
        meter: Callable[[], CostMeter] | None = None,
        *,
        announced: bool = False,
        take_value: Callable[[bytes], None] | None = None,
        on_stdout: Callable[[bytes], None] | None = None,
    ) -> None:
        """``meter``: makes the meter of a job with a price, when it begins. ``announced``: the guest waits
        already. ``take_value``: gets each piece of the value, which is then not in the transcript.
        ``on_stdout``: gets each piece of the standard output as well."""
        self._stream = borrowed.stream
        self._launcher = launcher
        self._lease = lease
        self._settings = settings
        self._reader = FrameReader(borrowed.framing)
        self._make_meter = meter
        self._take_value = take_value or self._keep_value
        self._on_stdout = on_stdout
        self._meter: CostMeter | None = None
        self._stdout = Governor(settings.egress)
        self._stderr = Governor(settings.egress)
        self._job: Iterable[bytes] = ()
        self._limits: ResolvedLimits
        self._outbox = SendQueue()
        self._ready = announced
        self._heard_raised = False
        self._started: float | None = None
        self._deadline = 0.0
        self._patience_s: float | None = None
        self._ended: float | None = None
        self._raised: JobError | None = None
        self._value = bytearray()
        self.ending: Ending | None = None  #: the guest's report, once it is there
        self._artifacts: ArtifactReader | None = None
        self._collected: bytes | None = None

    def run(self, job: Iterable[bytes], limits: ResolvedLimits, *, artifacts: bool = False) -> Transcript:
        """Hands over the job (job_frames.py) and listens until it ends. ``artifacts``: the job may leave
        some.

        Raises :class:`SandboxUnavailable` when the launcher dies meanwhile: the job has to run again.
        """
        if artifacts:
            self._artifacts = ArtifactReader(self._settings.ledger)
        self.hand_over(job, limits)
        try:
            stop = self.listen(lambda: self.over)
            return self.transcript(stop=stop)
        except ProtocolViolation as violation:
            self._artifacts = None
            return self.transcript(fault=str(violation))

    def hand_over(self, job: Iterable[bytes], limits: ResolvedLimits) -> None:
        """Sends this job as soon as the guest says that it is there."""
        self._stream.setblocking(False)
        self._job, self._limits = job, limits
        self._deadline = time.monotonic() + self._settings.sandbox.start_timeout_s
        if self._ready:
            self._begin()

    def listen(self, enough: Callable[[], bool]) -> Stop | None:
        """Takes what comes until ``enough()``, the end of the stream, or a reason to stop; returns that
        reason."""
        poll = select.poll()
        poll.register(self._lease.fileno(), select.POLLIN)
        poll.register(self._launcher, select.POLLIN)
        while not enough():
            poll.register(self._stream, select.POLLIN | (select.POLLOUT if self._outbox else 0))
            left_s = self._deadline - time.monotonic()
            if left_s <= 0:
                if self._started is None:
                    raise ProtocolViolation("the guest did not announce itself in time")
                return None if self.ending else "deadline"
            ready = dict(poll.poll(1000 * min(left_s, self._meter.wake_in_s if self._meter else left_s)))
            if self._lease.fileno() in ready:
                return self._lease.stopped
            if self._launcher.fileno() in ready:
                raise SandboxUnavailable("the launcher died under a running job")
            if self._outbox and ready.get(self._stream.fileno(), 0) & select.POLLOUT:
                self._write()
            if ready.get(self._stream.fileno(), 0) & ~select.POLLOUT and not self._read():
                return None
            if self._ready and self._started is None:
                self._begin()
            if (exceeded := self._exceeded()) is not None:
                return exceeded
        return None

    def wait_at_most(self, patience_s: float) -> None:
        """Listens for no longer than this from now on; before the job begins, from then on."""
        self._patience_s = patience_s
        if self._started is not None:
            self._deadline = time.monotonic() + patience_s

    def _begin(self) -> None:
        self._outbox.put(self._job)
        self._job = ()
        self._started = time.monotonic()
        self._meter = self._make_meter() if self._make_meter is not None else None
        usual_s = self._limits.timeout_s + self._settings.sandbox.kill_grace_s
        self._deadline = self._started + (usual_s if self._patience_s is None else self._patience_s)

    def _exceeded(self) -> Stop | None:
        """The limit that was passed, of those that only the host watches over."""
        if self._total_bytes() > self._limits.output_bytes:
            return "output"
        if self._meter is not None and not self._meter.due_in_s and self._meter.over():
            return "cost"
        return None

    @property
    def over(self) -> bool:
        """Whether the guest has sent everything it has to send."""
        return self.ending is not None and (self._artifacts is None or self._collected is not None)

    @property
    def drained(self) -> bool:
        """Whether everything that was to be sent has gone out."""
        return not self._outbox

    def send(self, frames: bytes) -> None:
        """Sends after what is queued already; before the guest is there, behind the job."""
        if self._started is None:
            self._job = chain(self._job, (frames,))
        else:
            self._outbox.put((frames,))

    def _write(self) -> None:
        try:
            self._outbox.sent(self._stream.send(self._outbox.first()[:_PIECE_BYTES]))
        except BlockingIOError:
            return
        except OSError:
            self._outbox.clear()  # the guest is gone; reading will say so

    def _read(self) -> bool:
        """Takes what has arrived. Returns False at the end of the stream."""
        try:
            data, descriptors = receive(self._stream, _PIECE_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if descriptors:
            close_aside(descriptors)
            raise ProtocolViolation("descriptors on the sandbox's stream")
        for kind, payload in self._reader.feed(data):
            self._take(kind, payload)
        return bool(data)

    def _take(self, kind: bytes, payload: bytes) -> None:
        if kind == Frame.READY:
            if self._ready:
                raise ProtocolViolation("the guest announced itself twice")
            self._ready = True
        elif kind in {Frame.ARTIFACTS, Frame.ARTIFACTS_END}:
            self._take_artifacts(kind, payload)
        elif self._started is None or self.ending is not None:
            raise ProtocolViolation(f"frame {kind.decode()} outside a job")
        elif not payload or (kind == Frame.RAISED and self._heard_raised):
            raise ProtocolViolation(f"frame {kind.decode()} that says nothing new")
        elif kind == Frame.STDOUT:
            self._take_stdout(payload)
        elif kind == Frame.STDERR:
            self._stderr.feed(payload)
        elif kind == Frame.VALUE:
            self._take_value(payload)
        elif kind == Frame.RAISED:
            self._heard_raised = True
            self._raised = read_raised(payload)
        else:
            self._take_ending(payload)

    def _take_stdout(self, piece: bytes) -> None:
        self._stdout.feed(piece)
        if self._on_stdout is not None:
            self._on_stdout(piece)

    def _keep_value(self, piece: bytes) -> None:
        self._value += piece
        if len(self._value) > self._settings.ledger.value_bytes + 1:
            raise ProtocolViolation("a value longer than the guest may pass on")

    def _take_ending(self, payload: bytes) -> None:
        try:
            self.ending = Ending.model_validate_json(payload)
        except ValidationError:
            raise ProtocolViolation("the guest's report of the end is malformed") from None
        self._ended = time.monotonic()
        self._meter = None  # what follows is at our cost
        if self._artifacts is not None:  # the job is over: now the guest has time of its own
            sandbox = self._settings.sandbox
            self._deadline = self._ended + sandbox.artifacts_s + sandbox.kill_grace_s

    def _take_artifacts(self, kind: bytes, payload: bytes) -> None:
        if self._artifacts is None or self.ending is None or self._collected is not None:
            raise ProtocolViolation(f"frame {kind.decode()} outside a collection")
        if kind == Frame.ARTIFACTS:
            self._artifacts.feed(payload)
        elif payload == b"done" or payload in _UNFINISHED:
            self._collected = payload
        else:
            raise ProtocolViolation("the guest ends a collection with an unknown word")

    def _total_bytes(self) -> int:
        return self._stdout.total_bytes + self._stderr.total_bytes

    def transcript(self, *, stop: Stop | None = None, fault: str | None = None) -> Transcript:
        """All that is known of the run. ``stop``, ``fault``: why the host ended it, if it did."""
        ended = self._ended or time.monotonic()
        artifacts, skipped = self._collection()
        return Transcript(
            stdout=self._stdout.close(),
            stderr=self._stderr.close(),
            output_bytes=self._total_bytes(),
            wall_ms=round((ended - self._started) * 1000) if self._started else 0,
            ending=self.ending,
            raised=self._raised,
            value=read_value(bytes(self._value), self._settings.ledger.value_bytes),
            artifacts=artifacts,
            artifacts_skipped=skipped,
            stop=stop,
            fault=fault,
        )

    def _collection(self) -> tuple[tuple[Artifact, ...], tuple[SkippedArtifact, ...]]:
        """The files that arrived whole, and a note on the rest if the collection was not finished."""
        if self._artifacts is None:
            return (), ()
        artifacts, skipped = self._artifacts.close(whole=self._collected == b"done")
        if self._collected == b"done":
            return artifacts, skipped
        why = _UNFINISHED.get(self._collected or b"", "the sandbox ended before its files were collected")
        return artifacts, (*skipped, SkippedArtifact(path=".", reason=why))
