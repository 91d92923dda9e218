"""The policy decision point: whether a job may run, asked before anything is stored."""

from cellblock.admission.policy.choice import decision_point
from cellblock.admission.policy.decision import Decision, DecisionPoint, Principal, Question

__all__ = ["Decision", "DecisionPoint", "Principal", "Question", "decision_point"]
