"""The worker's side of the launcher's socket."""

from __future__ import annotations

import os
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from cellblock.admission import ResolvedLimits
from cellblock.errors import CellblockError, SandboxUnavailable
from cellblock_workers.launcher.protocol import Acquire, Kill, Probe, Reply, Report, Request, receive, send


class SandboxRefused(CellblockError):
    """The launcher works and will not or cannot make this one sandbox; asking again changes nothing."""


@dataclass(slots=True)
class Lent:
    """A sandbox lent to this connection: its stream is ours to read, its life is the launcher's."""

    id: str
    isolation: str
    backend: str
    framing: str
    warm: bool
    stream: socket.socket


class LauncherClient:
    """One connection per thread, so that requests never wait for each other.

    Failures are :class:`SandboxUnavailable` (the launcher is gone, or says why it cannot now) or
    :class:`SandboxRefused`.
    """

    def __init__(self, path: Path, *, timeout_s: float) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._local = threading.local()

    def probe(self) -> Reply:
        """What the host can run now; ``isolation`` is None while nothing works."""
        reply, _ = self._ask(Probe())
        return reply

    def acquire(self, job_id: str, fence: int, image: str, limits: ResolvedLimits) -> Lent:
        """Borrow a fresh sandbox with these limits."""
        request = Acquire(
            job_id=job_id,
            fence=fence,
            image=image,
            memory_bytes=limits.memory_bytes,
            cpus=limits.cpus,
            pids=limits.pids,
        )
        reply, descriptors = self._ask(request)
        if len(descriptors) != 1 or not (
            reply.sandbox and reply.isolation and reply.backend and reply.framing
        ):
            raise SandboxUnavailable("the launcher lent a sandbox without its stream")
        stream = socket.socket(fileno=descriptors[0])
        return Lent(reply.sandbox, reply.isolation, reply.backend, reply.framing, bool(reply.warm), stream)

    def report(self, sandbox: str, *, ended: bool) -> Reply:
        """The kernel's and the daemon's word on a sandbox."""
        reply, _ = self._ask(Report(sandbox=sandbox, ended=ended))
        return reply

    def kill(self, lent: Lent) -> None:
        """Give a sandbox back to be destroyed. A launcher that is gone has destroyed it already."""
        lent.stream.close()
        with suppress(SandboxUnavailable, SandboxRefused):
            self._ask(Kill(sandbox=lent.id))

    def connection(self) -> socket.socket:
        """This thread's connection: it turns readable, with nothing to read, when the launcher dies."""
        connection: socket.socket | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            connection.settimeout(self._timeout_s)
            try:
                connection.connect(str(self._path))
            except OSError as error:
                connection.close()
                raise SandboxUnavailable(f"no launcher answers on {self._path}: {error}") from error
            _, owner, _ = struct.unpack(
                "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            )
            if owner not in {0, os.geteuid()}:
                connection.close()
                raise SandboxUnavailable(
                    f"what listens on {self._path} is uid {owner}, not a launcher to trust"
                )
            self._local.connection = connection
        return connection

    def close(self) -> None:
        """Close this thread's connection; whatever it had borrowed is destroyed."""
        connection: socket.socket | None = getattr(self._local, "connection", None)
        self._local.connection = None
        if connection is not None:
            connection.close()

    def _ask(self, request: Request) -> tuple[Reply, list[int]]:
        connection = self.connection()
        try:
            send(connection, request)
            packet, descriptors = receive(connection)
        except OSError as error:
            self.close()
            raise SandboxUnavailable(f"the launcher on {self._path} stopped answering: {error}") from error
        if not packet:
            self.close()
            raise SandboxUnavailable(f"the launcher on {self._path} closed the connection")
        try:
            reply = Reply.model_validate_json(packet)
        except ValidationError as error:
            for descriptor in descriptors:
                os.close(descriptor)
            raise SandboxUnavailable(f"the launcher on {self._path} answered nonsense") from error
        if reply.error in {"denied", "failed"}:
            raise SandboxRefused(reply.message or f"the launcher says {reply.error}")
        if not reply.ok:
            raise SandboxUnavailable(reply.message or "the launcher refused without a reason")
        return reply, descriptors
