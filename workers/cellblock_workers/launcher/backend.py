"""What a launcher needs of any way to make a sandbox."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Literal, Protocol

from cellblock_config import Isolation, LevelName
from cellblock_workers.launcher.evidence import Evidence

Framing = Literal["raw", "docker"]


class BackendUnavailable(Exception):
    """This isolation cannot be used on this host now; the message says why and what to do."""


class StartFailed(BackendUnavailable):
    """It was tried and refused: this one sandbox, or this isolation, rather than the host."""


class NotOnThisHost(StartFailed):
    """What this way needs is not installed, or not open to the launcher's user."""


class GuestEnded(StartFailed):
    """The sandbox came up, and its first process ended by itself: too little memory for the image, mostly."""


class CannotStart(StartFailed):
    """It ended so twice, and starts with more memory: the job asked for too little."""


class NotOffered(StartFailed):
    """This way works and has no means for what the job asks: a context, another image."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Everything that is fixed when a sandbox starts. Sandboxes of one profile are interchangeable."""

    level: LevelName
    image: str
    memory_bytes: int
    cpus: float
    pids: int
    #: A file of the host, resolved and permitted (contexts.py), to be seen read-only at its MOUNT_POINT.
    context: str | None = None
    #: So many sandboxes under one guest, each for one job and used one after the other; 0: a single one.
    series: int = 0


class Sandbox(Protocol):
    """One started, single-use sandbox, or a series of such."""

    id: str
    profile: Profile

    @property
    def series(self) -> int:
        """For so many jobs, each in a sandbox of its own; 0: for one."""
        ...

    @property
    def isolation(self) -> str:
        """What separates the job from the host, as results name it."""
        ...

    @property
    def backend(self) -> str:
        """How that isolation was made."""
        ...

    @property
    def framing(self) -> Framing:
        """How guest frames are wrapped on the stream."""
        ...

    @property
    def stream(self) -> socket.socket:
        """Bytes to and from the guest. The launcher passes it on and never reads it."""
        ...

    def hand_over(self) -> int:
        """The sandbox goes to its job: how many milliseconds of CPU time its start took, which the job's own
        are counted from."""
        ...

    def give_way(self, after_cpu_ms: int) -> bool:
        """Let others go first once the job has used this much. Whether there is nothing more to be done:
        it gives way now, or never can here."""
        ...

    def evidence(self, *, ended: bool) -> Evidence:
        """What is known now. ``ended``: the stream has closed, so wait a moment for the final word."""
        ...

    def destroy(self) -> None:
        """Kill and remove, whatever state it is in. Idempotent."""
        ...


class Backend(Protocol):
    """One isolation, made one way.

    ``sweeps`` names what :meth:`sweep` covers: backends that share it are swept once.
    """

    isolation: Isolation
    name: str
    sweeps: str

    def probe(self) -> None:
        """Prove that a sandbox starts and its controls bite. Raises :class:`BackendUnavailable`."""
        ...

    def start(self, profile: Profile) -> Sandbox:
        """Start a sandbox whose guest waits for a job. Raises :class:`BackendUnavailable`."""
        ...

    def sweep(self) -> int:
        """Remove what was left behind by owners that are gone; how many things."""
        ...

    def close(self) -> None:
        """End what is kept between sandboxes. Every sandbox is gone by now."""
        ...
