"""What is asked of a policy, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

RUN = "agent.run.invoke"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: the holder of a key, or the producer itself, which no key bounds."""

    key_id: str | None = None
    tenant: str | None = None  #: whose key it is
    capabilities: tuple[str, ...] = ()


PRODUCER = Principal()


@dataclass(frozen=True, slots=True)
class Question:
    """May this principal do this, for this tenant, in these circumstances?"""

    principal: Principal
    action: str
    tenant: str
    context: Mapping[str, str | int | bool]


@dataclass(frozen=True, slots=True)
class Decision:
    """``reasons`` are the names of the policies that decided; none: nothing permits it."""

    allowed: bool
    reasons: tuple[str, ...] = ()


class DecisionPoint(Protocol):
    """Answers. Raises :class:`PolicyUnavailable` where it cannot: that is no permission."""

    def decide(self, question: Question) -> Decision:
        """The answer, and what it rests on."""
        ...
