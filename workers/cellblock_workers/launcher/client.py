"""The worker's side of the launcher's socket."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from cellblock.admission.resolve import ResolvedLimits
from cellblock.errors import CellblockError, SandboxUnavailable
from cellblock_config import LevelName
from cellblock_workers.launcher.evidence import Evidence
from cellblock_workers.launcher.protocol import (
    Acquire,
    ErrorCode,
    Kill,
    Probe,
    Renew,
    Reply,
    Report,
    Request,
    receive,
    send,
)

_PROBE_AGAIN_S = 0.02
_RENEWED_AT_ONCE = 200


class SandboxRefused(CellblockError):
    """The launcher works, but does not make this one sandbox; asking again changes nothing."""


class LevelNotOffered(SandboxRefused):
    """Nothing on this host satisfies the job's level; the message names the isolations and the remedies."""


class SandboxNotStarting(SandboxRefused):
    """The image starts only with more memory than the job asked for."""


class LevelUnavailable(SandboxUnavailable):
    """No isolation for the job's level works at this moment, on a host where jobs of other levels run."""


class ContextNotMounted(SandboxRefused):
    """The launcher does not show this file to jobs; the message names the path and the setting."""


_ERRORS: dict[ErrorCode, type[CellblockError]] = {
    "denied": SandboxRefused,
    "failed": SandboxRefused,
    "start": SandboxNotStarting,
    "refused": LevelNotOffered,
    "level": LevelUnavailable,
    "context": ContextNotMounted,
}


@dataclass(slots=True)
class BorrowedSandbox:
    """A sandbox lent to this connection: its stream is ours to read, its life is the launcher's."""

    id: str
    isolation: str
    backend: str
    framing: str
    warm: bool
    stream: socket.socket
    context_bytes: int | None = None  #: how long the mounted context is; None where none was asked for
    context: int | None = None  #: a descriptor to read it by; the borrower closes it
    series: int = 0  #: sandboxes under one guest; 0: a single one
    start_cpu_ms: int = 0  #: the CPU time of its start, if it was started for this job alone

    def close(self) -> None:
        """Closes what was passed with the sandbox. Idempotent."""
        self.stream.close()
        if self.context is not None:
            os.close(self.context)
            self.context = None


class LauncherClient:
    """One connection per thread, so that requests never wait for each other.

    Failures are :class:`SandboxUnavailable` (the launcher is gone, or says why it cannot serve now) or
    :class:`SandboxRefused`.
    """

    def __init__(
        self,
        path: Path,
        *,
        timeout_s: float,
        refuse: Callable[[BorrowedSandbox], str | None] = lambda sandbox: None,
    ) -> None:
        """``refuse`` says why a sandbox must not be used, before anything of a job has gone into it."""
        self._path = path
        self._timeout_s = timeout_s
        self._refuse = refuse
        self._local = threading.local()

    def probe(self) -> Reply:
        """What the host can run now: ``isolations`` by level, empty while nothing works."""
        reply, _ = self._ask(Probe())
        return reply

    def await_probe(self, timeout_s: float) -> Reply:
        """The first answer of :meth:`probe` that says what works, or why nothing does.

        Raises :class:`SandboxUnavailable` when there is none within ``timeout_s``.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            reply = self.probe()
            if reply.isolations or reply.reasons:
                return reply
            if time.monotonic() > deadline:
                raise SandboxUnavailable(f"the launcher's probe gave no answer within {timeout_s:g} s")
            time.sleep(_PROBE_AGAIN_S)

    def acquire(
        self,
        *,
        job_id: str,
        fence: int,
        level: LevelName,
        image: str,
        limits: ResolvedLimits,
        context: str | None = None,
        lease_s: float | None = None,
        series: int = 0,
        tenant: str = "",
    ) -> BorrowedSandbox:
        """Borrows a fresh sandbox of this level, with these limits and this context file in it.

        ``series``: how many to make under one guest, for jobs that run one after the other; the answer's
        ``series`` says how many there are.

        With ``lease_s`` the launcher destroys it when :meth:`renew` has not named it for that many seconds.
        """
        request = Acquire(
            job_id=job_id,
            fence=fence,
            level=level,
            image=image,
            memory_bytes=limits.memory_bytes,
            cpus=limits.cpus,
            pids=limits.pids,
            tenant=tenant,
            context=context,
            lease_s=lease_s,
            series=series,
        )
        reply, descriptors = self._ask(request)
        if len(descriptors) != 1 + (context is not None) or not (
            reply.sandbox and reply.isolation and reply.backend and reply.framing
        ):
            for descriptor in descriptors:
                os.close(descriptor)
            raise SandboxUnavailable("the launcher handed over a sandbox without its stream or its context")
        stream = socket.socket(fileno=descriptors[0])
        sandbox = BorrowedSandbox(
            id=reply.sandbox,
            isolation=reply.isolation,
            backend=reply.backend,
            framing=reply.framing,
            warm=bool(reply.warm),
            stream=stream,
            context_bytes=reply.context_bytes,
            context=descriptors[1] if context is not None else None,
            series=reply.series or 0,
            start_cpu_ms=reply.start_cpu_ms or 0,
        )
        try:
            why = self._refuse(sandbox)
        except BaseException:
            self.kill(sandbox)
            raise
        if why is not None:
            self.kill(sandbox)
            raise SandboxUnavailable(why)
        return sandbox

    def usage(self, sandbox: BorrowedSandbox) -> Evidence:
        """What the kernel knows of a sandbox that goes on running."""
        reply, _ = self._ask(Report(sandbox=sandbox.id))
        return reply.evidence or Evidence()

    def give_back(self, sandbox: BorrowedSandbox, *, ended: bool) -> Evidence:
        """Has a sandbox destroyed. Returns the last that the kernel and the daemon know of it.

        This is one request instead of two, because every job makes it.
        """
        reply, _ = self._ask(Report(sandbox=sandbox.id, ended=ended, final=True))
        sandbox.stream.close()
        return reply.evidence or Evidence()

    def renew(self, sandboxes: Sequence[str]) -> None:
        """Names the sandboxes that are still needed. Raises :class:`SandboxUnavailable`."""
        for first in range(0, len(sandboxes), _RENEWED_AT_ONCE):
            self._ask(Renew(sandboxes=list(sandboxes[first : first + _RENEWED_AT_ONCE])))

    def kill(self, sandbox: BorrowedSandbox) -> None:
        """Has a sandbox destroyed. Never fails: a launcher that is gone has already destroyed it."""
        sandbox.close()
        with suppress(SandboxUnavailable, SandboxRefused):
            self._ask(Kill(sandbox=sandbox.id))

    def connection(self) -> socket.socket:
        """This thread's connection. It turns readable, with nothing to read, when the launcher dies."""
        connection: socket.socket | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            connection.settimeout(self._timeout_s)
            try:
                connection.connect(str(self._path))
            except OSError as error:
                connection.close()
                raise SandboxUnavailable(
                    f"no launcher answers on {self._path} ({error.strerror}): start one with "
                    "cellblock launcher, or let CELLBLOCK_LAUNCHER_SOCKET name another"
                ) from error
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
        """Closes this thread's connection; the launcher destroys every sandbox that it had borrowed."""
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
        if not reply.ok:
            kind: type[CellblockError] = _ERRORS.get(reply.error or "unavailable", SandboxUnavailable)
            raise kind(reply.message or f"the launcher says {reply.error}")
        return reply, descriptors
