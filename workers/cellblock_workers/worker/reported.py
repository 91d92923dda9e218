"""Reads, within bounds, what a job says of itself: its exception and its value. The job wrote both, so
nonsense is its own loss, never a violation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import ValidationError

from cellblock.contract.outcomes import JobError
from cellblock.contract.values import TableValue, read_json_value


@dataclass(frozen=True, slots=True)
class Value:
    """A job's value, or the reason why it cannot be shown; both None for a job that computed none."""

    content: object = None
    kind: Literal["json", "table"] | None = None
    error: str | None = None


def read_raised(payload: bytes) -> JobError | None:
    """The exception that the job says it raised, with each text cut; None if it is nonsense."""
    try:
        claim = JobError.model_validate_json(payload)
    except ValidationError:
        return None
    return JobError(type=claim.type[:200], message=claim.message[:4000], traceback=claim.traceback[-16_000:])


def read_value(payload: bytes, limit_bytes: int) -> Value:
    """The value that the job sent: one byte for the kind, then JSON, Arrow or a reason. Never raises."""
    if not payload:
        return Value()
    kind, data = payload[:1], payload[1:]
    if len(data) > limit_bytes:
        return Value(error=f"the value takes more than {limit_bytes} bytes, which is all that may leave")
    if kind == b"j":
        try:
            return Value(read_json_value(data), "json")
        except ValueError as error:
            return Value(error=f"the value {error}"[:2000])
    if kind == b"t":
        return Value(TableValue(data), "table")
    if kind == b"e":
        return Value(error=data[:2000].decode("utf-8", "replace"))
    return Value(error="the job sent a value of no known kind")
