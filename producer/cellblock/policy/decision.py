"""What is asked, what is answered, and who answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from cellblock.errors import NotConfigured
from cellblock_config.policy import PolicySettings

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


class Nobody:
    """No policy is configured: whoever may reach the store may run."""

    def decide(self, question: Question) -> Decision:
        """Always yes."""
        return Decision(True, ("no policy is configured",))


def decision_point(settings: PolicySettings) -> DecisionPoint:
    """The one these settings ask for. Raises :class:`NotConfigured`, :class:`PolicyError`."""
    if settings.folder is None and settings.url is None:
        return Nobody()
    try:
        if settings.folder is not None:
            from cellblock.policy.cedar import CedarPolicies

            return CedarPolicies(settings.folder)
        from cellblock.policy.remote import RemotePolicies

        return RemotePolicies(settings)
    except ModuleNotFoundError as error:
        raise NotConfigured(
            f"policies need the package {error.name}: pip install 'cellblock[policy]'"
        ) from error
