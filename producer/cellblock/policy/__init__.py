"""The policy decision point: whether a job may run, asked before anything is stored (requirement D5)."""

from cellblock.policy.decision import Decision, DecisionPoint, Principal, Question, decision_point

__all__ = ["Decision", "DecisionPoint", "Principal", "Question", "decision_point"]
