"""Egress: pure filters between a sandbox and the result store. Nothing leaves without passing here."""

from cellblock.egress.governor import Governed, Governor

__all__ = ["Governed", "Governor"]
