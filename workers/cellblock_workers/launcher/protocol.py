"""What worker and launcher send each other: JSON messages on a SOCK_SEQPACKET Unix socket.

One message is one packet of at most 16 KiB. The reply to ``acquire`` carries the sandbox's byte stream as a
passed descriptor, and the job's context, if it has one, as a second, read-only descriptor. A sandbox belongs
to the connection that acquired it: when that closes, for any reason, the sandbox is destroyed. So is a
sandbox with a lease that no worker renews.
"""

from __future__ import annotations

import socket
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from cellblock_config import LevelName
from cellblock_config.levels import SERIES_MOST
from cellblock_workers.launcher import streams
from cellblock_workers.launcher.evidence import Evidence

PACKET_BYTES = 16 * 1024


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Probe(_Message):
    """Asks what this host can run."""

    op: Literal["probe"] = "probe"


class Acquire(_Message):
    """Asks for one fresh sandbox of this profile for this attempt of this job."""

    op: Literal["acquire"] = "acquire"
    job_id: str = Field(pattern=r"^[A-Za-z0-9-]{1,64}$")
    fence: int = Field(ge=0)
    level: LevelName
    image: str = Field(max_length=64)
    memory_bytes: int
    cpus: float
    pids: int
    tenant: str = Field("", max_length=256, description="Starts are shared out among tenants.")
    context: str | None = Field(None, max_length=4096, pattern=r"^/[^\x00]*$")
    series: int = Field(
        0,
        ge=0,
        le=SERIES_MOST,
        description="How many to fork for use one after the other, where the host can.",
    )
    lease_s: float | None = Field(
        None, gt=0, le=3600, description="Destroy it when no one has renewed it for this long."
    )


class Report(_Message):
    """Asks what kernel and daemon know of this sandbox."""

    op: Literal["report"] = "report"
    sandbox: str = Field(max_length=64)
    ended: bool = Field(False, description="The stream has closed: wait for the final word.")
    final: bool = Field(False, description="Then destroy it, whatever the answer.")


class Kill(_Message):
    """Asks to destroy this sandbox."""

    op: Literal["kill"] = "kill"
    sandbox: str = Field(max_length=64)


class Renew(_Message):
    """Says that these sandboxes still belong to jobs of this worker. Any of its connections may say so."""

    op: Literal["renew"] = "renew"
    sandboxes: list[Annotated[str, Field(max_length=64)]] = Field(max_length=200)


Request = Annotated[Probe | Acquire | Report | Kill | Renew, Field(discriminator="op")]
REQUEST: TypeAdapter[Request] = TypeAdapter(Request)

#: context: this file cannot be a job's context · denied: anything else outside the launcher's settings
#: failed: this profile does not start on a host that works · start: the job asked for too little memory
#: refused: nothing on this host satisfies the level · unavailable: this host cannot now
#: level: this host cannot now for this level, though it can for another · invalid: not a request
ErrorCode = Literal["denied", "context", "failed", "start", "refused", "level", "unavailable", "invalid"]


class Reply(_Message):
    """The answer to any request; only the fields that belong to the request are set."""

    ok: bool = True
    error: ErrorCode | None = None
    message: str | None = None
    # probe
    isolations: dict[LevelName, str] | None = None
    reasons: dict[str, str] | None = None
    counts: dict[str, int] | None = None
    # acquire
    sandbox: str | None = None
    isolation: str | None = None
    backend: str | None = None
    framing: Literal["raw", "docker"] | None = None
    warm: bool | None = None
    start_cpu_ms: int | None = None
    context_bytes: int | None = None
    series: int | None = None
    # report
    evidence: Evidence | None = None


def send(connection: socket.socket, message: _Message, *descriptors: int) -> None:
    """Sends one message, with the descriptors to pass."""
    packet = message.model_dump_json(exclude_none=True).encode()
    socket.send_fds(connection, [packet], list(descriptors))


def receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    """One packet and the descriptors passed with it; an empty packet when the peer is gone."""
    packet, descriptors = streams.receive(connection, PACKET_BYTES + 1)
    return (packet if len(packet) <= PACKET_BYTES else b"too long"), descriptors
