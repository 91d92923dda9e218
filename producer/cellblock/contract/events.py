"""One entry of the event stream for each change of a job."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field

from cellblock.contract.base import Contract
from cellblock.contract.outcomes import Outcome

#: About no job: the reader was too slow, and events up to this one are gone.
GAP: Literal["agent.events.gap"] = "agent.events.gap"
EventType = Literal[
    "agent.events.gap",
    "agent.run.queued",
    "agent.run.started",
    "agent.run.retried",
    "agent.run.succeeded",
    "agent.run.failed",
    "agent.run.cancelled",
    "agent.run.rejected",
]


class Event(Contract):
    """One entry of the event stream. Carries names and the outcome, and of what a job printed nothing but the
    first line of its error, filtered.

    ``agent.events.gap`` is not about a job: it tells a reader that events after those it has read, up to this
    id, have left the stream before it came.
    """

    id: str = Field(description="Redis stream id; resume after it.")
    type: EventType = Field(description="What happened; see the types.")
    job_id: str = Field(description="The job; empty in a gap.")
    tenant: str = Field(description="Whose job; empty in a gap.")
    at: float = Field(description="Unix seconds, the store's clock.")
    attempt: int = Field(description="Number of the attempt, from 1; 0 before the first.")
    outcome: Outcome | None = Field(None, description="How the job, or the attempt, ended.")
    worker: str | None = Field(None, description="The worker that ran the attempt.")
    trace_id: str = Field(description="Trace id of the caller's traceparent, else one made at admission.")
    plan: str | None = Field(None, description="The plan that bounds the job.")
    image: str | None = Field(None, description="The image that its sandbox is made of.")
    message: str | None = Field(
        None,
        description="Type and first line of the filtered error, up to 200 bytes; none of a confidential job.",
    )

    @property
    def terminal(self) -> bool:
        """Whether the job ended with this event; every accepted job has exactly one such event."""
        return self.type not in {GAP, "agent.run.queued", "agent.run.started", "agent.run.retried"}

    @classmethod
    def from_fields(cls, stream_id: str, fields: dict[str, str]) -> Self:
        """The event that one entry of the stream holds. Fields that a later version added are left out."""
        given: dict[str, Any] = {name: value for name, value in fields.items() if value != ""}
        given["at"] = int(given.pop("at_ms")) / 1000
        given = {name: value for name, value in given.items() if name in cls.model_fields}
        return cls(id=stream_id, **given)
