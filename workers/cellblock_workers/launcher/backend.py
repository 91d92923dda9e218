"""What a launcher needs from every way of making a sandbox."""

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
    """A start was tried and refused: the fault is this one sandbox's, or this isolation's, not the host's."""


class NotOnThisHost(StartFailed):
    """Something that this way needs is not installed, or not accessible to the launcher's user."""


class GuestEnded(StartFailed):
    """The sandbox came up, and its first process ended by itself; mostly for too little memory."""


class CannotStart(StartFailed):
    """The sandbox ended so twice, and starts with more memory: the job asked for too little."""


class NotOffered(StartFailed):
    """This way works, but cannot do what the job asks for: a context, another image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Everything that is fixed when a sandbox starts. Sandboxes of one profile are interchangeable."""

    level: LevelName
    image: str
    memory_bytes: int
    cpus: float
    pids: int
    #: A file of the host, resolved and permitted (contexts.py), that the job sees read-only at MOUNT_POINT.
    context: str | None = None
    #: The number of sandboxes under one guest, each for one job and used one after the other; 0: a single
    #: one.
    series: int = 0


class Sandbox(Protocol):
    """One started, single-use sandbox, or a series of them."""

    id: str
    profile: Profile

    @property
    def series(self) -> int:
        """The number of jobs it is for, each in a sandbox of its own; 0: one job."""
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
        """Passes the sandbox to its job. Returns the CPU time that its start took, in milliseconds; the job's
        own CPU time counts from here."""
        ...

    def give_way(self, after_cpu_ms: int) -> bool:
        """Lets other sandboxes go first once the job has used ``after_cpu_ms``. Returns whether nothing is
        left to do: the sandbox gives way now, or never can here."""
        ...

    def pids_most(self) -> int | None:
        """The limit of host processes and threads that it was started with; None if it is not among those
        that are bounded together (``CgroupTree``)."""
        ...

    def limit_pids(self, most: int) -> None:
        """Sets another limit while it lives."""
        ...

    def evidence(self, *, ended: bool) -> Evidence:
        """What is known now. ``ended``: the stream has closed, so wait a moment for the final counters."""
        ...

    def destroy(self) -> None:
        """Kills and removes the sandbox, in any state. Idempotent."""
        ...


class Backend(Protocol):
    """One isolation, made one way.

    ``sweeps`` names what :meth:`sweep` covers: backends with the same name are swept once.
    """

    isolation: Isolation
    name: str
    sweeps: str

    def probe(self) -> None:
        """Proves that a sandbox starts and its controls bite. Raises :class:`BackendUnavailable`."""
        ...

    def start(self, profile: Profile) -> Sandbox:
        """Starts a sandbox whose guest waits for a job. Raises :class:`BackendUnavailable`."""
        ...

    def sweep(self) -> int:
        """Removes what owners that are gone have left. Returns how many things."""
        ...

    def close(self) -> None:
        """Ends what is kept between sandboxes. Every sandbox is gone by now."""
        ...
