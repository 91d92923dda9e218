"""One conversation with one sandbox: the job goes in, bytes and an end come out, within a deadline."""

from __future__ import annotations

import json
import select
import socket
import time
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from cellblock.admission import Manifest
from cellblock.egress import Governed, Governor
from cellblock.errors import SandboxUnavailable
from cellblock.models import JobError
from cellblock_config import Settings
from cellblock_workers.launcher.client import Lent
from cellblock_workers.worker.frames import FrameReader, ProtocolViolation, frame
from cellblock_workers.worker.lease import Lease

_PIECE_BYTES = 256 * 1024
_STDIN_PIECE_BYTES = 1024 * 1024

#: Why the host, rather than the guest, ended the conversation.
Stop = Literal["deadline", "output", "cancel", "lost"]


class Ending(BaseModel):
    """The guest's X frame."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    code: int | None
    signal: int | None
    reason: Literal["wall", "output"] | None
    cpu_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """All a worker knows of a run before it asks the kernel.

    ``ending`` is None when the sandbox ended (or was stopped) before the guest could report; ``fault``
    says what the guest did that no honest guest does.
    """

    stdout: Governed
    stderr: Governed
    output_bytes: int
    wall_ms: int
    ending: Ending | None = None
    raised: JobError | None = None
    stop: Stop | None = None
    fault: str | None = None


class Session:
    """Drives one lent sandbox through one job. Holds at most the output limits in memory."""

    def __init__(self, lent: Lent, launcher: socket.socket, lease: Lease, settings: Settings) -> None:
        self._stream = lent.stream
        self._launcher = launcher
        self._lease = lease
        self._settings = settings
        self._reader = FrameReader(lent.framing)
        self._stdout = Governor(settings.egress)
        self._stderr = Governor(settings.egress)
        self._outbox = memoryview(b"")
        self._ready = False
        self._heard_raised = False
        self._started: float | None = None
        self._raised: JobError | None = None
        self._ending: Ending | None = None

    def run(self, manifest: Manifest) -> Conversation:
        """Hand over the job and listen to its end.

        Raises :class:`SandboxUnavailable` when the launcher dies underneath: the job has to run again.
        """
        self._stream.setblocking(False)
        try:
            stop = self._listen(manifest)
        except ProtocolViolation as violation:
            return self._conversation(fault=str(violation))
        return self._conversation(stop=stop)

    def _listen(self, manifest: Manifest) -> Stop | None:
        deadline = time.monotonic() + self._settings.sandbox.start_timeout_s
        poll = select.poll()
        poll.register(self._lease.fileno(), select.POLLIN)
        poll.register(self._launcher, select.POLLIN)
        while self._ending is None:
            poll.register(self._stream, select.POLLIN | (select.POLLOUT if self._outbox else 0))
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                if self._started is None:
                    raise ProtocolViolation("the guest did not announce itself in time")
                return "deadline"
            ready = dict(poll.poll(left_s * 1000))
            if self._lease.fileno() in ready:
                return self._lease.stopped
            if self._launcher.fileno() in ready:
                raise SandboxUnavailable("the launcher died under a running job")
            if self._outbox and ready.get(self._stream.fileno(), 0) & select.POLLOUT:
                self._write()
            if ready.get(self._stream.fileno(), 0) & ~select.POLLOUT and not self._read():
                return None
            if self._ready and self._started is None:
                self._outbox = memoryview(_job_frames(manifest))
                self._started = time.monotonic()
                limits = manifest.limits
                deadline = self._started + limits.timeout_s + self._settings.sandbox.kill_grace_s
            if self._total_bytes() > manifest.limits.output_bytes:
                return "output"
        return None

    def _write(self) -> None:
        try:
            sent = self._stream.send(self._outbox[:_PIECE_BYTES])
        except BlockingIOError:
            return
        except OSError:
            sent = len(self._outbox)  # the guest is gone; reading will say so
        self._outbox = self._outbox[sent:]

    def _read(self) -> bool:
        """Take what is there. False at the end of the stream."""
        try:
            data = self._stream.recv(_PIECE_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        for kind, payload in self._reader.feed(data):
            self._take(kind, payload)
        return bool(data)

    def _take(self, kind: bytes, payload: bytes) -> None:
        if kind == b"R":
            if self._ready:
                raise ProtocolViolation("the guest announced itself twice")
            self._ready = True
        elif self._started is None or self._ending is not None:
            raise ProtocolViolation(f"frame {kind.decode()} outside a job")
        elif not payload or (kind == b"T" and self._heard_raised):
            raise ProtocolViolation(f"frame {kind.decode()} that says nothing new")
        elif kind == b"O":
            self._stdout.feed(payload)
        elif kind == b"E":
            self._stderr.feed(payload)
        elif kind == b"T":
            self._heard_raised = True
            self._raised = _raised(payload)
        else:
            try:
                self._ending = Ending.model_validate_json(payload)
            except ValidationError:
                raise ProtocolViolation("the guest's report of the end is malformed") from None

    def _total_bytes(self) -> int:
        return self._stdout.total_bytes + self._stderr.total_bytes

    def _conversation(self, *, stop: Stop | None = None, fault: str | None = None) -> Conversation:
        return Conversation(
            stdout=self._stdout.close(),
            stderr=self._stderr.close(),
            output_bytes=self._total_bytes(),
            wall_ms=round((time.monotonic() - self._started) * 1000) if self._started else 0,
            ending=self._ending,
            raised=self._raised,
            stop=stop,
            fault=fault,
        )


def _job_frames(manifest: Manifest) -> bytes:
    limits, stdin = manifest.limits, manifest.stdin
    job = {
        "code": manifest.code,
        "args": list(manifest.args),
        "timeout_s": limits.timeout_s,
        "cpu_s": limits.cpu_s,
        "output_bytes": limits.output_bytes,
        "stdin_bytes": len(stdin),
    }
    pieces = [frame(b"J", json.dumps(job).encode())]
    pieces += [
        frame(b"I", stdin[i : i + _STDIN_PIECE_BYTES]) for i in range(0, len(stdin), _STDIN_PIECE_BYTES)
    ]
    return b"".join(pieces)


def _raised(payload: bytes) -> JobError | None:
    """What the job says it raised. It wrote this itself, so nonsense is its own loss, not a violation."""
    try:
        claim = JobError.model_validate_json(payload)
    except ValidationError:
        return None
    return JobError(type=claim.type[:200], message=claim.message[:4000], traceback=claim.traceback[-16_000:])
