"""Chooses the policy that decides, from the settings."""

from __future__ import annotations

from cellblock.admission.policy.decision import Decision, DecisionPoint, Question
from cellblock.errors import NotConfigured
from cellblock_config.policy import PolicySettings


class NoPolicy:
    """The decision point where none is configured: every process that can reach the store may run jobs."""

    def decide(self, question: Question) -> Decision:
        """Always yes."""
        return Decision(True, ("no policy is configured",))


def decision_point(settings: PolicySettings) -> DecisionPoint:
    """The decision point that these settings name.

    Raises :class:`NotConfigured` where its package is not installed, :class:`PolicyError` where its policies
    cannot be read.
    """
    if settings.folder is None and settings.url is None:
        return NoPolicy()
    try:
        if settings.folder is not None:
            from cellblock.admission.policy.cedar import CedarPolicies

            return CedarPolicies(settings.folder)
        from cellblock.admission.policy.remote import RemotePolicies

        return RemotePolicies(settings)
    except ModuleNotFoundError as error:
        raise NotConfigured(
            f"policies need the package {error.name}: pip install 'cellblock[policy]'"
        ) from error
