"""The question to a policy, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

RUN = "agent.run.invoke"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: the holder of an API key, or the producer itself, which no key limits."""

    key_id: str | None = None
    tenant: str | None = None  #: whose key it is
    capabilities: tuple[str, ...] = ()


PRODUCER = Principal()


@dataclass(frozen=True, slots=True)
class Question:
    """Whether this principal may do this action, for this tenant, in this context."""

    principal: Principal
    action: str
    tenant: str
    context: Mapping[str, str | int | bool]


@dataclass(frozen=True, slots=True)
class Decision:
    """A policy's answer. ``reasons``: the names of the policies that decided; empty if none permits it."""

    allowed: bool
    reasons: tuple[str, ...] = ()


class DecisionPoint(Protocol):
    """Answers questions. Raises :class:`PolicyUnavailable` where it cannot, which counts as a denial."""

    def decide(self, question: Question) -> Decision:
        """The decision, and the policies that it rests on."""
        ...
