"""Egress: pure filters between a sandbox and the result store. All output of a job passes through them."""

from cellblock.egress.context import ContextSource
from cellblock.egress.filtering import FilterReport, Redaction, filter_text
from cellblock.egress.governor import Governed, Governor
from cellblock.egress.outgoing import Outgoing, filter_outgoing

__all__ = [
    "ContextSource",
    "FilterReport",
    "Governed",
    "Governor",
    "Outgoing",
    "Redaction",
    "filter_outgoing",
    "filter_text",
]
